-- Rows are documents; a column beside a document is what is searched or ordered by.
-- Documents are text, not jsonb: jsonb refuses \u0000, which a spec or an error text may hold.
CREATE TABLE observers (
    id uuid PRIMARY KEY,
    version bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    -- the name while it is held: NULL from the end of a delete on
    name_key text COLLATE "C",
    kind text NOT NULL,
    pool text NOT NULL,
    status text NOT NULL,
    service_id uuid,
    generation bigint NOT NULL,
    created_at bigint NOT NULL,
    due_at bigint,
    commanded_at bigint,
    labels jsonb NOT NULL,
    document text NOT NULL
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX observers_name_key ON observers (name_key);
CREATE INDEX observers_due ON observers (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX observers_pool_status ON observers (pool, status);
CREATE INDEX observers_status ON observers (status);
CREATE INDEX observers_service ON observers (service_id);
CREATE INDEX observers_commanded ON observers (commanded_at) WHERE commanded_at IS NOT NULL;
CREATE INDEX observers_by_name ON observers (name, id);
CREATE INDEX observers_by_age ON observers (created_at, id);

CREATE TABLE services (
    id uuid PRIMARY KEY,
    version bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    pool text NOT NULL,
    capacity bigint NOT NULL,
    state text NOT NULL,
    born_at bigint NOT NULL,
    ended_at bigint,
    document text NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX services_name ON services (name, born_at);
CREATE INDEX services_pool_state ON services (pool, state);
CREATE INDEX services_ended ON services (ended_at);

CREATE TABLE parked (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text NOT NULL,
    reason text NOT NULL,
    body bytea NOT NULL,
    at bigint NOT NULL
);
