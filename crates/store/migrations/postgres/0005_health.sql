-- The health of an observer as far as its row tells it: NULL where it is not to run. Rows that were written before are
-- taken for what their status says, until they are saved again.
ALTER TABLE observers ADD COLUMN health text;
ALTER TABLE observers ADD COLUMN steady_at bigint;
UPDATE observers SET health = CASE
    WHEN status = 'OnDeleting' THEN 'stopping'
    WHEN status = 'Created' THEN 'waiting'
    WHEN service_id IS NULL THEN 'moving'
    WHEN document LIKE '%"doing":{"restarting"%' THEN 'restarting'
    ELSE 'running' END
WHERE status IN ('Created', 'Processing', 'OnDeleting');
-- Counting by health needs no look at the rows.
DROP INDEX observers_pool_status;
CREATE INDEX observers_counts ON observers (pool, status, health, service_id, steady_at);
