-- The two halves of an observer are stored apart: its definition, which a user writes, and its state, which changes with
-- every report. Ids are 16 bytes.
ALTER TABLE observers RENAME TO observers_before;
DROP INDEX observers_name_key;
DROP INDEX observers_due;
DROP INDEX observers_status;
DROP INDEX observers_commanded;
DROP INDEX observers_by_name;
DROP INDEX observers_by_age;
DROP INDEX observers_held;
DROP INDEX observers_counted;
DROP INDEX observers_counts;
DROP INDEX observers_refused;
DROP INDEX observers_ending;

CREATE TABLE observers (
    id BLOB PRIMARY KEY NOT NULL,
    name TEXT NOT NULL,
    -- The name while it is taken: NULL once the observer is deleted.
    name_key TEXT,
    kind TEXT NOT NULL,
    pool TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    labels TEXT NOT NULL,
    definition TEXT NOT NULL
) STRICT;
INSERT INTO observers (id, name, name_key, kind, pool, created_at, labels, definition)
    SELECT unhex(replace(id, '-', '')), name, name_key, kind, pool, created_at, labels,
        COALESCE(CASE WHEN json_valid(document) THEN document -> '$.definition' END, document)
    FROM observers_before ORDER BY id;
CREATE UNIQUE INDEX observers_name_key ON observers (name_key) WHERE name_key IS NOT NULL;
CREATE INDEX observers_by_name ON observers (name, id);
CREATE INDEX observers_by_age ON observers (created_at, id);

-- A move writes one row of this table and of observers_held. Every other index covers few rows. The table has row ids,
-- because a row of a table without them spills over to a second page from 1,000 bytes on.
CREATE TABLE observer_states (
    id BLOB PRIMARY KEY NOT NULL,
    version INTEGER NOT NULL,
    kind TEXT NOT NULL,
    pool TEXT NOT NULL,
    status TEXT NOT NULL,
    service_id BLOB,
    due_at INTEGER,
    commanded_at INTEGER,
    -- The part of the health that follows from the row alone: NULL if the observer is not meant to run.
    health TEXT,
    steady_at INTEGER,
    -- The part of the reason that follows from the row alone: NULL if there is nothing to add to the status.
    reason_code TEXT,
    -- The digest of the entry that the holder's inventory must contain; NULL if no service holds the observer, or if an
    -- older version has written the row. Managers compare the digests of a service with its inventory, without reading
    -- a row.
    digest INTEGER,
    -- All the rest, in MessagePack; in JSON if an older version has written it.
    state BLOB NOT NULL
) STRICT;
INSERT INTO observer_states
        (id, version, kind, pool, status, service_id, due_at, commanded_at, health, steady_at, reason_code, state)
    SELECT unhex(replace(id, '-', '')), version, kind, pool, status, unhex(replace(service_id, '-', '')), due_at,
        commanded_at, health, steady_at, reason_code,
        CAST(CASE WHEN json_valid(document) THEN json_remove(document, '$.definition', '$.id', '$.version')
            ELSE document END AS BLOB)
    FROM observers_before ORDER BY id;
DROP TABLE observers_before;
-- What a service holds: managers compare it with the inventory of the service, one range of ids at a time.
CREATE INDEX observers_held ON observer_states (service_id, id, digest) WHERE service_id IS NOT NULL;
-- Observers that no service holds, although they are to run or to end.
CREATE INDEX observers_unheld ON observer_states (pool, id)
    WHERE service_id IS NULL AND status IN ('Created', 'Processing', 'OnDeleting');
