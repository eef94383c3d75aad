-- The order in which runs give their slots to observers of a higher priority: see `Row::preemption_rank`. Rows of earlier
-- versions are ordered by the time of their creation until they are saved again.
ALTER TABLE observer_states ADD COLUMN preemption_rank INTEGER;
UPDATE observer_states SET preemption_rank = (SELECT
        ((COALESCE(o.definition ->> '$.priority', 0) + 101) << 43) + (1 << 43) - 1 - o.created_at
    FROM observers AS o WHERE o.id = observer_states.id AND json_valid(o.definition)) WHERE slot = 'admitted';
