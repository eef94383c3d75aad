-- How many observers that name a key may run at once. A key that ends with * stands for each key that begins like it.
CREATE TABLE limits (
    key text COLLATE "C" PRIMARY KEY,
    max bigint NOT NULL,
    -- Whether a lower maximum also stops runs.
    enforce boolean NOT NULL
);

-- How observers count towards limits; each transaction that changes an observer changes it.
CREATE TABLE limit_uses (
    key text COLLATE "C" NOT NULL,
    observer_id uuid NOT NULL REFERENCES observers (id) ON DELETE CASCADE,
    -- 'named', 'waiting', 'behind', 'used', 'unreleased'.
    how text COLLATE "C" NOT NULL,
    pool text COLLATE "C" NOT NULL,
    -- The place of an observer that waits behind the limit.
    rank bigint,
    PRIMARY KEY (key, observer_id)
);
CREATE INDEX limit_uses_in_order ON limit_uses (key, how, pool, rank, observer_id);
CREATE INDEX limit_uses_of_observer ON limit_uses (observer_id);
CREATE INDEX limit_uses_behind ON limit_uses (pool, observer_id) WHERE how = 'behind';
CREATE INDEX limit_uses_unreleased ON limit_uses (pool, observer_id) WHERE how = 'unreleased';

-- The keys whose maximum or use has changed since a manager last looked at them. A manager removes a key only with the
-- token that it read before it counted.
CREATE TABLE changed_limits (
    key text COLLATE "C" PRIMARY KEY,
    token bigint NOT NULL,
    -- When a manager last looked at it and left it marked; the others come first.
    looked_at bigint NOT NULL DEFAULT 0
);
