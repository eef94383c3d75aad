-- Tokens and sessions: a digest of each secret, never the secret.
CREATE TABLE tokens (
    id text COLLATE "C" PRIMARY KEY,
    -- Null for a session.
    name text COLLATE "C",
    role text COLLATE "C" NOT NULL,
    -- When it stops being valid, in ms since 1970: expired or revoked.
    valid_until bigint NOT NULL,
    document text NOT NULL
);
CREATE INDEX tokens_by_name ON tokens (name, valid_until) WHERE name IS NOT NULL;
CREATE INDEX tokens_by_role ON tokens (role, valid_until);
CREATE INDEX tokens_until ON tokens (valid_until);

-- Roles that users have defined.
CREATE TABLE roles (
    name text COLLATE "C" PRIMARY KEY,
    document text NOT NULL
);

-- Each write of a token or a role changes the number: managers read them only then.
CREATE TABLE access_changes (
    number bigint NOT NULL,
    -- Whether a user has ever created a token: since then, requests need one.
    had_token boolean NOT NULL
);
INSERT INTO access_changes (number, had_token) VALUES (0, false);

-- Each request that changes something, written before it is carried out, with its outcome.
CREATE TABLE audit (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    at bigint NOT NULL,
    principal text COLLATE "C",
    -- The HTTP status. Null: the manager died before it answered.
    status integer,
    created text,
    document text NOT NULL
);
CREATE INDEX audit_by_principal ON audit (principal, id);
CREATE INDEX audit_by_time ON audit (at);
