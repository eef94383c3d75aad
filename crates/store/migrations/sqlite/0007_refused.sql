-- Why an observer stands where it stands, as far as its row tells it: NULL where there is nothing to add. Rows that were
-- written before have none until they are saved again.
ALTER TABLE observers ADD COLUMN reason_code TEXT;
-- What services cannot run is looked for every second.
CREATE INDEX observers_refused ON observers (pool, kind, reason_code, created_at, id)
    WHERE reason_code IN ('refused', 'no-service-for-kind');
-- What was told to end and has not, the longest ago first.
CREATE INDEX observers_ending ON observers (commanded_at, id)
    WHERE reason_code IN ('deleting', 'pausing', 'restart-requested');
