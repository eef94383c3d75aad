//! Where an observer can move: the services of its pool with room for it.

use super::model::Model;
use super::target::Room;
use everwatch_core::record::status::Status;

/// At most as many as there are digits to choose one.
const ROOMS_MAX: usize = 9;

impl Model {
    /// Whether the screen shows that this observer has ended by itself.
    pub(super) fn has_ended(&self, observer: &str) -> bool {
        let shown = self.seen.iter().flat_map(|seen| &seen.observers.items);
        shown.into_iter().any(|it| it.id == observer && it.status.parse().is_ok_and(Status::is_final))
    }

    /// The services to which this observer can move, by name. Of more than [`ROOMS_MAX`], those with the most free slots.
    pub(super) fn rooms_for(&self, observer: &str) -> Vec<Room> {
        let Some(seen) = &self.seen else { return Vec::new() };
        let Some(it) = seen.observers.items.iter().find(|it| it.id == observer) else { return Vec::new() };
        let holder = it.service.as_ref().map(|service| &service.name);
        let others = seen.services.iter().filter(|other| {
            other.pool == it.pool
                && other.is_able()
                && Some(&other.name) != holder
                && (other.kinds.is_empty() || other.kinds.contains(&it.kind))
        });
        let rooms = others.map(|other| Room {
            service: other.name.clone(),
            free: other.capacity.saturating_sub(other.held),
        });
        let mut rooms: Vec<Room> = rooms.filter(|room| room.free >= it.weight).collect();
        rooms.sort_by_key(|room| std::cmp::Reverse(room.free));
        rooms.truncate(ROOMS_MAX);
        rooms.sort_by(|a, b| a.service.cmp(&b.service));
        rooms
    }
}