CREATE INDEX observers_due ON observer_states (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX observers_commanded ON observer_states (commanded_at) WHERE commanded_at IS NOT NULL;
CREATE INDEX observers_steady ON observer_states (steady_at) WHERE steady_at IS NOT NULL;
-- Managers look every second for observers that no service can run.
CREATE INDEX observers_refused ON observer_states (pool, kind, reason_code, id)
    WHERE reason_code IN ('refused', 'no-service-for-kind');
-- Observers that were told to end and have not, the oldest command first; messages that leave the queue are among them.
CREATE INDEX observers_ending ON observer_states (commanded_at, id)
    WHERE reason_code IN ('deleting', 'pausing', 'restart-requested', 'withdrawing');

-- The number of observers by what they are counted by; each transaction that changes states changes it.
CREATE TABLE observer_counts (
    pool TEXT NOT NULL,
    status TEXT NOT NULL,
    -- Empty: none.
    health TEXT NOT NULL,
    -- Zero: no service.
    service_id BLOB NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (pool, status, health, service_id)
) STRICT, WITHOUT ROWID;
INSERT INTO observer_counts (pool, status, health, service_id, number)
    SELECT pool, status, COALESCE(health, ''), COALESCE(service_id, zeroblob(16)), COUNT(*)
    FROM observer_states GROUP BY 1, 2, 3, 4;

-- Also for a row that an operator deletes.
CREATE TRIGGER observers_deleted AFTER DELETE ON observers BEGIN
    DELETE FROM observer_states WHERE id = OLD.id;
END;
CREATE TRIGGER observer_states_deleted AFTER DELETE ON observer_states BEGIN
    UPDATE observer_counts SET number = number - 1
    WHERE pool = OLD.pool AND status = OLD.status AND health = COALESCE(OLD.health, '')
        AND service_id = COALESCE(OLD.service_id, zeroblob(16));
END;

-- Ids of observers whose rows were deleted: reports about them are answered without a row.
CREATE TABLE forgotten_observers (
    id BLOB PRIMARY KEY NOT NULL,
    until INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO forgotten_observers (id, until)
    SELECT unhex(replace(substr(name, 11), '-', '')), until FROM key_value
    WHERE name >= 'forgotten/' AND name < 'forgotten0' AND unhex(replace(substr(name, 11), '-', '')) IS NOT NULL;
CREATE INDEX forgotten_until ON forgotten_observers (until);
DELETE FROM key_value WHERE name >= 'forgotten/' AND name < 'forgotten0';

ALTER TABLE services RENAME TO services_before;
DROP INDEX services_name;
DROP INDEX services_pool_state;
DROP INDEX services_ended;
CREATE TABLE services (
    id BLOB PRIMARY KEY NOT NULL,
    version INTEGER NOT NULL,
    name TEXT NOT NULL,
    pool TEXT NOT NULL,
    capacity INTEGER NOT NULL,
    state TEXT NOT NULL,
    registered_at INTEGER NOT NULL,
    ended_at INTEGER,
    document TEXT NOT NULL
) STRICT;
INSERT INTO services (id, version, name, pool, capacity, state, registered_at, ended_at, document)
    SELECT unhex(replace(id, '-', '')), version, name, pool, capacity, state, registered_at, ended_at, document
    FROM services_before;
DROP TABLE services_before;
CREATE INDEX services_name ON services (name, registered_at);
CREATE INDEX services_pool_state ON services (pool, state);
CREATE INDEX services_ended ON services (ended_at);

ALTER TABLE events RENAME TO events_before;
DROP INDEX events_observer;
DROP INDEX events_service;
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    type TEXT NOT NULL,
    observer_id BLOB,
    service_id BLOB,
    -- Whether a summary stands for it: such events are listed for their observer only, and counted apart.
    detail INTEGER NOT NULL DEFAULT 0,
    document TEXT NOT NULL
) STRICT;
INSERT INTO events (id, at, type, observer_id, service_id, document)
    SELECT id, at, type, unhex(replace(observer_id, '-', '')), unhex(replace(service_id, '-', '')), document
    FROM events_before ORDER BY id;
DROP TABLE events_before;
CREATE INDEX events_observer ON events (observer_id, id) WHERE observer_id IS NOT NULL;
CREATE INDEX events_service ON events (service_id, id) WHERE service_id IS NOT NULL;
CREATE INDEX events_detail ON events (detail, id);
