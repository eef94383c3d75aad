-- Observers take as many slots as they weigh, and a service takes those of up to its greatest weight.
ALTER TABLE services ADD COLUMN weight_max bigint NOT NULL DEFAULT 1;
ALTER TABLE observer_states ADD COLUMN weight integer NOT NULL DEFAULT 1;
-- The sum of the weights of the counted observers.
ALTER TABLE observer_counts ADD COLUMN weight bigint NOT NULL DEFAULT 0;
UPDATE observer_counts SET weight = number;
CREATE OR REPLACE FUNCTION everwatch_observer_states_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO observer_counts AS c (pool, kind, status, health, slot, service_id, part, number, weight)
        SELECT pool, kind, status, COALESCE(health, ''), slot,
            COALESCE(service_id, '00000000-0000-0000-0000-000000000000'), 0, -COUNT(*), -SUM(weight)
        FROM gone GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6
    ON CONFLICT (pool, kind, status, health, slot, service_id, part)
        DO UPDATE SET number = c.number + EXCLUDED.number, weight = c.weight + EXCLUDED.weight;
    RETURN NULL;
END
$$;
-- The first observers of certain weights are found in the index alone.
DROP INDEX observers_waiting;
CREATE INDEX observers_waiting ON observer_states (pool, kind, rank, id, weight) WHERE rank IS NOT NULL;
