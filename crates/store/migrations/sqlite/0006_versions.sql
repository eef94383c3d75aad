-- The former versions of definitions. The present one is with its observer.
CREATE TABLE observer_versions (
    observer_id BLOB NOT NULL REFERENCES observers (id) ON DELETE CASCADE,
    number INTEGER NOT NULL,
    -- When it became the definition, and the user whose request made it so.
    at INTEGER NOT NULL,
    by_user TEXT,
    definition TEXT NOT NULL,
    PRIMARY KEY (observer_id, number)
) STRICT, WITHOUT ROWID;
