SELECT pg_catalog.set_config('search_path', '', false);
CREATE FUNCTION public.everwatch_observer_states_deleted() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    INSERT INTO observer_counts AS c (pool, kind, status, health, slot, service_id, part, number, weight)
        SELECT pool, kind, status, COALESCE(health, ''), slot,
            COALESCE(service_id, '00000000-0000-0000-0000-000000000000'), 0, -COUNT(*), -SUM(weight)
        FROM gone GROUP BY 1, 2, 3, 4, 5, 6 ORDER BY 1, 2, 3, 4, 5, 6
    ON CONFLICT (pool, kind, status, health, slot, service_id, part)
        DO UPDATE SET number = c.number + EXCLUDED.number, weight = c.weight + EXCLUDED.weight;
    RETURN NULL;
END
$$;
CREATE FUNCTION public.everwatch_observers_deleted() RETURNS trigger
    LANGUAGE plpgsql
    AS $$
BEGIN
    DELETE FROM observer_states WHERE id IN (SELECT id FROM gone);
    RETURN NULL;
END
$$;
CREATE TABLE public._sqlx_migrations (
    version bigint NOT NULL,
    description text NOT NULL,
    installed_on timestamp with time zone DEFAULT now() NOT NULL,
    success boolean NOT NULL,
    checksum bytea NOT NULL,
    execution_time bigint NOT NULL
);
CREATE TABLE public.access_changes (
    number bigint NOT NULL,
    had_token boolean NOT NULL
);
CREATE TABLE public.audit (
    id bigint NOT NULL,
    at bigint NOT NULL,
    principal text COLLATE pg_catalog."C",
    status integer,
    created text,
    document text NOT NULL
);
ALTER TABLE public.audit ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.audit_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.batches (
    id uuid NOT NULL,
    version bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    state text NOT NULL COLLATE pg_catalog."C",
    created_at bigint NOT NULL,
    ended_at bigint,
    is_open boolean NOT NULL,
    touched_at bigint NOT NULL,
    document text NOT NULL
);
CREATE TABLE public.changed_limits (
    key text NOT NULL COLLATE pg_catalog."C",
    token bigint NOT NULL,
    looked_at bigint DEFAULT 0 NOT NULL
);
CREATE TABLE public.checkpoints (
    observer_id uuid NOT NULL,
    requested_by bigint NOT NULL,
    epoch bigint,
    number bigint,
    value text
);
CREATE TABLE public.events (
    id bigint NOT NULL,
    at bigint NOT NULL,
    type text NOT NULL,
    observer_id uuid,
    service_id uuid,
    document text NOT NULL,
    detail boolean DEFAULT false NOT NULL
);
ALTER TABLE public.events ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.events_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.forgotten_observers (
    id uuid NOT NULL,
    until bigint NOT NULL
);
CREATE TABLE public.key_value (
    name text NOT NULL COLLATE pg_catalog."C",
    value text NOT NULL,
    until bigint NOT NULL
);
CREATE TABLE public.limit_uses (
    key text NOT NULL COLLATE pg_catalog."C",
    observer_id uuid NOT NULL,
    how text NOT NULL COLLATE pg_catalog."C",
    pool text NOT NULL COLLATE pg_catalog."C",
    rank bigint
);
CREATE TABLE public.limits (
    key text NOT NULL COLLATE pg_catalog."C",
    max bigint NOT NULL,
    enforce boolean NOT NULL
);
CREATE TABLE public.namespaces (
    name text NOT NULL COLLATE pg_catalog."C",
    settings text NOT NULL,
    creates text NOT NULL
);
CREATE TABLE public.observer_counts (
    pool text NOT NULL,
    kind text NOT NULL,
    status text NOT NULL,
    health text NOT NULL,
    slot text NOT NULL,
    service_id uuid NOT NULL,
    part smallint NOT NULL,
    number bigint NOT NULL,
    weight bigint DEFAULT 0 NOT NULL
)
WITH (fillfactor='50');
CREATE TABLE public.observer_states (
    id uuid NOT NULL,
    version bigint NOT NULL,
    kind text NOT NULL,
    pool text NOT NULL,
    status text NOT NULL,
    service_id uuid,
    due_at bigint,
    commanded_at bigint,
    health text,
    steady_at bigint,
    reason_code text,
    digest bigint,
    state bytea NOT NULL,
    slot text DEFAULT ''::text NOT NULL,
    rank bigint,
    batch_id uuid,
    batch_place bigint,
    weight integer DEFAULT 1 NOT NULL,
    preemption_rank bigint
)
WITH (fillfactor='60');
CREATE TABLE public.observer_versions (
    observer_id uuid NOT NULL,
    number bigint NOT NULL,
    at bigint NOT NULL,
    by_user text,
    definition text NOT NULL
);
CREATE TABLE public.observers (
    id uuid NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    name_key text COLLATE pg_catalog."C",
    kind text NOT NULL,
    pool text NOT NULL,
    created_at bigint NOT NULL,
    labels jsonb NOT NULL,
    definition text NOT NULL,
    namespace text DEFAULT 'default'::text NOT NULL COLLATE pg_catalog."C"
)
WITH (fillfactor='90');
CREATE TABLE public.parked (
    id bigint NOT NULL,
    queue text NOT NULL,
    reason text NOT NULL,
    body bytea NOT NULL,
    at bigint NOT NULL
);
ALTER TABLE public.parked ALTER COLUMN id ADD GENERATED ALWAYS AS IDENTITY (
    SEQUENCE NAME public.parked_id_seq
    START WITH 1
    INCREMENT BY 1
    NO MINVALUE
    NO MAXVALUE
    CACHE 1
);
CREATE TABLE public.rates (
    key text NOT NULL COLLATE pg_catalog."C",
    definition text NOT NULL,
    bucket text NOT NULL
);
CREATE TABLE public.results (
    observer_id uuid NOT NULL,
    epoch bigint NOT NULL,
    value text NOT NULL
);
CREATE TABLE public.roles (
    name text NOT NULL COLLATE pg_catalog."C",
    document text NOT NULL
);
CREATE TABLE public.rollout_members (
    rollout_id uuid NOT NULL,
    place bigint NOT NULL,
    observer_id uuid NOT NULL,
    state text NOT NULL,
    document text NOT NULL
);
CREATE TABLE public.rollouts (
    id uuid NOT NULL,
    version bigint NOT NULL,
    name text NOT NULL,
    created_at bigint NOT NULL,
    ended_at bigint,
    document text NOT NULL
);
CREATE TABLE public.services (
    id uuid NOT NULL,
    version bigint NOT NULL,
    name text NOT NULL COLLATE pg_catalog."C",
    pool text NOT NULL,
    capacity bigint NOT NULL,
    state text NOT NULL,
    registered_at bigint NOT NULL,
    ended_at bigint,
    document text NOT NULL,
    weight_max bigint DEFAULT 1 NOT NULL
)
WITH (fillfactor='70');
CREATE TABLE public.tokens (
    id text NOT NULL COLLATE pg_catalog."C",
    name text COLLATE pg_catalog."C",
    role text NOT NULL COLLATE pg_catalog."C",
    valid_until bigint NOT NULL,
    document text NOT NULL
);
INSERT INTO public._sqlx_migrations VALUES (1, 'observers and services', '2026-11-27 08:54:03.849013+00', true, '\x6750c95fc4501ae6cf470be995f39db383872eca2e11484c8ffddb99cc7f5ec171965d7736f4b118322b6d5242940692', 13038928);
INSERT INTO public._sqlx_migrations VALUES (2, 'key value and events', '2026-11-27 08:54:03.862768+00', true, '\xf3896c82d3502a88e9edfc64b2788f700b6bb1d09a08a4b184f409ee64f38546ef7b325d3be1a3f211895868cd637c99', 4023939);
INSERT INTO public._sqlx_migrations VALUES (3, 'definitions and states', '2026-11-27 08:54:03.866894+00', true, '\xaa9576847cf68c2f1ee0bc826e78f3975f9928058d6df89d0c61805d301f8bb54a3ca9505fac02bc59e7cc56af9d3497', 11142452);
INSERT INTO public._sqlx_migrations VALUES (4, 'checkpoints and results', '2026-11-27 08:54:03.878675+00', true, '\x9ea348400961d673c628b8eaee6baceb2092e8bf49c7024c486cafa166c6c0b036074267ae63bd3b08b6f38068d28661', 3304950);
INSERT INTO public._sqlx_migrations VALUES (5, 'backlog', '2026-11-27 08:54:03.882203+00', true, '\x3e5dd21bf19810d58faa09982fcb793f9d41a530d6f1d989e8aeda0dc2ef1350c9a434ac8fecd9ec3ca4c1cbbeb76e61', 4654475);
INSERT INTO public._sqlx_migrations VALUES (6, 'versions', '2026-11-27 08:54:03.88724+00', true, '\x46c0a324388bd38978b88018dda41a9ba0d672f1ecf657f537ed9c46602e777e018217105c856a4c3b8bfb3397b77043', 1627548);
INSERT INTO public._sqlx_migrations VALUES (7, 'limits', '2026-11-27 08:54:03.889007+00', true, '\xcdd5d22225105b353966f2382a8c5a89fd804c3a22d831f9ff848aeb36ee488b627ee71e26d7269b71718ff37b71b986', 3316187);
INSERT INTO public._sqlx_migrations VALUES (8, 'rates', '2026-11-27 08:54:03.892499+00', true, '\x7245d42ff13be97eee8e36e54d2b784790994920c28666887e6434053e8e16a75445e1003b8cce61b62786a3ccf2b70a', 1889596);
INSERT INTO public._sqlx_migrations VALUES (9, 'rollouts', '2026-11-27 08:54:03.894629+00', true, '\x3cd3a5df335f0a4c2d75509c7d8f9eaa408d523193be462de72c4769058abfe767190a537bc45396f7f154e7608e17c7', 2623327);
INSERT INTO public._sqlx_migrations VALUES (10, 'batches', '2026-11-27 08:54:03.897567+00', true, '\xb5bd9ee5aaf3565834fde4d0f180b58a69ba8a7ab9d7b990e0bb5320c53ecfc22f74f23754c66002456e741a8a5adebe', 2057047);
INSERT INTO public._sqlx_migrations VALUES (11, 'weights', '2026-11-27 08:54:03.899949+00', true, '\x4d5f56c89c01efa150d671f79358e8ccd7e9f72917596bf360da811d56cb56412b7ce1bb57b53b37a23c5837668cc7e0', 2104448);
INSERT INTO public._sqlx_migrations VALUES (12, 'preemption', '2026-11-27 08:54:03.90218+00', true, '\xd8c4646a7706a07cf085e63b3c00ab51e5f1a3a053528e5cd5de52983cc98f465121c8ebcde4a553834009d1d14af8f9', 1231509);
INSERT INTO public._sqlx_migrations VALUES (13, 'access', '2026-11-27 08:54:03.903523+00', true, '\xbfcfddf83f2a7797bd9b791a7a4175fd5fe6111804f95d92c0a22616cdb40a2709e8415bf78899aed32b15027c38417b', 4045071);
INSERT INTO public._sqlx_migrations VALUES (14, 'namespaces', '2026-11-27 08:54:03.90772+00', true, '\x15f8e7758cc057791395096cb1c108d186e26f609a2295b8b3bd82255995f21b9bdbfb186f2695a390a1bc59ce66f071', 1601614);
INSERT INTO public.access_changes VALUES (0, false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (1, 1795769644677, 'work_queue_created', NULL, NULL, '{"at":"2026-11-27T08:54:04.677Z","kind":"work_queue_created","observer":null,"service":null,"epoch":null,"text":"pool default"}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (2, 1795769644946, 'service_registered', NULL, '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', '{"at":"2026-11-27T08:54:04.946Z","kind":"service_registered","observer":null,"service":{"id":"381a00a0-4d40-4ad0-a514-60bb8cec5e8e","name":"a"},"epoch":null,"text":""}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (3, 1795769644999, 'limit_set', NULL, NULL, '{"at":"2026-11-27T08:54:04.999Z","kind":"limit_set","observer":null,"service":null,"epoch":null,"text":"account: at most 1","by":{"from":"127.0.0.1"}}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (4, 1795769645036, 'created', '01a21c36-37dc-708c-998f-e67040930000', NULL, '{"at":"2026-11-27T08:54:05.036Z","kind":"created","observer":{"id":"01a21c36-37dc-708c-998f-e67040930000","name":"plain"},"service":null,"epoch":4294967296,"text":"kind ticker in pool default","by":{"from":"127.0.0.1"}}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (5, 1795769645052, 'started', '01a21c36-37dc-708c-998f-e67040930000', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', '{"at":"2026-11-27T08:54:05.052Z","kind":"started","observer":{"id":"01a21c36-37dc-708c-998f-e67040930000","name":"plain"},"service":{"id":"381a00a0-4d40-4ad0-a514-60bb8cec5e8e","name":"a"},"epoch":4294967296,"text":"attempt 1"}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (6, 1795769645084, 'created', '01a21c36-381b-76b1-a676-62bd622e0000', NULL, '{"at":"2026-11-27T08:54:05.084Z","kind":"created","observer":{"id":"01a21c36-381b-76b1-a676-62bd622e0000","name":"labelled"},"service":null,"epoch":4294967296,"text":"kind ticker in pool default","by":{"from":"127.0.0.1"}}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (7, 1795769645098, 'started', '01a21c36-381b-76b1-a676-62bd622e0000', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', '{"at":"2026-11-27T08:54:05.098Z","kind":"started","observer":{"id":"01a21c36-381b-76b1-a676-62bd622e0000","name":"labelled"},"service":{"id":"381a00a0-4d40-4ad0-a514-60bb8cec5e8e","name":"a"},"epoch":4294967296,"text":"attempt 1"}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (8, 1795769645126, 'created', '01a21c36-3844-7723-a578-550a442d0000', NULL, '{"at":"2026-11-27T08:54:05.126Z","kind":"created","observer":{"id":"01a21c36-3844-7723-a578-550a442d0000","name":"patient"},"service":null,"epoch":4294967296,"text":"kind exec in pool default","by":{"from":"127.0.0.1"}}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (9, 1795769645131, 'started', '01a21c36-3844-7723-a578-550a442d0000', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', '{"at":"2026-11-27T08:54:05.131Z","kind":"started","observer":{"id":"01a21c36-3844-7723-a578-550a442d0000","name":"patient"},"service":{"id":"381a00a0-4d40-4ad0-a514-60bb8cec5e8e","name":"a"},"epoch":4294967296,"text":"attempt 1"}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (10, 1795769645170, 'created', '01a21c36-3871-7525-8dc8-9e7053940000', NULL, '{"at":"2026-11-27T08:54:05.170Z","kind":"created","observer":{"id":"01a21c36-3871-7525-8dc8-9e7053940000","name":"open"},"service":null,"epoch":4294967296,"text":"kind ticker in pool default","by":{"from":"127.0.0.1"}}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (11, 1795769645188, 'started', '01a21c36-3871-7525-8dc8-9e7053940000', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', '{"at":"2026-11-27T08:54:05.188Z","kind":"started","observer":{"id":"01a21c36-3871-7525-8dc8-9e7053940000","name":"open"},"service":{"id":"381a00a0-4d40-4ad0-a514-60bb8cec5e8e","name":"a"},"epoch":4294967296,"text":"attempt 1"}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (12, 1795769645218, 'created', '01a21c36-38a2-7329-873e-9e4627930000', NULL, '{"at":"2026-11-27T08:54:05.218Z","kind":"created","observer":{"id":"01a21c36-38a2-7329-873e-9e4627930000","name":"heavy"},"service":null,"epoch":4294967296,"text":"kind ticker in pool default","by":{"from":"127.0.0.1"}}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (13, 1795769645226, 'started', '01a21c36-38a2-7329-873e-9e4627930000', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', '{"at":"2026-11-27T08:54:05.226Z","kind":"started","observer":{"id":"01a21c36-38a2-7329-873e-9e4627930000","name":"heavy"},"service":{"id":"381a00a0-4d40-4ad0-a514-60bb8cec5e8e","name":"a"},"epoch":4294967296,"text":"attempt 1"}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (14, 1795769645256, 'created', '01a21c36-38c6-7456-9c8c-b427fd070000', NULL, '{"at":"2026-11-27T08:54:05.256Z","kind":"created","observer":{"id":"01a21c36-38c6-7456-9c8c-b427fd070000","name":"one"},"service":null,"epoch":0,"text":"kind ticker in pool default","by":{"from":"127.0.0.1"}}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (15, 1795769645256, 'waiting', '01a21c36-38c6-7456-9c8c-b427fd070000', NULL, '{"at":"2026-11-27T08:54:05.256Z","kind":"waiting","observer":{"id":"01a21c36-38c6-7456-9c8c-b427fd070000","name":"one"},"service":null,"epoch":0,"text":"for a slot in pool default","by":{"from":"127.0.0.1"}}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (16, 1795769645278, 'admitted', '01a21c36-38c6-7456-9c8c-b427fd070000', NULL, '{"at":"2026-11-27T08:54:05.278Z","kind":"admitted","observer":{"id":"01a21c36-38c6-7456-9c8c-b427fd070000","name":"one"},"service":null,"epoch":4294967296,"text":"waited 0s"}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (17, 1795769645284, 'started', '01a21c36-38c6-7456-9c8c-b427fd070000', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', '{"at":"2026-11-27T08:54:05.284Z","kind":"started","observer":{"id":"01a21c36-38c6-7456-9c8c-b427fd070000","name":"one"},"service":{"id":"381a00a0-4d40-4ad0-a514-60bb8cec5e8e","name":"a"},"epoch":4294967296,"text":"attempt 1"}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (18, 1795769645325, 'created', '01a21c36-390d-7258-a127-b838b8790000', NULL, '{"at":"2026-11-27T08:54:05.325Z","kind":"created","observer":{"id":"01a21c36-390d-7258-a127-b838b8790000","name":"plain"},"service":null,"epoch":0,"text":"kind ticker in pool default","by":{"from":"127.0.0.1"}}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (19, 1795769645325, 'waiting', '01a21c36-390d-7258-a127-b838b8790000', NULL, '{"at":"2026-11-27T08:54:05.325Z","kind":"waiting","observer":{"id":"01a21c36-390d-7258-a127-b838b8790000","name":"plain"},"service":null,"epoch":0,"text":"for a slot in pool default","by":{"from":"127.0.0.1"}}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (20, 1795769645351, 'admitted', '01a21c36-390d-7258-a127-b838b8790000', NULL, '{"at":"2026-11-27T08:54:05.351Z","kind":"admitted","observer":{"id":"01a21c36-390d-7258-a127-b838b8790000","name":"plain"},"service":null,"epoch":4294967296,"text":"waited 0s"}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (21, 1795769645360, 'started', '01a21c36-390d-7258-a127-b838b8790000', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', '{"at":"2026-11-27T08:54:05.360Z","kind":"started","observer":{"id":"01a21c36-390d-7258-a127-b838b8790000","name":"plain"},"service":{"id":"381a00a0-4d40-4ad0-a514-60bb8cec5e8e","name":"a"},"epoch":4294967296,"text":"attempt 1"}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (22, 1795769645399, 'created', '01a21c36-3951-76b3-bbe9-c6360e3f0000', NULL, '{"at":"2026-11-27T08:54:05.399Z","kind":"created","observer":{"id":"01a21c36-3951-76b3-bbe9-c6360e3f0000","name":"two"},"service":null,"epoch":0,"text":"kind ticker in pool default","by":{"from":"127.0.0.1"}}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (23, 1795769645399, 'waiting', '01a21c36-3951-76b3-bbe9-c6360e3f0000', NULL, '{"at":"2026-11-27T08:54:05.399Z","kind":"waiting","observer":{"id":"01a21c36-3951-76b3-bbe9-c6360e3f0000","name":"two"},"service":null,"epoch":0,"text":"for a slot in pool default","by":{"from":"127.0.0.1"}}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (24, 1795769645419, 'created', '01a21c36-396b-73fd-85b3-37c72bdb0000', NULL, '{"at":"2026-11-27T08:54:05.419Z","kind":"created","observer":{"id":"01a21c36-396b-73fd-85b3-37c72bdb0000","name":"paused"},"service":null,"epoch":0,"text":"kind ticker in pool default","by":{"from":"127.0.0.1"}}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (25, 1795769645425, 'waiting', '01a21c36-3951-76b3-bbe9-c6360e3f0000', NULL, '{"at":"2026-11-27T08:54:05.425Z","kind":"waiting","observer":{"id":"01a21c36-3951-76b3-bbe9-c6360e3f0000","name":"two"},"service":null,"epoch":0,"text":"for a place of limit account"}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (26, 1795769645428, 'created', '01a21c36-3973-7188-bd9a-11923c6e0000', NULL, '{"at":"2026-11-27T08:54:05.428Z","kind":"created","observer":{"id":"01a21c36-3973-7188-bd9a-11923c6e0000","name":"nightly"},"service":null,"epoch":0,"text":"kind ticker in pool default","by":{"from":"127.0.0.1"}}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (27, 1795769645437, 'created', '01a21c36-397c-77fb-bc94-0fd7ec2d0000', NULL, '{"at":"2026-11-27T08:54:05.437Z","kind":"created","observer":{"id":"01a21c36-397c-77fb-bc94-0fd7ec2d0000","name":"done"},"service":null,"epoch":4294967296,"text":"kind exec in pool default","by":{"from":"127.0.0.1"}}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (28, 1795769645443, 'started', '01a21c36-397c-77fb-bc94-0fd7ec2d0000', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', '{"at":"2026-11-27T08:54:05.443Z","kind":"started","observer":{"id":"01a21c36-397c-77fb-bc94-0fd7ec2d0000","name":"done"},"service":{"id":"381a00a0-4d40-4ad0-a514-60bb8cec5e8e","name":"a"},"epoch":4294967296,"text":"attempt 1"}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (29, 1795769645460, 'completed', '01a21c36-397c-77fb-bc94-0fd7ec2d0000', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', '{"at":"2026-11-27T08:54:05.460Z","kind":"completed","observer":{"id":"01a21c36-397c-77fb-bc94-0fd7ec2d0000","name":"done"},"service":{"id":"381a00a0-4d40-4ad0-a514-60bb8cec5e8e","name":"a"},"epoch":4294967296,"text":""}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (30, 1795769645497, 'created', '01a21c36-39b8-75d8-ae53-f0fbc75f0000', NULL, '{"at":"2026-11-27T08:54:05.497Z","kind":"created","observer":{"id":"01a21c36-39b8-75d8-ae53-f0fbc75f0000","name":"wrong"},"service":null,"epoch":4294967296,"text":"kind exec in pool default","by":{"from":"127.0.0.1"}}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (31, 1795769645504, 'started', '01a21c36-39b8-75d8-ae53-f0fbc75f0000', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', '{"at":"2026-11-27T08:54:05.504Z","kind":"started","observer":{"id":"01a21c36-39b8-75d8-ae53-f0fbc75f0000","name":"wrong"},"service":{"id":"381a00a0-4d40-4ad0-a514-60bb8cec5e8e","name":"a"},"epoch":4294967296,"text":"attempt 1"}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (32, 1795769645517, 'failed', '01a21c36-39b8-75d8-ae53-f0fbc75f0000', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', '{"at":"2026-11-27T08:54:05.517Z","kind":"failed","observer":{"id":"01a21c36-39b8-75d8-ae53-f0fbc75f0000","name":"wrong"},"service":{"id":"381a00a0-4d40-4ad0-a514-60bb8cec5e8e","name":"a"},"epoch":4294967296,"text":"exited with code 1"}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (33, 1795769645548, 'service_gone', NULL, '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', '{"at":"2026-11-27T08:54:05.548Z","kind":"service_gone","observer":null,"service":{"id":"381a00a0-4d40-4ad0-a514-60bb8cec5e8e","name":"a"},"epoch":null,"text":"it unregistered"}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (34, 1795769645535, 'handed_over', '01a21c36-37dc-708c-998f-e67040930000', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', '{"at":"2026-11-27T08:54:05.535Z","kind":"handed_over","observer":{"id":"01a21c36-37dc-708c-998f-e67040930000","name":"plain"},"service":{"id":"381a00a0-4d40-4ad0-a514-60bb8cec5e8e","name":"a"},"epoch":4294967296,"text":""}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (35, 1795769645535, 'handed_over', '01a21c36-381b-76b1-a676-62bd622e0000', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', '{"at":"2026-11-27T08:54:05.535Z","kind":"handed_over","observer":{"id":"01a21c36-381b-76b1-a676-62bd622e0000","name":"labelled"},"service":{"id":"381a00a0-4d40-4ad0-a514-60bb8cec5e8e","name":"a"},"epoch":4294967296,"text":""}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (36, 1795769645539, 'handed_over', '01a21c36-3844-7723-a578-550a442d0000', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', '{"at":"2026-11-27T08:54:05.539Z","kind":"handed_over","observer":{"id":"01a21c36-3844-7723-a578-550a442d0000","name":"patient"},"service":{"id":"381a00a0-4d40-4ad0-a514-60bb8cec5e8e","name":"a"},"epoch":4294967296,"text":""}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (37, 1795769645538, 'handed_over', '01a21c36-3871-7525-8dc8-9e7053940000', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', '{"at":"2026-11-27T08:54:05.538Z","kind":"handed_over","observer":{"id":"01a21c36-3871-7525-8dc8-9e7053940000","name":"open"},"service":{"id":"381a00a0-4d40-4ad0-a514-60bb8cec5e8e","name":"a"},"epoch":4294967296,"text":""}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (38, 1795769645538, 'handed_over', '01a21c36-38a2-7329-873e-9e4627930000', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', '{"at":"2026-11-27T08:54:05.538Z","kind":"handed_over","observer":{"id":"01a21c36-38a2-7329-873e-9e4627930000","name":"heavy"},"service":{"id":"381a00a0-4d40-4ad0-a514-60bb8cec5e8e","name":"a"},"epoch":4294967296,"text":""}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (39, 1795769645538, 'handed_over', '01a21c36-38c6-7456-9c8c-b427fd070000', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', '{"at":"2026-11-27T08:54:05.538Z","kind":"handed_over","observer":{"id":"01a21c36-38c6-7456-9c8c-b427fd070000","name":"one"},"service":{"id":"381a00a0-4d40-4ad0-a514-60bb8cec5e8e","name":"a"},"epoch":4294967296,"text":""}', false);
INSERT INTO public.events OVERRIDING SYSTEM VALUE VALUES (40, 1795769645539, 'handed_over', '01a21c36-390d-7258-a127-b838b8790000', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', '{"at":"2026-11-27T08:54:05.539Z","kind":"handed_over","observer":{"id":"01a21c36-390d-7258-a127-b838b8790000","name":"plain"},"service":{"id":"381a00a0-4d40-4ad0-a514-60bb8cec5e8e","name":"a"},"epoch":4294967296,"text":""}', false);
INSERT INTO public.key_value VALUES ('identity', 'c2536f06-9c30-4aa3-b524-4804262aa665', 9000000000000000000);
INSERT INTO public.key_value VALUES ('queue/default', '1795769643677', 1795773244680);
INSERT INTO public.limit_uses VALUES ('account', '01a21c36-38c6-7456-9c8c-b427fd070000', 'used', 'default', NULL);
INSERT INTO public.limit_uses VALUES ('namespace:team', '01a21c36-390d-7258-a127-b838b8790000', 'used', 'default', NULL);
INSERT INTO public.limit_uses VALUES ('account', '01a21c36-3951-76b3-bbe9-c6360e3f0000', 'behind', 'default', 900721721243744599);
INSERT INTO public.limits VALUES ('account', 1, false);
INSERT INTO public.limits VALUES ('namespace:team', 1000000, false);
INSERT INTO public.namespaces VALUES ('team', '{"quotas":{"observers":9}}', '{"used":0,"at":"2026-11-27T08:54:05.011Z"}');
INSERT INTO public.observer_counts VALUES ('default', 'ticker', 'Created', 'waiting', 'admitted', '00000000-0000-0000-0000-000000000000', 2, 1, 1);
INSERT INTO public.observer_counts VALUES ('default', 'ticker', 'Processing', 'running', 'admitted', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', 3, 1, 1);
INSERT INTO public.observer_counts VALUES ('default', 'ticker', 'Created', 'waiting', 'admitted', '00000000-0000-0000-0000-000000000000', 0, 2, 4);
INSERT INTO public.observer_counts VALUES ('default', 'ticker', 'Created', 'waiting', 'admitted', '00000000-0000-0000-0000-000000000000', 1, -2, -4);
INSERT INTO public.observer_counts VALUES ('default', 'ticker', 'Processing', 'running', 'admitted', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', 1, 2, 4);
INSERT INTO public.observer_counts VALUES ('default', 'ticker', 'Created', 'waiting', 'admitted', '00000000-0000-0000-0000-000000000000', 3, 0, 0);
INSERT INTO public.observer_counts VALUES ('default', 'ticker', 'Created', 'waiting', 'waiting', '00000000-0000-0000-0000-000000000000', 3, -1, -1);
INSERT INTO public.observer_counts VALUES ('default', 'ticker', 'Created', 'waiting', 'admitted', '00000000-0000-0000-0000-000000000000', 4, -1, -1);
INSERT INTO public.observer_counts VALUES ('default', 'ticker', 'Processing', 'running', 'admitted', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', 4, 1, 1);
INSERT INTO public.observer_counts VALUES ('default', 'ticker', 'Created', 'waiting', 'waiting', '00000000-0000-0000-0000-000000000000', 5, 1, 1);
INSERT INTO public.observer_counts VALUES ('default', 'ticker', 'Created', 'waiting', 'admitted', '00000000-0000-0000-0000-000000000000', 6, 2, 2);
INSERT INTO public.observer_counts VALUES ('default', 'ticker', 'Created', 'waiting', 'waiting', '00000000-0000-0000-0000-000000000000', 6, -1, -1);
INSERT INTO public.observer_counts VALUES ('default', 'ticker', 'Created', 'waiting', 'admitted', '00000000-0000-0000-0000-000000000000', 7, -2, -2);
INSERT INTO public.observer_counts VALUES ('default', 'ticker', 'Processing', 'running', 'admitted', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', 7, 2, 2);
INSERT INTO public.observer_counts VALUES ('default', 'ticker', 'Created', 'waiting', 'waiting', '00000000-0000-0000-0000-000000000000', 0, 1, 1);
INSERT INTO public.observer_counts VALUES ('default', 'ticker', 'Paused', '', '', '00000000-0000-0000-0000-000000000000', 1, 1, 1);
INSERT INTO public.observer_counts VALUES ('default', 'ticker', 'Created', 'waiting', '', '00000000-0000-0000-0000-000000000000', 2, 1, 1);
INSERT INTO public.observer_counts VALUES ('default', 'ticker', 'Created', 'waiting', 'waiting', '00000000-0000-0000-0000-000000000000', 2, 0, 0);
INSERT INTO public.observer_counts VALUES ('default', 'ticker', 'Paused', '', '', '00000000-0000-0000-0000-000000000000', 3, 1, 1);
INSERT INTO public.observer_counts VALUES ('default', 'exec', 'Created', 'waiting', 'admitted', '00000000-0000-0000-0000-000000000000', 4, 2, 2);
INSERT INTO public.observer_counts VALUES ('default', 'exec', 'Created', 'waiting', 'admitted', '00000000-0000-0000-0000-000000000000', 5, -2, -2);
INSERT INTO public.observer_counts VALUES ('default', 'exec', 'Processing', 'running', 'admitted', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', 5, 2, 2);
INSERT INTO public.observer_counts VALUES ('default', 'exec', 'Completed', '', '', '00000000-0000-0000-0000-000000000000', 6, 1, 1);
INSERT INTO public.observer_counts VALUES ('default', 'exec', 'Processing', 'running', 'admitted', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', 6, -1, -1);
INSERT INTO public.observer_counts VALUES ('default', 'exec', 'Created', 'waiting', 'admitted', '00000000-0000-0000-0000-000000000000', 7, 1, 1);
INSERT INTO public.observer_counts VALUES ('default', 'exec', 'Created', 'waiting', 'admitted', '00000000-0000-0000-0000-000000000000', 0, -1, -1);
INSERT INTO public.observer_counts VALUES ('default', 'exec', 'Processing', 'running', 'admitted', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', 0, 1, 1);
INSERT INTO public.observer_counts VALUES ('default', 'exec', 'Failed', '', '', '00000000-0000-0000-0000-000000000000', 1, 1, 1);
INSERT INTO public.observer_counts VALUES ('default', 'exec', 'Processing', 'running', 'admitted', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', 1, -1, -1);
INSERT INTO public.observer_counts VALUES ('default', 'exec', 'Processing', 'moving', 'admitted', '00000000-0000-0000-0000-000000000000', 2, 1, 1);
INSERT INTO public.observer_counts VALUES ('default', 'exec', 'Processing', 'running', 'admitted', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', 2, -1, -1);
INSERT INTO public.observer_counts VALUES ('default', 'ticker', 'Processing', 'moving', 'admitted', '00000000-0000-0000-0000-000000000000', 2, 6, 8);
INSERT INTO public.observer_counts VALUES ('default', 'ticker', 'Processing', 'running', 'admitted', '381a00a0-4d40-4ad0-a514-60bb8cec5e8e', 2, -6, -8);
INSERT INTO public.observer_states VALUES ('01a21c36-396b-73fd-85b3-37c72bdb0000', 1, 'ticker', 'default', 'Paused', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '\x86a764657369726564a6706175736564aa67656e65726174696f6e00a86f627365727665649c90c2c0c0c0c09090c0c0c0c0a5747261636581ab7472616365706172656e74d93730302d62373937366136386165613039306430623533306130363732313064376461632d386337643262653036643333303732622d3030aa637265617465645f6174cf000001a21c36396bab6d6f6469666965645f6174cf000001a21c36396b', '', NULL, NULL, NULL, 1, NULL);
INSERT INTO public.observer_states VALUES ('01a21c36-3951-76b3-bbe9-c6360e3f0000', 2, 'ticker', 'default', 'Created', NULL, NULL, NULL, 'waiting', NULL, 'limit-reached', NULL, '\x88a764657369726564a772756e6e696e67aa67656e65726174696f6e00a777616974696e6781a573696e6365cf000001a21c363957a6626568696e64a76163636f756e74a86f627365727665649c90c2c0c0c0c09090c0c0c0c0a5747261636581ab7472616365706172656e74d93730302d66626266303333396661363466383863663730623564343031363630353035622d383639666565623031396131656638322d3030aa637265617465645f6174cf000001a21c363957ab6d6f6469666965645f6174cf000001a21c363971', '', NULL, NULL, NULL, 1, NULL);
INSERT INTO public.observer_states VALUES ('01a21c36-37dc-708c-998f-e67040930000', 3, 'ticker', 'default', 'Processing', NULL, NULL, NULL, 'moving', NULL, 'handed-over', NULL, '\x87a764657369726564a772756e6e696e67aa67656e65726174696f6e01ac7075626c69736865645f6174cf000001a21c363809a86f627365727665649c91c410381a00a04d404ad0a51460bb8cec5e8ec3c09492001000cf000001a21c3639dfab68616e6465645f6f7665729492001000cf000001a21c3639dfc3c09195000092920002cf000001a21c3637fcc39292001092cf000001a21c3639dfc090c0c0929200029201cf000001a21c3637fcc0a5747261636581ab7472616365706172656e74d93730302d33323634346632656535393232333532303231343331383162353237623631612d666663313733366132336363346431662d3030aa637265617465645f6174cf000001a21c3637ecab6d6f6469666965645f6174cf000001a21c3639ef', 'admitted', NULL, NULL, NULL, 1, 895405718620163);
INSERT INTO public.observer_states VALUES ('01a21c36-381b-76b1-a676-62bd622e0000', 3, 'ticker', 'default', 'Processing', NULL, NULL, NULL, 'moving', NULL, 'handed-over', NULL, '\x87a764657369726564a772756e6e696e67aa67656e65726174696f6e01ac7075626c69736865645f6174cf000001a21c363834a86f627365727665649c91c410381a00a04d404ad0a51460bb8cec5e8ec3c09492001100cf000001a21c3639dfab68616e6465645f6f7665729492001100cf000001a21c3639dfc3c09195000092920003cf000001a21c36382ac39292001192cf000001a21c3639dfc090c0c0929200039201cf000001a21c36382ac0a5747261636581ab7472616365706172656e74d93730302d63376334633966303137343164306330393463663230383163346537663831382d336236373161303838323730363663622d3030aa637265617465645f6174cf000001a21c36381cab6d6f6469666965645f6174cf000001a21c3639f0', 'admitted', NULL, NULL, NULL, 1, 895405718620117);
INSERT INTO public.observer_states VALUES ('01a21c36-3844-7723-a578-550a442d0000', 3, 'exec', 'default', 'Processing', NULL, NULL, NULL, 'moving', NULL, 'handed-over', NULL, '\x87a764657369726564a772756e6e696e67aa67656e65726174696f6e01ac7075626c69736865645f6174cf000001a21c363859a86f627365727665649c91c410381a00a04d404ad0a51460bb8cec5e8ec3c09492001600cf000001a21c3639e3ab68616e6465645f6f7665729492001600cf000001a21c3639e3c3c09195000092920005cf000001a21c36384bc39292001692cf000001a21c3639e3c090c0c0929200059201cf000001a21c36384bc0a5747261636581ab7472616365706172656e74d93730302d61623038383731636639333464336565303266356538636565316637313663362d623830373963396135653832356465622d3030aa637265617465645f6174cf000001a21c363846ab6d6f6469666965645f6174cf000001a21c3639f0', 'admitted', NULL, NULL, NULL, 1, 956978369775540);
INSERT INTO public.observer_states VALUES ('01a21c36-3871-7525-8dc8-9e7053940000', 3, 'ticker', 'default', 'Processing', NULL, NULL, NULL, 'moving', NULL, 'handed-over', NULL, '\x87a764657369726564a772756e6e696e67aa67656e65726174696f6e01ac7075626c69736865645f6174cf000001a21c36388ea86f627365727665649c91c410381a00a04d404ad0a51460bb8cec5e8ec3c09492001200cf000001a21c3639e2ab68616e6465645f6f7665729492001200cf000001a21c3639e2c3c09195000092920006cf000001a21c363884c39292001292cf000001a21c3639e2c090c0c0929200069201cf000001a21c363884c0a5747261636581ab7472616365706172656e74d93730302d66383762353639356632666366623461656362633738613238613764313530642d636363316235393565656462333634662d3030aa637265617465645f6174cf000001a21c363872ab6d6f6469666965645f6174cf000001a21c3639f0', 'admitted', NULL, NULL, NULL, 1, 895405718620027);
INSERT INTO public.observer_states VALUES ('01a21c36-38a2-7329-873e-9e4627930000', 3, 'ticker', 'default', 'Processing', NULL, NULL, NULL, 'moving', NULL, 'handed-over', NULL, '\x87a764657369726564a772756e6e696e67aa67656e65726174696f6e01ac7075626c69736865645f6174cf000001a21c3638b5a86f627365727665649c91c410381a00a04d404ad0a51460bb8cec5e8ec3c09492001300cf000001a21c3639e2ab68616e6465645f6f7665729492001300cf000001a21c3639e2c3c09195000092920007cf000001a21c3638aac39292001392cf000001a21c3639e2c090c0c0929200079201cf000001a21c3638aac0a5747261636581ab7472616365706172656e74d93730302d38623938343036623162323361393364396430666365353936326262643935372d353039646136303236653634366265332d3030aa637265617465645f6174cf000001a21c3638a2ab6d6f6469666965645f6174cf000001a21c3639f0', 'admitted', NULL, NULL, NULL, 3, 895405718619989);
INSERT INTO public.observer_states VALUES ('01a21c36-38c6-7456-9c8c-b427fd070000', 4, 'ticker', 'default', 'Processing', NULL, NULL, NULL, 'moving', NULL, 'handed-over', NULL, '\x88a764657369726564a772756e6e696e67aa67656e65726174696f6e01ac7075626c69736865645f6174cf000001a21c3638f0a6706c6163657382a46b65797391a76163636f756e74a4706f6f6ca764656661756c74a86f627365727665649c91c410381a00a04d404ad0a51460bb8cec5e8ec3c09492001400cf000001a21c3639e2ab68616e6465645f6f7665729492001400cf000001a21c3639e2c3c09195000092920008cf000001a21c3638e4c39292001492cf000001a21c3639e2c090c0c0929200089201cf000001a21c3638e4c0a5747261636581ab7472616365706172656e74d93730302d37373164316637313865316332326163626634333733353636343930326335332d613866313430366234383239613431362d3030aa637265617465645f6174cf000001a21c3638c8ab6d6f6469666965645f6174cf000001a21c3639f0', 'admitted', NULL, NULL, NULL, 1, 895405718619931);
INSERT INTO public.observer_states VALUES ('01a21c36-390d-7258-a127-b838b8790000', 4, 'ticker', 'default', 'Processing', NULL, NULL, NULL, 'moving', NULL, 'handed-over', NULL, '\x88a764657369726564a772756e6e696e67aa67656e65726174696f6e01ac7075626c69736865645f6174cf000001a21c363939a6706c6163657382a46b65797391ae6e616d6573706163653a7465616da4706f6f6ca764656661756c74a86f627365727665649c91c410381a00a04d404ad0a51460bb8cec5e8ec3c09492001500cf000001a21c3639e3ab68616e6465645f6f7665729492001500cf000001a21c3639e3c3c09195000092920009cf000001a21c363930c39292001592cf000001a21c3639e3c090c0c0929200099201cf000001a21c363930c0a5747261636581ab7472616365706172656e74d93730302d63363731363361373635393030323062323039333138626464616161353962302d313261623539623762613739643861322d3030aa637265617465645f6174cf000001a21c36390dab6d6f6469666965645f6174cf000001a21c3639f0', 'admitted', NULL, NULL, NULL, 1, 895405718619855);
INSERT INTO public.observer_states VALUES ('01a21c36-3973-7188-bd9a-11923c6e0000', 1, 'ticker', 'default', 'Paused', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '\x86a764657369726564a6706175736564aa67656e65726174696f6e00a86f627365727665649c90c2c0c0c0c09090c0c0c0c0a5747261636581ab7472616365706172656e74d93730302d61613835333036353263616466373163316662656630386561396330373464332d663738373732663839383734653366322d3030aa637265617465645f6174cf000001a21c363974ab6d6f6469666965645f6174cf000001a21c363974', '', NULL, NULL, NULL, 1, NULL);
INSERT INTO public.observer_states VALUES ('01a21c36-397c-77fb-bc94-0fd7ec2d0000', 3, 'exec', 'default', 'Completed', NULL, 1795773245469, NULL, NULL, NULL, NULL, NULL, '\x88a764657369726564a772756e6e696e67aa67656e65726174696f6e01ac7075626c69736865645f6174cf000001a21c36398fa86f627365727665649c91c410381a00a04d404ad0a51460bb8cec5e8ec39492000c00cf000001a21c363994a9636f6d706c657465649492000b00cf000001a21c363984a772756e6e696e679492000b00cf000001a21c363984c2c0919500009292000bcf000001a21c363983c2c090c0c09292000b9201cf000001a21c363983c0a5747261636581ab7472616365706172656e74d93730302d65323635353766343031653036353835663865346365303833646466346363392d616537323163346136633762363836352d3030aa637265617465645f6174cf000001a21c36397dab6d6f6469666965645f6174cf000001a21c36399da8656e6465645f6174cf000001a21c36399d', '', NULL, NULL, NULL, 1, NULL);
INSERT INTO public.observer_states VALUES ('01a21c36-39b8-75d8-ae53-f0fbc75f0000', 3, 'exec', 'default', 'Failed', NULL, 1796028845526, NULL, NULL, NULL, 'gave-up', NULL, '\x88a764657369726564a772756e6e696e67aa67656e65726174696f6e01ac7075626c69736865645f6174cf000001a21c3639cea86f627365727665649c91c410381a00a04d404ad0a51460bb8cec5e8ec39492000f00cf000001a21c3639cd81a66661696c656482a56572726f72b2657869746564207769746820636f64652031a8617474656d707473019492000e00cf000001a21c3639c4a772756e6e696e679492000e00cf000001a21c3639c4c2c0919500009292000ecf000001a21c3639c0c2c0909292000fb2657869746564207769746820636f64652031c09292000e9201cf000001a21c3639c0c0a5747261636581ab7472616365706172656e74d93730302d35383163326361363763376438653334373334333735643866613465313461612d346162376139663661323862613865662d3030aa637265617465645f6174cf000001a21c3639b9ab6d6f6469666965645f6174cf000001a21c3639d6a8656e6465645f6174cf000001a21c3639d6', '', NULL, NULL, NULL, 1, NULL);
INSERT INTO public.observers VALUES ('01a21c36-37dc-708c-998f-e67040930000', 'plain', 'plain', 'ticker', 'default', 1795769645036, '{}', '{"name":"plain","kind":"ticker","spec":{},"pool":"default","retry":{"kind":"exponential","first":"1s","max":"1m","reset_after":"5m"},"overlap":"allow","grace":"10s","on_full":"reject"}', 'default');
INSERT INTO public.observers VALUES ('01a21c36-381b-76b1-a676-62bd622e0000', 'labelled', 'labelled', 'ticker', 'default', 1795769645084, '{"app": "feeds", "team": "x"}', '{"name":"labelled","kind":"ticker","spec":{"every":"5s"},"pool":"default","labels":{"app":"feeds","team":"x"},"retry":{"kind":"exponential","first":"1s","max":"1m","reset_after":"5m"},"overlap":"allow","grace":"10s","on_full":"reject"}', 'default');
INSERT INTO public.observers VALUES ('01a21c36-3844-7723-a578-550a442d0000', 'patient', 'patient', 'exec', 'default', 1795769645126, '{}', '{"name":"patient","kind":"exec","spec":{"argv":["/bin/sh","-c","exec sleep 1000"]},"pool":"default","retry":{"kind":"intervals","delays":["1m","4m"]},"overlap":"forbid","grace":"3s","on_full":"reject","priority":7,"attempt_timeout":"1h"}', 'default');
INSERT INTO public.observers VALUES ('01a21c36-3871-7525-8dc8-9e7053940000', 'open', 'open', 'ticker', 'default', 1795769645170, '{}', '{"name":"open","kind":"ticker","spec":{},"pool":"default","retry":{"kind":"exponential","first":"1s","max":"1m","reset_after":"5m"},"overlap":"allow","grace":"10s","on_full":"reject","windows":{"time_zone":"Europe/Berlin","open":[{"days":"mon-sun","from":"00:00","to":"24:00"}]}}', 'default');
INSERT INTO public.observers VALUES ('01a21c36-38a2-7329-873e-9e4627930000', 'heavy', 'heavy', 'ticker', 'default', 1795769645218, '{}', '{"name":"heavy","kind":"ticker","spec":{},"pool":"default","retry":{"kind":"exponential","first":"1s","max":"1m","reset_after":"5m"},"overlap":"allow","grace":"10s","on_full":"reject","weight":3}', 'default');
INSERT INTO public.observers VALUES ('01a21c36-38c6-7456-9c8c-b427fd070000', 'one', 'one', 'ticker', 'default', 1795769645256, '{}', '{"name":"one","kind":"ticker","spec":{},"pool":"default","retry":{"kind":"exponential","first":"1s","max":"1m","reset_after":"5m"},"overlap":"allow","grace":"10s","on_full":"queue","limits":["account"]}', 'default');
INSERT INTO public.observers VALUES ('01a21c36-390d-7258-a127-b838b8790000', 'plain', 'team/plain', 'ticker', 'default', 1795769645325, '{}', '{"name":"plain","namespace":"team","kind":"ticker","spec":{},"pool":"default","retry":{"kind":"exponential","first":"1s","max":"1m","reset_after":"5m"},"overlap":"allow","grace":"10s","on_full":"reject","limits":["namespace:team"]}', 'team');
INSERT INTO public.observers VALUES ('01a21c36-3951-76b3-bbe9-c6360e3f0000', 'two', 'two', 'ticker', 'default', 1795769645399, '{}', '{"name":"two","kind":"ticker","spec":{},"pool":"default","retry":{"kind":"exponential","first":"1s","max":"1m","reset_after":"5m"},"overlap":"allow","grace":"10s","on_full":"queue","limits":["account"]}', 'default');
INSERT INTO public.observers VALUES ('01a21c36-396b-73fd-85b3-37c72bdb0000', 'paused', 'paused', 'ticker', 'default', 1795769645419, '{}', '{"name":"paused","kind":"ticker","spec":{},"pool":"default","retry":{"kind":"exponential","first":"1s","max":"1m","reset_after":"5m"},"overlap":"allow","grace":"10s","on_full":"reject"}', 'default');
INSERT INTO public.observers VALUES ('01a21c36-3973-7188-bd9a-11923c6e0000', 'nightly', 'nightly', 'ticker', 'default', 1795769645428, '{}', '{"name":"nightly","kind":"ticker","spec":{},"pool":"default","retry":{"kind":"exponential","first":"1s","max":"1m","reset_after":"5m"},"overlap":"allow","grace":"10s","on_full":"reject","schedule":{"cron":"0 3 * * *","time_zone":"Europe/Berlin","catch_up":"1h","if_running":"skip"}}', 'default');
INSERT INTO public.observers VALUES ('01a21c36-397c-77fb-bc94-0fd7ec2d0000', 'done', 'done', 'exec', 'default', 1795769645437, '{}', '{"name":"done","kind":"exec","spec":{"argv":["/bin/true"]},"pool":"default","retry":{"kind":"exponential","first":"1s","max":"1m","reset_after":"5m"},"overlap":"allow","grace":"10s","on_full":"reject"}', 'default');
INSERT INTO public.observers VALUES ('01a21c36-39b8-75d8-ae53-f0fbc75f0000', 'wrong', 'wrong', 'exec', 'default', 1795769645497, '{}', '{"name":"wrong","kind":"exec","spec":{"argv":["/bin/false"]},"pool":"default","retry":{"kind":"intervals","delays":[]},"overlap":"allow","grace":"10s","on_full":"reject"}', 'default');
INSERT INTO public.services VALUES ('381a00a0-4d40-4ad0-a514-60bb8cec5e8e', 3, 'a', 'default', 40, 'gone', 1795769644926, 1795769645543, '{"id":"381a00a0-4d40-4ad0-a514-60bb8cec5e8e","version":3,"registration":{"name":"a","pool":"default","capacity":40,"weight_max":3,"kinds":[{"name":"ticker","schema":{"$schema":"https://json-schema.org/draft/2020-12/schema","additionalProperties":false,"description":"Emits a count at a fixed pace: `{\"every\": \"1s\"}`.","properties":{"every":{"default":"1s","description":"Time between two values.","durationMaximum":"8784h","durationMinimum":"10ms","format":"friendly-duration","type":"string"}},"title":"Ticker","type":"object"}},{"name":"exec","schema":{"$schema":"https://json-schema.org/draft/2020-12/schema","additionalProperties":false,"description":"Runs a program and keeps its output as logs: `{\"argv\": [\"/bin/program\", \"argument\"]}`.\n\nThe program gets SIGTERM when the observer must stop, and SIGKILL with all of its descendants after the grace\nperiod. A service starts only programs that its configuration allows.","properties":{"argv":{"description":"The program and its arguments. The program is an absolute path that `[service.exec] allow` lists.","items":{"type":"string"},"maxItems":1000,"minItems":1,"type":"array"},"channel":{"default":false,"description":"Whether to give the program a descriptor, whose number is in `EVERWATCH_FD`. Each line that the program writes\nto it is a JSON object that emits a value, stores a checkpoint or announces something.","type":"boolean"},"cwd":{"default":null,"description":"Working directory, as an absolute path. Unset: the directory of the service.","pattern":"^/","type":["string","null"]},"env":{"additionalProperties":{"type":"string"},"default":{},"description":"Environment variables that `[service.exec] env_allow` lists.","type":"object"},"exit_codes":{"additionalProperties":{"description":"What an exit code means.","enum":["done","failed","retry"],"type":"string"},"default":{},"description":"What single exit codes mean: `done` (the observer is completed), `failed` (it fails, without a retry) or\n`retry` (an error, handled by its retry policy). Other codes than 0 mean `retry`.","propertyNames":{"pattern":"^[0-9]{1,3}$"},"type":"object"},"lines_per_second":{"default":10000,"description":"Lines of output that are kept in a second; further lines of that second are dropped and counted in one line.","maximum":1000000,"minimum":1,"type":"integer"},"live":{"additionalProperties":false,"default":null,"description":"How to tell that the program still works. If it does not, it is stopped, and the attempt ends with an error.","properties":{"command":{"default":null,"description":"A command that exits with 0.","items":{"type":"string"},"type":["array","null"]},"every":{"default":"10s","description":"Interval at which to run `command`.","durationMaximum":"1h","durationMinimum":"100ms","format":"friendly-duration","type":"string"},"failures":{"default":3,"description":"How many runs of `command` in a row must fail.","maximum":100,"minimum":1,"type":"integer"},"silence":{"default":null,"description":"How long the program may print nothing and write nothing to its channel.","durationMaximum":"24h","durationMinimum":"100ms","format":"friendly-duration","type":["string","null"]},"timeout":{"default":"5s","description":"How long one run of `command` may take.","durationMaximum":"5m","durationMinimum":"100ms","format":"friendly-duration","type":"string"}},"type":["object","null"]},"ready":{"additionalProperties":false,"default":null,"description":"How to tell that the program is ready. Unset: it is ready once it has started.","properties":{"command":{"default":null,"description":"A command that exits with 0, such as `[\"/usr/bin/curl\", \"-fsS\", \"http://127.0.0.1:8080/ready\"]`.","items":{"type":"string"},"type":["array","null"]},"contains":{"default":null,"description":"A text that a line of output contains.","type":["string","null"]},"every":{"default":"1s","description":"Interval at which to run `command`.","durationMaximum":"1h","durationMinimum":"100ms","format":"friendly-duration","type":"string"},"line":{"default":null,"description":"A regular expression that fits a line of output.","format":"regex","type":["string","null"]},"message":{"default":false,"description":"The program writes `{\"ready\": true}` to its channel.","type":"boolean"},"timeout":{"default":"5s","description":"How long one run of `command` may take.","durationMaximum":"5m","durationMinimum":"100ms","format":"friendly-duration","type":"string"},"within":{"default":"1m","description":"How long the program may take to be ready; then it is stopped, and the attempt ends with an error.","durationMaximum":"1h","durationMinimum":"100ms","format":"friendly-duration","type":"string"}},"type":["object","null"]},"restart":{"default":"on-failure","description":"What follows an exit with code 0: `on-failure` completes the observer, `always` starts the program again.","enum":["on-failure","always"],"type":"string"},"restarts_per_minute":{"default":10,"description":"With `\"restart\": \"always\"`: how often the program starts again within a minute at most; then it waits.","maximum":600,"minimum":1,"type":"integer"}},"required":["argv"],"title":"Exec","type":"object"}},{"name":"http","schema":{"$schema":"https://json-schema.org/draft/2020-12/schema","additionalProperties":false,"description":"Polls a URL and emits `{\"url\", \"status\", \"body\"}`, at the first answer and whenever the answer has changed.\n\nAn answer with an unexpected status is an error, so that the observer counts as running only while its target\nanswers as it should.","properties":{"body":{"default":null,"description":"Body of each request: a string is sent as it is, any other value as JSON."},"conditional":{"default":true,"description":"Whether to ask the server to answer only if the body has changed (`If-None-Match`, `If-Modified-Since`). Only\nfor GET and HEAD, and only if `emit` is `changes`.","type":"boolean"},"emit":{"default":"changes","description":"What to emit: only `changes` of the status or body, or the answer to each request (`always`).","enum":["changes","always"],"type":"string"},"every":{"default":"5s","description":"Time between two requests.","durationMaximum":"168h","durationMinimum":"100ms","format":"friendly-duration","type":"string"},"expect":{"default":["2xx"],"description":"The statuses that are no error: numbers such as 204, or classes such as `\"2xx\"`.","items":{"maximum":599,"minimum":100,"pattern":"^[1-5]xx$","type":["integer","string"]},"maxItems":100,"minItems":1,"type":"array"},"headers":{"additionalProperties":{"type":"string"},"default":{},"description":"Headers of each request.","maxProperties":100,"type":"object"},"jitter":{"default":10,"description":"Random part of `every`, in percent: with 10, each pause is from 90 % to 110 % of it. It keeps observers that\nstarted together from polling together.","maximum":100,"minimum":0,"type":"integer"},"json":{"default":false,"description":"Whether to emit a body that is JSON as JSON instead of a string.","type":"boolean"},"max_body":{"default":1048576,"description":"Size of the largest body to accept, in bytes; a larger one is an error.","maximum":16777216,"minimum":0,"type":"integer"},"method":{"default":"GET","description":"Method of each request.","enum":["GET","HEAD","POST","PUT","PATCH","DELETE","OPTIONS"],"type":"string"},"pointer":{"default":null,"description":"JSON pointer such as `/data/price` to the part of the body whose changes count. The part is emitted as\n`value`, and an answer without it is an error.","pattern":"^(/|$)","type":["string","null"]},"rate":{"default":null,"description":"Rate of which each request first acquires one permit (`everwatch rate set`). A redirect that is followed needs none.","maxLength":128,"pattern":"^[A-Za-z0-9][A-Za-z0-9._-]*$","type":["string","null"]},"redirects":{"default":true,"description":"Whether to follow up to 10 redirects.","type":"boolean"},"timeout":{"default":"30s","description":"How long one request may take, from the connect to the last byte of the body.","durationMaximum":"5m","durationMinimum":"100ms","format":"friendly-duration","type":"string"},"tolerate":{"default":0,"description":"Number of errors in a row that are only logged. After one more, the attempt ends with an error, and the retry\npolicy of the observer decides what follows.","maximum":1000,"minimum":0,"type":"integer"},"url":{"description":"URL to poll: `http://` or `https://`. A user and password in it are sent as HTTP basic authentication.","format":"uri","maxLength":4096,"pattern":"^https?://","type":"string"}},"required":["url"],"title":"Http","type":"object"}},{"name":"websocket","schema":{"$schema":"https://json-schema.org/draft/2020-12/schema","additionalProperties":false,"description":"Receives the messages of a WebSocket server and emits each of them.\n\nIt emits a text message as a string, or as the JSON value in it if `json` is set, and a binary message as\n`{\"base64\": \"…\"}`. When the receiver of the output is slow, it stops reading from the server.","properties":{"answer":{"additionalProperties":false,"default":{},"description":"How to recognize the answer for `\"ready\": \"answer\"`. It is emitted like every message.","properties":{"contains":{"description":"A text that the message contains.","type":["string","null"]},"equals":{"description":"The value at `pointer` equals this one."},"pointer":{"description":"The message is JSON and has a value at this JSON pointer, such as `/type`.","pattern":"^(/|$)","type":["string","null"]}},"type":"object"},"buffer":{"default":16,"description":"Number of messages that may wait to be emitted, of at most twice `max_message` bytes together; then no more\nare read from the server.","maximum":1000,"minimum":1,"type":"integer"},"connect_timeout":{"default":"10s","description":"How long a connect may take, and how long the answer may take after it.","durationMaximum":"5m","durationMinimum":"100ms","format":"friendly-duration","type":"string"},"headers":{"additionalProperties":{"type":"string"},"default":{},"description":"HTTP headers of the request that opens the connection, such as `Authorization`.","maxProperties":100,"type":"object"},"json":{"default":false,"description":"Whether to emit text messages that are JSON as JSON. Other text messages are emitted as strings.","type":"boolean"},"max_message":{"default":1048576,"description":"Size of the largest message to accept, in bytes. After a larger one, the connection is closed and made again.","maximum":8388608,"minimum":1,"type":"integer"},"ping":{"default":"20s","description":"Interval at which to send pings.","durationMaximum":"1h","durationMinimum":"100ms","format":"friendly-duration","type":"string"},"pong_timeout":{"default":"10s","description":"How long the server may take to answer a ping; then the connection is closed and made again.","durationMaximum":"1h","durationMinimum":"100ms","format":"friendly-duration","type":"string"},"ready":{"default":"connect","description":"When the observer is ready: after the `connect`, after the first `message`, or after the `answer` to\n`subscribe`.","enum":["connect","message","answer"],"type":"string"},"reconnect":{"additionalProperties":false,"default":{"attempts":10,"first":"500ms","healthy_after":"1m","max":"30s"},"description":"When to connect again.","properties":{"attempts":{"default":10,"description":"Number of connections in a row that may fail or end before `healthy_after`. Then the attempt ends with an\nerror, and the retry policy of the observer decides what follows.","maximum":1000000,"minimum":1,"type":"integer"},"first":{"default":"500ms","description":"The pause after the first loss.","durationMaximum":"1h","durationMinimum":"10ms","format":"friendly-duration","type":"string"},"healthy_after":{"default":"1m","description":"How long a connection must last for the next pause to be `first` again.","durationMaximum":"24h","durationMinimum":"0s","format":"friendly-duration","type":"string"},"max":{"default":"30s","description":"The longest pause.","durationMaximum":"1h","durationMinimum":"10ms","format":"friendly-duration","type":"string"}},"type":"object"},"silence":{"default":null,"description":"How long no message may arrive; then the connection is closed and made again. Unset: no limit.","durationMaximum":"24h","durationMinimum":"100ms","format":"friendly-duration","type":["string","null"]},"subprotocols":{"default":[],"description":"Subprotocols to offer, the preferred one first. If there are any, the server must select one of them.","items":{"type":"string"},"maxItems":20,"type":"array"},"subscribe":{"default":[],"description":"Messages to send after each connect, in this order: a string is sent as it is, any other value as JSON.","items":true,"maxItems":100,"type":"array"},"url":{"description":"URL of the server: `ws://` or `wss://`. A user and password in it are sent as HTTP basic authentication.","format":"uri","maxLength":4096,"pattern":"^wss?://","type":"string"}},"required":["url"],"title":"WebSocket","type":"object"}},{"name":"tail","schema":{"$schema":"https://json-schema.org/draft/2020-12/schema","additionalProperties":false,"description":"Follows a file by its name and emits each line as `{\"line\": \"…\", \"offset\": 123}`.\n\nIt goes on with the next file when the file is rotated, starts over when the file is truncated, and resumes where\nthe last run stopped. The service must allow the folder of the file.","properties":{"every":{"default":"1s","description":"Interval at which to look for new lines and for another file of that name.","durationMaximum":"10m","durationMinimum":"10ms","format":"friendly-duration","type":"string"},"from":{"default":"end","description":"Where the first run starts: at the `end` of the file or at its `beginning`. A file that appears later is read\nfrom its beginning.","enum":["end","beginning"],"type":"string"},"json":{"default":false,"description":"Whether to emit lines that are JSON as JSON.","type":"boolean"},"max_line":{"default":65536,"description":"Length of the longest line, in bytes. Longer lines are cut and emitted with `\"truncated\": true`.","maximum":1048576,"minimum":1,"type":"integer"},"path":{"description":"Absolute path of the file, in a folder that `[service.files] read` lists. The file may be missing at first.","maxLength":4096,"pattern":"^/","type":"string"}},"required":["path"],"title":"Tail","type":"object"}},{"name":"postgres-listen","schema":{"$schema":"https://json-schema.org/draft/2020-12/schema","additionalProperties":false,"description":"Listens on channels of a PostgreSQL server and emits each notification as `{\"channel\", \"payload\"}`; or emits the\nrows of a query beyond a watermark, which the next run continues.\n\nWith both, a notification is not emitted: it makes the query run at once. The service must allow the server.","properties":{"channels":{"default":[],"description":"Channels to listen on, as in `LISTEN`.","items":{"type":"string"},"maxItems":100,"type":"array"},"json":{"default":false,"description":"Whether to emit payloads that are JSON as JSON.","type":"boolean"},"password_file":{"default":null,"description":"Absolute path of a file with the password, in a folder that `[service.files] read` lists.","pattern":"^/","type":["string","null"]},"ping":{"default":"30s","description":"Interval at which to check an idle connection.","durationMaximum":"1h","durationMinimum":"100ms","format":"friendly-duration","type":"string"},"query":{"additionalProperties":false,"default":null,"description":"A query whose new rows to emit.","properties":{"batch":{"default":100,"description":"Number of rows to read at once.","maximum":1000,"minimum":1,"type":"integer"},"every":{"default":"10s","description":"Interval at which to run the query.","durationMaximum":"24h","durationMinimum":"100ms","format":"friendly-duration","type":"string"},"sql":{"description":"One SELECT with the watermark as `$1`, a text to cast, ordered by the watermark:\n`SELECT id, name FROM orders WHERE id > $1::bigint ORDER BY id`.","maxLength":100000,"minLength":1,"type":"string"},"start":{"default":"0","description":"The watermark of the first run.","type":"string"},"watermark":{"description":"The column of the result that is the watermark. No two rows may have the same value.","maxLength":63,"minLength":1,"type":"string"}},"required":["sql","watermark"],"type":["object","null"]},"reconnect":{"additionalProperties":false,"default":{"attempts":10,"first":"500ms","healthy_after":"1m","max":"30s"},"description":"When to connect again.","properties":{"attempts":{"default":10,"description":"Number of connections in a row that may fail or end before `healthy_after`. Then the attempt ends with an\nerror, and the retry policy of the observer decides what follows.","maximum":1000000,"minimum":1,"type":"integer"},"first":{"default":"500ms","description":"The pause after the first loss.","durationMaximum":"1h","durationMinimum":"10ms","format":"friendly-duration","type":"string"},"healthy_after":{"default":"1m","description":"How long a connection must last for the next pause to be `first` again.","durationMaximum":"24h","durationMinimum":"0s","format":"friendly-duration","type":"string"},"max":{"default":"30s","description":"The longest pause.","durationMaximum":"1h","durationMinimum":"10ms","format":"friendly-duration","type":"string"}},"type":"object"},"timeout":{"default":"10s","description":"How long a connect or a statement may take; then the connection is closed and made again.","durationMaximum":"10m","durationMinimum":"100ms","format":"friendly-duration","type":"string"},"url":{"description":"URL of the database, such as `postgres://user@host:5432/database?sslmode=verify-full`. `[service.postgres] allow`\nmust list its host and port.","format":"uri","maxLength":4096,"pattern":"^postgres(ql)?://","type":"string"}},"required":["url"],"title":"PostgresListen","type":"object"}},{"name":"replicate","schema":{"$schema":"https://json-schema.org/draft/2020-12/schema","additionalProperties":false,"description":"Keeps the folder `to` in step with the folder `from`, and emits a summary of each pass that changed something:\n`{\"files\", \"copied\", \"deleted\", \"bytes\"}`.\n\nIt copies regular files with their modification time and mode; it does not follow or copy symbolic links. A copy\nappears under its name only when it is complete. The service must allow both folders.","properties":{"compare":{"default":"time","description":"How to tell that a file has changed: by its size and modification `time`, or also by a digest of its `content`,\nwhich reads all files in each pass.","enum":["time","content"],"type":"string"},"delete":{"default":false,"description":"Whether to delete files of the copy that the original does not contain.","type":"boolean"},"every":{"default":"10s","description":"Time between two passes.","durationMaximum":"24h","durationMinimum":"100ms","format":"friendly-duration","type":"string"},"from":{"description":"Absolute path of the folder to copy, in a folder that `[service.files] read` lists.","maxLength":4096,"pattern":"^/","type":"string"},"max_files":{"default":100000,"description":"Number of files and folders that the original may contain; more are an error.","maximum":1000000,"minimum":1,"type":"integer"},"min_files":{"default":1,"description":"With `delete`: how many files the original must contain for anything to be deleted. It protects the copy while\nthe original is not mounted.","maximum":1000000,"minimum":0,"type":"integer"},"to":{"description":"Absolute path of the copy, in a folder that `[service.files] write` lists. It is created if it is missing.","maxLength":4096,"pattern":"^/","type":"string"}},"required":["from","to"],"title":"Replicate","type":"object"}}],"version":"0.1.0","message_version":2,"host":"vm"},"registered_at":"2026-11-27T08:54:04.926Z","modified_at":"2026-11-27T08:54:05.543Z","heard_at":"2026-11-27T08:54:04.940Z","heartbeat":{"service":"381a00a0-4d40-4ad0-a514-60bb8cec5e8e","seq":1,"state":"active","capacity":40,"held":0,"loop_lag_ms":1,"rss_bytes":60465152,"sent_at":"2026-11-27T08:54:04.939Z"},"end":{"at":"2026-11-27T08:54:05.543Z","how":"gone"}}', 3);
SELECT pg_catalog.setval('public.audit_id_seq', 1, false);
SELECT pg_catalog.setval('public.events_id_seq', 40, true);
SELECT pg_catalog.setval('public.parked_id_seq', 1, false);
ALTER TABLE ONLY public._sqlx_migrations
    ADD CONSTRAINT _sqlx_migrations_pkey PRIMARY KEY (version);
ALTER TABLE ONLY public.audit
    ADD CONSTRAINT audit_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.batches
    ADD CONSTRAINT batches_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.changed_limits
    ADD CONSTRAINT changed_limits_pkey PRIMARY KEY (key);
ALTER TABLE ONLY public.checkpoints
    ADD CONSTRAINT checkpoints_pkey PRIMARY KEY (observer_id);
ALTER TABLE ONLY public.events
    ADD CONSTRAINT events_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.forgotten_observers
    ADD CONSTRAINT forgotten_observers_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.key_value
    ADD CONSTRAINT key_value_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.limit_uses
    ADD CONSTRAINT limit_uses_pkey PRIMARY KEY (key, observer_id);
ALTER TABLE ONLY public.limits
    ADD CONSTRAINT limits_pkey PRIMARY KEY (key);
ALTER TABLE ONLY public.namespaces
    ADD CONSTRAINT namespaces_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.observer_counts
    ADD CONSTRAINT observer_counts_pkey PRIMARY KEY (pool, kind, status, health, slot, service_id, part);
ALTER TABLE ONLY public.observer_states
    ADD CONSTRAINT observer_states_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.observer_versions
    ADD CONSTRAINT observer_versions_pkey PRIMARY KEY (observer_id, number);
ALTER TABLE ONLY public.observers
    ADD CONSTRAINT observers_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.parked
    ADD CONSTRAINT parked_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.rates
    ADD CONSTRAINT rates_pkey PRIMARY KEY (key);
ALTER TABLE ONLY public.results
    ADD CONSTRAINT results_pkey PRIMARY KEY (observer_id);
ALTER TABLE ONLY public.roles
    ADD CONSTRAINT roles_pkey PRIMARY KEY (name);
ALTER TABLE ONLY public.rollout_members
    ADD CONSTRAINT rollout_members_pkey PRIMARY KEY (rollout_id, place);
ALTER TABLE ONLY public.rollouts
    ADD CONSTRAINT rollouts_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.services
    ADD CONSTRAINT services_pkey PRIMARY KEY (id);
ALTER TABLE ONLY public.tokens
    ADD CONSTRAINT tokens_pkey PRIMARY KEY (id);
CREATE INDEX audit_by_principal ON public.audit USING btree (principal, id);
CREATE INDEX audit_by_time ON public.audit USING btree (at);
CREATE INDEX batches_by_name ON public.batches USING btree (name);
CREATE INDEX events_detail ON public.events USING btree (detail, id);
CREATE INDEX events_observer ON public.events USING btree (observer_id, id) WHERE (observer_id IS NOT NULL);
CREATE INDEX events_service ON public.events USING btree (service_id, id) WHERE (service_id IS NOT NULL);
CREATE INDEX forgotten_until ON public.forgotten_observers USING btree (until);
CREATE INDEX key_value_until ON public.key_value USING btree (until);
CREATE INDEX limit_uses_behind ON public.limit_uses USING btree (pool, observer_id) WHERE (how = 'behind'::text);
CREATE INDEX limit_uses_in_order ON public.limit_uses USING btree (key, how, pool, rank, observer_id);
CREATE INDEX limit_uses_of_observer ON public.limit_uses USING btree (observer_id);
CREATE INDEX limit_uses_unreleased ON public.limit_uses USING btree (pool, observer_id) WHERE (how = 'unreleased'::text);
CREATE INDEX observer_counts_waiting ON public.observer_counts USING btree (pool) WHERE (slot = 'waiting'::text);
CREATE INDEX observers_by_age ON public.observers USING btree (created_at, id);
CREATE INDEX observers_by_name ON public.observers USING btree (name, id);
CREATE INDEX observers_by_namespace ON public.observers USING btree (namespace, name, id) WHERE (namespace <> 'default'::text);
CREATE INDEX observers_commanded ON public.observer_states USING btree (commanded_at) WHERE (commanded_at IS NOT NULL);
CREATE INDEX observers_due ON public.observer_states USING btree (due_at) WHERE (due_at IS NOT NULL);
CREATE INDEX observers_ending ON public.observer_states USING btree (commanded_at, id) WHERE (reason_code = ANY (ARRAY['deleting'::text, 'pausing'::text, 'restart-requested'::text, 'withdrawing'::text]));
CREATE INDEX observers_held ON public.observer_states USING btree (service_id, id) INCLUDE (digest) WHERE (service_id IS NOT NULL);
CREATE UNIQUE INDEX observers_name_key ON public.observers USING btree (name_key);
CREATE UNIQUE INDEX observers_of_batch ON public.observer_states USING btree (batch_id, batch_place) WHERE (batch_id IS NOT NULL);
CREATE INDEX observers_of_batch_by_status ON public.observer_states USING btree (batch_id, status) WHERE (batch_id IS NOT NULL);
CREATE INDEX observers_refused ON public.observer_states USING btree (pool, kind, reason_code, id) WHERE (reason_code = ANY (ARRAY['refused'::text, 'no-service-for-kind'::text]));
CREATE INDEX observers_steady ON public.observer_states USING btree (steady_at) WHERE (steady_at IS NOT NULL);
CREATE INDEX observers_unheld ON public.observer_states USING btree (pool, id) WHERE ((service_id IS NULL) AND (slot = 'admitted'::text));
CREATE INDEX observers_waiting ON public.observer_states USING btree (pool, kind, rank, id, weight) WHERE (rank IS NOT NULL);
CREATE INDEX rollout_members_by_observer ON public.rollout_members USING btree (observer_id);
CREATE INDEX rollout_members_by_state ON public.rollout_members USING btree (rollout_id, state, place);
CREATE INDEX rollouts_by_name ON public.rollouts USING btree (name);
CREATE INDEX services_ended ON public.services USING btree (ended_at);
CREATE INDEX services_name ON public.services USING btree (name, registered_at);
CREATE INDEX services_pool_state ON public.services USING btree (pool, state);
CREATE INDEX tokens_by_name ON public.tokens USING btree (name, valid_until) WHERE (name IS NOT NULL);
CREATE INDEX tokens_by_role ON public.tokens USING btree (role, valid_until);
CREATE INDEX tokens_until ON public.tokens USING btree (valid_until);
CREATE TRIGGER observer_states_deleted AFTER DELETE ON public.observer_states REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION public.everwatch_observer_states_deleted();
CREATE TRIGGER observers_deleted AFTER DELETE ON public.observers REFERENCING OLD TABLE AS gone FOR EACH STATEMENT EXECUTE FUNCTION public.everwatch_observers_deleted();
ALTER TABLE ONLY public.checkpoints
    ADD CONSTRAINT checkpoints_observer_id_fkey FOREIGN KEY (observer_id) REFERENCES public.observers(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.limit_uses
    ADD CONSTRAINT limit_uses_observer_id_fkey FOREIGN KEY (observer_id) REFERENCES public.observers(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.observer_versions
    ADD CONSTRAINT observer_versions_observer_id_fkey FOREIGN KEY (observer_id) REFERENCES public.observers(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.results
    ADD CONSTRAINT results_observer_id_fkey FOREIGN KEY (observer_id) REFERENCES public.observers(id) ON DELETE CASCADE;
ALTER TABLE ONLY public.rollout_members
    ADD CONSTRAINT rollout_members_rollout_id_fkey FOREIGN KEY (rollout_id) REFERENCES public.rollouts(id) ON DELETE CASCADE;
