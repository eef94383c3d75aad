-- What happened, the newest part of it.
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    what TEXT NOT NULL,
    observer_id TEXT,
    service_id TEXT,
    document TEXT NOT NULL
) STRICT;
CREATE INDEX events_observer ON events (observer_id, id) WHERE observer_id IS NOT NULL;
CREATE INDEX events_service ON events (service_id, id) WHERE service_id IS NOT NULL;
