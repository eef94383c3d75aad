-- What the code of observers saves: a checkpoint, from which the next run continues, and the result of a completed
-- observer. Both are apart from the rows, so that lists and reports do not load them.
CREATE TABLE checkpoints (
    observer_id BLOB PRIMARY KEY NOT NULL REFERENCES observers (id) ON DELETE CASCADE,
    -- The highest run that has requested the checkpoint: none of an earlier run is stored from then on.
    requested_by INTEGER NOT NULL,
    -- The run that saved the checkpoint, and its number in that run; NULL if there is none yet.
    epoch INTEGER,
    number INTEGER,
    value TEXT
) STRICT;

CREATE TABLE results (
    observer_id BLOB PRIMARY KEY NOT NULL REFERENCES observers (id) ON DELETE CASCADE,
    epoch INTEGER NOT NULL,
    value TEXT NOT NULL
) STRICT;
