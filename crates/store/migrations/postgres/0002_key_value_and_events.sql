-- Small facts that managers share: leases, idempotency keys, the identity of this database.
CREATE TABLE key_value (
    name text COLLATE "C" PRIMARY KEY,
    value text NOT NULL,
    until bigint NOT NULL
);
CREATE INDEX key_value_until ON key_value (until);

-- The newest events. They are written under a lock, so that a higher id never becomes visible before a lower one.
CREATE TABLE events (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    type text NOT NULL,
    observer_id uuid,
    service_id uuid,
    document text NOT NULL
);
CREATE INDEX events_observer ON events (observer_id, id) WHERE observer_id IS NOT NULL;
CREATE INDEX events_service ON events (service_id, id) WHERE service_id IS NOT NULL;
