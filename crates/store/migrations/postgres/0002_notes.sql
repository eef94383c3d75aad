-- Small facts that managers share: leases, idempotency keys, the identity of this database.
CREATE TABLE notes (
    name text COLLATE "C" PRIMARY KEY,
    value text NOT NULL,
    until bigint NOT NULL
);
CREATE INDEX notes_until ON notes (until);
