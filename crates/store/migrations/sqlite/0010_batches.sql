-- Many observers that one request creates.
CREATE TABLE batches (
    id BLOB PRIMARY KEY NOT NULL,
    version INTEGER NOT NULL,
    name TEXT NOT NULL,
    state TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    -- NULL: it is not over.
    ended_at INTEGER,
    -- Whether managers must look at it.
    is_open INTEGER NOT NULL,
    -- When its request last stored members.
    touched_at INTEGER NOT NULL,
    document TEXT NOT NULL
) STRICT;
CREATE INDEX batches_by_name ON batches (name);

-- Members are observers; both columns stay as they were when the observer was created.
ALTER TABLE observer_states ADD COLUMN batch_id BLOB;
ALTER TABLE observer_states ADD COLUMN batch_place INTEGER;
CREATE UNIQUE INDEX observers_of_batch ON observer_states (batch_id, batch_place) WHERE batch_id IS NOT NULL;
CREATE INDEX observers_of_batch_by_status ON observer_states (batch_id, status) WHERE batch_id IS NOT NULL;
