-- What happened, the newest part of it. Written under a lock, so that a higher id is never seen before a
-- lower one.
CREATE TABLE events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    what text NOT NULL,
    observer_id uuid,
    service_id uuid,
    document text NOT NULL
);
CREATE INDEX events_observer ON events (observer_id, id) WHERE observer_id IS NOT NULL;
CREATE INDEX events_service ON events (service_id, id) WHERE service_id IS NOT NULL;
