-- Small facts that managers share: leases, idempotency keys, the identity of this database.
CREATE TABLE key_value (
    name TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL,
    until INTEGER NOT NULL
) STRICT;
CREATE INDEX key_value_until ON key_value (until);

-- The newest events.
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    type TEXT NOT NULL,
    observer_id TEXT,
    service_id TEXT,
    document TEXT NOT NULL
) STRICT;
CREATE INDEX events_observer ON events (observer_id, id) WHERE observer_id IS NOT NULL;
CREATE INDEX events_service ON events (service_id, id) WHERE service_id IS NOT NULL;
