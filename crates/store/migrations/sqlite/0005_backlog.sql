-- Observers wait in the database until they have a slot. Those that were published before are admitted.
ALTER TABLE observer_states ADD COLUMN slot TEXT NOT NULL DEFAULT '';
-- The place in the backlog; NULL if the observer does not wait for a slot.
ALTER TABLE observer_states ADD COLUMN rank INTEGER;
UPDATE observer_states SET slot = 'admitted' WHERE status IN ('Created', 'Processing', 'OnDeleting')
    AND (reason_code IS NULL OR reason_code <> 'no-service-for-kind');
CREATE INDEX observers_waiting ON observer_states (pool, kind, rank, id) WHERE rank IS NOT NULL;
DROP INDEX observers_unheld;
-- Observers whose messages may be in a queue: no service holds them.
CREATE INDEX observers_unheld ON observer_states (pool, id) WHERE service_id IS NULL AND slot = 'admitted';

DROP TRIGGER observer_states_deleted;
DROP TABLE observer_counts;
-- The number of observers by what they are counted by; each transaction that changes states changes it.
CREATE TABLE observer_counts (
    pool TEXT NOT NULL,
    kind TEXT NOT NULL,
    status TEXT NOT NULL,
    -- Empty: none.
    health TEXT NOT NULL,
    -- 'admitted', 'waiting', or empty: none.
    slot TEXT NOT NULL,
    -- Zero: no service.
    service_id BLOB NOT NULL,
    number INTEGER NOT NULL,
    PRIMARY KEY (pool, kind, status, health, slot, service_id)
) STRICT, WITHOUT ROWID;
INSERT INTO observer_counts (pool, kind, status, health, slot, service_id, number)
    SELECT pool, kind, status, COALESCE(health, ''), slot, COALESCE(service_id, zeroblob(16)), COUNT(*)
    FROM observer_states GROUP BY 1, 2, 3, 4, 5, 6;
CREATE INDEX observer_counts_waiting ON observer_counts (pool) WHERE slot = 'waiting';
CREATE TRIGGER observer_states_deleted AFTER DELETE ON observer_states BEGIN
    UPDATE observer_counts SET number = number - 1
    WHERE pool = OLD.pool AND kind = OLD.kind AND status = OLD.status AND health = COALESCE(OLD.health, '')
        AND slot = OLD.slot AND service_id = COALESCE(OLD.service_id, zeroblob(16));
END;
