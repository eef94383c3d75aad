-- Rates: how many permits of a key all services together may use.
CREATE TABLE rates (
    key text COLLATE "C" PRIMARY KEY,
    -- JSON: permits, per, burst.
    definition text NOT NULL,
    -- JSON: what is left, and who waits for it. Each grant changes it.
    bucket text NOT NULL
);
