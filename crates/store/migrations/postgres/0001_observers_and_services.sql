-- Rows are documents; a column beside a document exists to search or sort by it.
-- Documents are text, not jsonb: jsonb refuses \u0000, which a spec or an error text may contain.
CREATE TABLE observers (
    id uuid PRIMARY KEY,
    version bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    -- The name while it is taken: NULL once the observer is deleted.
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
    document text NOT NULL,
    -- The part of the health that follows from the row alone: NULL if the observer is not meant to run.
    health text,
    steady_at bigint,
    -- The part of the reason that follows from the row alone: NULL if there is nothing to add to the status.
    reason_code text
) WITH (fillfactor = 70);
CREATE UNIQUE INDEX observers_name_key ON observers (name_key);
CREATE INDEX observers_due ON observers (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX observers_status ON observers (status);
CREATE INDEX observers_commanded ON observers (commanded_at) WHERE commanded_at IS NOT NULL;
CREATE INDEX observers_by_name ON observers (name, id);
CREATE INDEX observers_by_age ON observers (created_at, id);
-- Managers compare what a service holds with its inventory, one range of ids at a time.
CREATE INDEX observers_held ON observers (service_id, id);
-- Counting by health reads no rows.
CREATE INDEX observers_counts ON observers (pool, status, health, service_id, steady_at);
-- Managers look every second for observers that no service can run.
CREATE INDEX observers_refused ON observers (pool, kind, reason_code, created_at, id)
    WHERE reason_code IN ('refused', 'no-service-for-kind');
-- Observers that were told to end and have not, the oldest command first; messages that leave the queue are among them.
CREATE INDEX observers_ending ON observers (commanded_at, id)
    WHERE reason_code IN ('deleting', 'pausing', 'restart-requested', 'withdrawing');

CREATE TABLE services (
    id uuid PRIMARY KEY,
    version bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    pool text NOT NULL,
    capacity bigint NOT NULL,
    state text NOT NULL,
    registered_at bigint NOT NULL,
    ended_at bigint,
    document text NOT NULL
) WITH (fillfactor = 70);
CREATE INDEX services_name ON services (name, registered_at);
CREATE INDEX services_pool_state ON services (pool, state);
CREATE INDEX services_ended ON services (ended_at);

CREATE TABLE parked (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    queue text NOT NULL,
    reason text NOT NULL,
    body bytea NOT NULL,
    at bigint NOT NULL
);
