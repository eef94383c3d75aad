-- Rates: how many permits of a key all services together may use.
CREATE TABLE rates (
    key TEXT PRIMARY KEY,
    -- JSON: permits, per, burst.
    definition TEXT NOT NULL,
    -- JSON: what is left, and who waits for it. Each grant changes it.
    bucket TEXT NOT NULL
) STRICT, WITHOUT ROWID;
