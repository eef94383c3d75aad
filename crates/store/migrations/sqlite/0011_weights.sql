-- Observers take as many slots as they weigh, and a service takes those of up to its greatest weight.
ALTER TABLE services ADD COLUMN weight_max INTEGER NOT NULL DEFAULT 1;
ALTER TABLE observer_states ADD COLUMN weight INTEGER NOT NULL DEFAULT 1;
-- The sum of the weights of the counted observers.
ALTER TABLE observer_counts ADD COLUMN weight INTEGER NOT NULL DEFAULT 0;
UPDATE observer_counts SET weight = number;
DROP TRIGGER observer_states_deleted;
CREATE TRIGGER observer_states_deleted AFTER DELETE ON observer_states BEGIN
    UPDATE observer_counts SET number = number - 1, weight = weight - OLD.weight
    WHERE pool = OLD.pool AND kind = OLD.kind AND status = OLD.status AND health = COALESCE(OLD.health, '')
        AND slot = OLD.slot AND service_id = COALESCE(OLD.service_id, zeroblob(16));
END;
-- The first observers of certain weights are found in the index alone.
DROP INDEX observers_waiting;
CREATE INDEX observers_waiting ON observer_states (pool, kind, rank, id, weight) WHERE rank IS NOT NULL;
