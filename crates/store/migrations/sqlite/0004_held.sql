-- What a service holds is compared with its lists, a stretch of ids at a time.
CREATE INDEX observers_held ON observers (service_id, id);
DROP INDEX observers_service;
