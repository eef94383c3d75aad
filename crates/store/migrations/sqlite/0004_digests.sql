-- The digest of the entry that the holder's inventory must contain; NULL if no service holds the observer, or if an older
-- version has written the row. Managers compare the digests of a service with its inventory, without reading a row.
ALTER TABLE observer_states ADD COLUMN digest INTEGER;
DROP INDEX observers_held;
CREATE INDEX observers_held ON observer_states (service_id, id, digest) WHERE service_id IS NOT NULL;
