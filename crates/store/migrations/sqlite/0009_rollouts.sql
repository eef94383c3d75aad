-- One patch for many observers, a few at a time.
CREATE TABLE rollouts (
    id BLOB PRIMARY KEY NOT NULL,
    version INTEGER NOT NULL,
    name TEXT NOT NULL,
    created_at INTEGER NOT NULL,
    -- NULL: it is not over, and no other rollout may take its members.
    ended_at INTEGER,
    document TEXT NOT NULL
) STRICT;
CREATE INDEX rollouts_by_name ON rollouts (name);

-- Members stay when their observers are deleted: a rollout shows what became of each.
CREATE TABLE rollout_members (
    rollout_id BLOB NOT NULL REFERENCES rollouts (id) ON DELETE CASCADE,
    place INTEGER NOT NULL,
    observer_id BLOB NOT NULL,
    state TEXT NOT NULL,
    document TEXT NOT NULL,
    PRIMARY KEY (rollout_id, place)
) STRICT, WITHOUT ROWID;
CREATE INDEX rollout_members_by_state ON rollout_members (rollout_id, state, place);
CREATE INDEX rollout_members_by_observer ON rollout_members (observer_id);
