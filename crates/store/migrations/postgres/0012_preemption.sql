-- The order in which runs give their slots to observers of a higher priority: see `Row::preemption_rank`. Rows of earlier
-- versions are ordered by the time of their creation until they are saved again.
ALTER TABLE observer_states ADD COLUMN preemption_rank bigint;
CREATE FUNCTION pg_temp.priority(definition text) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    RETURN COALESCE((replace(definition, '\u0000', '\ue0f8')::json ->> 'priority')::smallint, 0);
EXCEPTION WHEN OTHERS THEN
    RETURN 0;
END
$$;
UPDATE observer_states AS s SET preemption_rank =
        ((pg_temp.priority(o.definition) + 101) << 43) + (1::bigint << 43) - 1 - o.created_at
    FROM observers AS o WHERE o.id = s.id AND s.slot = 'admitted';
