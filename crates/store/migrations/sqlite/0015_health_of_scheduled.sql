-- Scheduled observers are not meant to run now, so they have no health; earlier versions stored `waiting`.
UPDATE observer_states SET health = NULL WHERE status = 'Scheduled' AND health = 'waiting';
UPDATE observer_counts SET health = '' WHERE status = 'Scheduled' AND health = 'waiting';
