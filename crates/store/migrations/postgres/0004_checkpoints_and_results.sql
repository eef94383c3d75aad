-- What the code of observers saves: a checkpoint, from which the next run continues, and the result of a completed
-- observer. Both are apart from the rows, so that lists and reports do not load them.
CREATE TABLE checkpoints (
    observer_id uuid PRIMARY KEY REFERENCES observers (id) ON DELETE CASCADE,
    -- The highest run that has requested the checkpoint: none of an earlier run is stored from then on.
    requested_by bigint NOT NULL,
    -- The run that saved the checkpoint, and its number in that run; NULL if there is none yet.
    epoch bigint,
    number bigint,
    value text
);

CREATE TABLE results (
    observer_id uuid PRIMARY KEY REFERENCES observers (id) ON DELETE CASCADE,
    epoch bigint NOT NULL,
    value text NOT NULL
);
