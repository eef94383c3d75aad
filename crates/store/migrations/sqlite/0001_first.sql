-- Rows are documents; a column beside a document is what is searched or ordered by.
CREATE TABLE observers (
    id TEXT PRIMARY KEY NOT NULL,
    version INTEGER NOT NULL,
    name TEXT NOT NULL,
    -- the name while it is held: NULL from the end of a delete on
    name_key TEXT,
    kind TEXT NOT NULL,
    pool TEXT NOT NULL,
    status TEXT NOT NULL,
    service_id TEXT,
    generation INTEGER NOT NULL,
    created_at INTEGER NOT NULL,
    due_at INTEGER,
    commanded_at INTEGER,
    labels TEXT NOT NULL,
    document TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX observers_name_key ON observers (name_key);
CREATE INDEX observers_due ON observers (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX observers_pool_status ON observers (pool, status);
CREATE INDEX observers_status ON observers (status);
CREATE INDEX observers_service ON observers (service_id);
CREATE INDEX observers_commanded ON observers (commanded_at) WHERE commanded_at IS NOT NULL;
CREATE INDEX observers_by_name ON observers (name, id);
CREATE INDEX observers_by_age ON observers (created_at, id);

CREATE TABLE services (
    id TEXT PRIMARY KEY NOT NULL,
    version INTEGER NOT NULL,
    name TEXT NOT NULL,
    pool TEXT NOT NULL,
    capacity INTEGER NOT NULL,
    state TEXT NOT NULL,
    born_at INTEGER NOT NULL,
    ended_at INTEGER,
    document TEXT NOT NULL
) STRICT;
CREATE INDEX services_name ON services (name, born_at);
CREATE INDEX services_pool_state ON services (pool, state);
CREATE INDEX services_ended ON services (ended_at);

CREATE TABLE parked (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    reason TEXT NOT NULL,
    body BLOB NOT NULL,
    at INTEGER NOT NULL
) STRICT;
