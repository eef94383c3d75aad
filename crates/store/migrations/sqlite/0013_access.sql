-- Tokens and sessions: a digest of each secret, never the secret.
CREATE TABLE tokens (
    id TEXT PRIMARY KEY,
    -- Null for a session.
    name TEXT,
    role TEXT NOT NULL,
    -- When it stops being valid, in ms since 1970: expired or revoked.
    valid_until INTEGER NOT NULL,
    document TEXT NOT NULL
) STRICT, WITHOUT ROWID;
CREATE INDEX tokens_by_name ON tokens (name, valid_until) WHERE name IS NOT NULL;
CREATE INDEX tokens_by_role ON tokens (role, valid_until);
CREATE INDEX tokens_until ON tokens (valid_until);

-- Roles that users have defined.
CREATE TABLE roles (
    name TEXT PRIMARY KEY,
    document TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Each write of a token or a role changes the number: managers read them only then.
CREATE TABLE access_changes (
    number INTEGER NOT NULL,
    -- Whether a user has ever created a token: since then, requests need one.
    had_token INTEGER NOT NULL
) STRICT;
INSERT INTO access_changes (number, had_token) VALUES (0, 0);

-- Each request that changes something, written before it is carried out, with its outcome.
CREATE TABLE audit (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    at INTEGER NOT NULL,
    principal TEXT,
    -- The HTTP status. Null: the manager died before it answered.
    status INTEGER,
    created TEXT,
    document TEXT NOT NULL
) STRICT;
CREATE INDEX audit_by_principal ON audit (principal, id);
CREATE INDEX audit_by_time ON audit (at);
