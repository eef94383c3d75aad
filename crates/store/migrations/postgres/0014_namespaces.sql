-- Observers of earlier versions belong to the default namespace. Their `name_key` is their name; that of an observer of
-- another namespace is the namespace, a slash and the name.
ALTER TABLE observers ADD COLUMN namespace text COLLATE "C" NOT NULL DEFAULT 'default';
CREATE INDEX observers_by_namespace ON observers (namespace, name, id) WHERE namespace <> 'default';

-- The quotas and pools of namespaces.
CREATE TABLE namespaces (
    name text COLLATE "C" PRIMARY KEY,
    settings text NOT NULL,
    -- The creates that its quota has left.
    creates text NOT NULL
);
