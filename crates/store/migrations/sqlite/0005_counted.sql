-- What a service runs is counted again and again while it takes over from another: without a look at the rows.
CREATE INDEX observers_counted ON observers (service_id, status);
