-- How many observers that name a key may run at once. A key that ends with * stands for each key that begins like it.
CREATE TABLE limits (
    key TEXT PRIMARY KEY,
    max INTEGER NOT NULL,
    -- Whether a lower maximum also stops runs.
    enforce INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- How observers count towards limits; each transaction that changes an observer changes it.
CREATE TABLE limit_uses (
    key TEXT NOT NULL,
    observer_id BLOB NOT NULL REFERENCES observers (id) ON DELETE CASCADE,
    -- 'named', 'waiting', 'behind', 'used', 'unreleased'.
    how TEXT NOT NULL,
    pool TEXT NOT NULL,
    -- The place of an observer that waits behind the limit.
    rank INTEGER,
    PRIMARY KEY (key, observer_id)
) STRICT, WITHOUT ROWID;
CREATE INDEX limit_uses_in_order ON limit_uses (key, how, pool, rank, observer_id);
CREATE INDEX limit_uses_of_observer ON limit_uses (observer_id);
CREATE INDEX limit_uses_behind ON limit_uses (pool, observer_id) WHERE how = 'behind';
CREATE INDEX limit_uses_unreleased ON limit_uses (pool, observer_id) WHERE how = 'unreleased';

-- The keys whose maximum or use has changed since a manager last looked at them. A manager removes a key only with the
-- token that it read before it counted.
CREATE TABLE changed_limits (
    key TEXT PRIMARY KEY,
    token INTEGER NOT NULL,
    -- When a manager last looked at it and left it marked; the others come first.
    looked_at INTEGER NOT NULL DEFAULT 0
) STRICT, WITHOUT ROWID;
