-- The former versions of definitions. The present one is with its observer.
CREATE TABLE observer_versions (
    observer_id uuid NOT NULL REFERENCES observers (id) ON DELETE CASCADE,
    number bigint NOT NULL,
    -- When it became the definition, and the user whose request made it so.
    at bigint NOT NULL,
    by_user text,
    definition text NOT NULL,
    PRIMARY KEY (observer_id, number)
);
