-- Rows are documents; a column beside a document exists to search or sort by it.
CREATE TABLE observers (
    id TEXT PRIMARY KEY NOT NULL,
    version INTEGER NOT NULL,
    name TEXT NOT NULL,
    -- The name while it is taken: NULL once the observer is deleted.
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
    document TEXT NOT NULL,
    -- The part of the health that follows from the row alone: NULL if the observer is not meant to run.
    health TEXT,
    steady_at INTEGER,
    -- The part of the reason that follows from the row alone: NULL if there is nothing to add to the status.
    reason_code TEXT
) STRICT;
CREATE UNIQUE INDEX observers_name_key ON observers (name_key);
CREATE INDEX observers_due ON observers (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX observers_status ON observers (status);
CREATE INDEX observers_commanded ON observers (commanded_at) WHERE commanded_at IS NOT NULL;
CREATE INDEX observers_by_name ON observers (name, id);
CREATE INDEX observers_by_age ON observers (created_at, id);
-- Managers compare what a service holds with its inventory, one range of ids at a time.
CREATE INDEX observers_held ON observers (service_id, id);
-- Managers count the observers of a service again and again while it takes over from another: without reading rows.
CREATE INDEX observers_counted ON observers (service_id, status);
-- Counting by health reads no rows.
CREATE INDEX observers_counts ON observers (pool, status, health, service_id, steady_at);
-- Managers look every second for observers that no service can run.
CREATE INDEX observers_refused ON observers (pool, kind, reason_code, created_at, id)
    WHERE reason_code IN ('refused', 'no-service-for-kind');
-- Observers that were told to end and have not, the oldest command first; messages that leave the queue are among them.
CREATE INDEX observers_ending ON observers (commanded_at, id)
    WHERE reason_code IN ('deleting', 'pausing', 'restart-requested', 'withdrawing');

CREATE TABLE services (
    id TEXT PRIMARY KEY NOT NULL,
    version INTEGER NOT NULL,
    name TEXT NOT NULL,
    pool TEXT NOT NULL,
    capacity INTEGER NOT NULL,
    state TEXT NOT NULL,
    registered_at INTEGER NOT NULL,
    ended_at INTEGER,
    document TEXT NOT NULL
) STRICT;
CREATE INDEX services_name ON services (name, registered_at);
CREATE INDEX services_pool_state ON services (pool, state);
CREATE INDEX services_ended ON services (ended_at);

CREATE TABLE parked (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    queue TEXT NOT NULL,
    reason TEXT NOT NULL,
    body BLOB NOT NULL,
    at INTEGER NOT NULL
) STRICT;
