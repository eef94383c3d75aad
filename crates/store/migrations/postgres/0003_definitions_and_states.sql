-- The two halves of an observer are stored apart: its definition, which a user writes, and its state, which changes with
-- every report. Definitions stay text, not jsonb: jsonb refuses \u0000, which a spec or an error text may contain.

-- The definition of a document, or the document without it; a document that cannot be read stays as it is. The functions
-- of JSON refuse \u0000, so another escape stands for it meanwhile; documents contain no other escape of that kind.
CREATE FUNCTION pg_temp.part(document text, wanted boolean) RETURNS text LANGUAGE plpgsql AS $$
DECLARE
    whole json;
    part text;
BEGIN
    whole := replace(document, '\u0000', '\ue0f8')::json;
    IF wanted THEN
        part := (whole -> 'definition')::text;
    ELSE
        part := (SELECT json_object_agg(key, value)::text FROM json_each(whole)
            WHERE key NOT IN ('definition', 'id', 'version'));
    END IF;
    RETURN COALESCE(replace(part, '\ue0f8', '\u0000'), document);
EXCEPTION WHEN OTHERS THEN
    RETURN document;
END
$$;

-- A move writes one row of this table and of observers_held. Every other index covers few rows.
CREATE TABLE observer_states (
    id uuid PRIMARY KEY,
    version bigint NOT NULL,
    kind text NOT NULL,
    pool text NOT NULL,
    status text NOT NULL,
    service_id uuid,
    due_at bigint,
    commanded_at bigint,
    -- The part of the health that follows from the row alone: NULL if the observer is not meant to run.
    health text,
    steady_at bigint,
    -- The part of the reason that follows from the row alone: NULL if there is nothing to add to the status.
    reason_code text,
    -- The digest of the entry that the holder's inventory must contain; NULL if no service holds the observer, or if an
    -- older version has written the row. Managers compare the digests of a service with its inventory, without reading
    -- a row.
    digest bigint,
    -- All the rest, in MessagePack; in JSON if an older version has written it.
    state bytea NOT NULL
) WITH (fillfactor = 60);
INSERT INTO observer_states
        (id, version, kind, pool, status, service_id, due_at, commanded_at, health, steady_at, reason_code, state)
    SELECT id, version, kind, pool, status, service_id, due_at, commanded_at, health, steady_at, reason_code,
        convert_to(pg_temp.part(document, false), 'UTF8')
    FROM observers ORDER BY id;

DROP INDEX observers_due;
DROP INDEX observers_status;
DROP INDEX observers_commanded;
DROP INDEX observers_held;
DROP INDEX observers_counts;
DROP INDEX observers_refused;
DROP INDEX observers_ending;
ALTER TABLE observers ADD COLUMN definition text;
UPDATE observers SET definition = pg_temp.part(document, true);
ALTER TABLE observers ALTER COLUMN definition SET NOT NULL,
    DROP COLUMN version, DROP COLUMN status, DROP COLUMN service_id, DROP COLUMN generation, DROP COLUMN due_at,
    DROP COLUMN commanded_at, DROP COLUMN document, DROP COLUMN health, DROP COLUMN steady_at,
    DROP COLUMN reason_code;
ALTER TABLE observers SET (fillfactor = 90);

-- What a service holds: managers compare it with the inventory of the service, one range of ids at a time.
CREATE INDEX observers_held ON observer_states (service_id, id) INCLUDE (digest) WHERE service_id IS NOT NULL;
-- Observers that no service holds, although they are to run or to end.
CREATE INDEX observers_unheld ON observer_states (pool, id)
    WHERE service_id IS NULL AND status IN ('Created', 'Processing', 'OnDeleting');
CREATE INDEX observers_due ON observer_states (due_at) WHERE due_at IS NOT NULL;
CREATE INDEX observers_commanded ON observer_states (commanded_at) WHERE commanded_at IS NOT NULL;
CREATE INDEX observers_steady ON observer_states (steady_at) WHERE steady_at IS NOT NULL;
-- Managers look every second for observers that no service can run.
CREATE INDEX observers_refused ON observer_states (pool, kind, reason_code, id)
    WHERE reason_code IN ('refused', 'no-service-for-kind');
-- Observers that were told to end and have not, the oldest command first; messages that leave the queue are among them.
CREATE INDEX observers_ending ON observer_states (commanded_at, id)
    WHERE reason_code IN ('deleting', 'pausing', 'restart-requested', 'withdrawing');

-- The number of observers by what they are counted by; each transaction that changes states changes it. Each number is
-- the sum of several rows (`part`), so that concurrent transactions seldom wait for one another.
CREATE TABLE observer_counts (
    pool text NOT NULL,
    status text NOT NULL,
    -- Empty: none.
    health text NOT NULL,
    -- Zero: no service.
    service_id uuid NOT NULL,
    part smallint NOT NULL,
    number bigint NOT NULL,
    PRIMARY KEY (pool, status, health, service_id, part)
) WITH (fillfactor = 50);
INSERT INTO observer_counts (pool, status, health, service_id, part, number)
    SELECT pool, status, COALESCE(health, ''), COALESCE(service_id, '00000000-0000-0000-0000-000000000000'), 0,
        COUNT(*)
    FROM observer_states GROUP BY 1, 2, 3, 4;

-- Also for a row that an operator deletes.
CREATE FUNCTION everwatch_observers_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    DELETE FROM observer_states WHERE id IN (SELECT id FROM gone);
    RETURN NULL;
END
$$;
CREATE TRIGGER observers_deleted AFTER DELETE ON observers REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION everwatch_observers_deleted();
CREATE FUNCTION everwatch_observer_states_deleted() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO observer_counts AS c (pool, status, health, service_id, part, number)
        SELECT pool, status, COALESCE(health, ''),
            COALESCE(service_id, '00000000-0000-0000-0000-000000000000'), 0, -COUNT(*)
        FROM gone GROUP BY 1, 2, 3, 4 ORDER BY 1, 2, 3, 4
    ON CONFLICT (pool, status, health, service_id, part) DO UPDATE SET number = c.number + EXCLUDED.number;
    RETURN NULL;
END
$$;
CREATE TRIGGER observer_states_deleted AFTER DELETE ON observer_states REFERENCING OLD TABLE AS gone
    FOR EACH STATEMENT EXECUTE FUNCTION everwatch_observer_states_deleted();

-- Ids of observers whose rows were deleted: reports about them are answered without a row.
CREATE TABLE forgotten_observers (
    id uuid PRIMARY KEY,
    until bigint NOT NULL
);
INSERT INTO forgotten_observers (id, until)
    SELECT substr(name, 11)::uuid, until FROM key_value WHERE starts_with(name, 'forgotten/');
CREATE INDEX forgotten_until ON forgotten_observers (until);
DELETE FROM key_value WHERE starts_with(name, 'forgotten/');

-- Whether a summary stands for the event: such events are listed for their observer only, and counted apart.
ALTER TABLE events ADD COLUMN detail boolean NOT NULL DEFAULT false;
CREATE INDEX events_detail ON events (detail, id);
