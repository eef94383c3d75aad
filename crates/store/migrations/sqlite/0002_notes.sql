-- Small facts that managers share: leases, idempotency keys, the identity of this database.
CREATE TABLE notes (
    name TEXT PRIMARY KEY NOT NULL,
    value TEXT NOT NULL,
    until INTEGER NOT NULL
) STRICT;
CREATE INDEX notes_until ON notes (until);
