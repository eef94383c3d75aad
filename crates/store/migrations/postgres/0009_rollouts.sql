-- One patch for many observers, a few at a time.
CREATE TABLE rollouts (
    id uuid PRIMARY KEY,
    version bigint NOT NULL,
    name text NOT NULL,
    created_at bigint NOT NULL,
    -- NULL: it is not over, and no other rollout may take its members.
    ended_at bigint,
    document text NOT NULL
);
CREATE INDEX rollouts_by_name ON rollouts (name);

-- Members stay when their observers are deleted: a rollout shows what became of each.
CREATE TABLE rollout_members (
    rollout_id uuid NOT NULL REFERENCES rollouts (id) ON DELETE CASCADE,
    place bigint NOT NULL,
    observer_id uuid NOT NULL,
    state text NOT NULL,
    document text NOT NULL,
    PRIMARY KEY (rollout_id, place)
);
CREATE INDEX rollout_members_by_state ON rollout_members (rollout_id, state, place);
CREATE INDEX rollout_members_by_observer ON rollout_members (observer_id);
