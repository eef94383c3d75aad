-- Many observers that one request creates.
CREATE TABLE batches (
    id uuid PRIMARY KEY,
    version bigint NOT NULL,
    name text COLLATE "C" NOT NULL,
    state text COLLATE "C" NOT NULL,
    created_at bigint NOT NULL,
    -- NULL: it is not over.
    ended_at bigint,
    -- Whether managers must look at it.
    is_open boolean NOT NULL,
    -- When its request last stored members.
    touched_at bigint NOT NULL,
    document text NOT NULL
);
CREATE INDEX batches_by_name ON batches (name);

-- Members are observers; both columns stay as they were when the observer was created.
ALTER TABLE observer_states ADD COLUMN batch_id uuid;
ALTER TABLE observer_states ADD COLUMN batch_place bigint;
CREATE UNIQUE INDEX observers_of_batch ON observer_states (batch_id, batch_place) WHERE batch_id IS NOT NULL;
CREATE INDEX observers_of_batch_by_status ON observer_states (batch_id, status) WHERE batch_id IS NOT NULL;
