-- Observers wait in the database until they have a slot. Those that were published before are admitted.
ALTER TABLE observer_states ADD COLUMN slot text NOT NULL DEFAULT '',
    -- The place in the backlog; NULL if the observer does not wait for a slot.
    ADD COLUMN rank bigint;
UPDATE observer_states SET slot = 'admitted' WHERE status IN ('Created', 'Processing', 'OnDeleting')
    AND (reason_code IS NULL OR reason_code <> 'no-service-for-kind');
CREATE INDEX observers_waiting ON observer_states (pool, kind, rank, id) WHERE rank IS NOT NULL;
DROP INDEX observers_unheld;
-- Observers whose messages may be in a queue: no service holds them.
CREATE INDEX observers_unheld ON observer_states (pool, id) WHERE service_id IS NULL AND slot = 'admitted';

DROP TABLE observer_counts;
-- The number of observers by what they are counted by; each transaction that changes states changes it. Each number is
-- the sum of several rows (`part`), so that concurrent transactions seldom wait for one another.
CREATE TABLE observer_counts (
    pool text NOT NULL,
    kind text NOT NULL,
    status text NOT NULL,
    -- Empty: none.
    health text NOT NULL,
    -- 'admitted', 'waiting', or empty: none.
    slot text NOT NULL,
    -- Zero: no service.
    service_id uuid NOT NULL,
    part smallint NOT NULL,
    number bigint NOT NULL,
    PRIMARY KEY (pool, kind, status, health, slot, service_id, part)
) WITH (fillfactor = 50);
INSERT INTO observer_counts (pool, kind, status, health, slot, service_id, part, number)
    SELECT pool, kind, status, COALESCE(health, ''), slot,
        COALESCE(service_id, '00000000-0000-0000-0000-000000000000'), 0, COUNT(*)
    FROM observer_states GROUP BY 1, 2, 3, 4, 5, 6;
CREATE INDEX observer_counts_waiting ON observer_counts (pool) WHERE slot = 'waiting';
CREATE OR REPLACE FUNCTION everwatch_observer_states_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO observer_counts AS c (pool, kind, status, health, slot, service_id, part, number)
        SELECT pool, kind, status, COALESCE(health, ''), slot,
            COALESCE(service_id, '00000000-0000-0000-0000-000000000000'), 0, -COUNT(*)
        FROM gone GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6
    ON CONFLICT (pool, kind, status, health, slot, service_id, part)
        DO UPDATE SET number = c.number + EXCLUDED.number;
    RETURN NULL;
END
$$;
