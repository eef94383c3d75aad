//! What is on the screen and can be selected: services and observers, and where an observer can move.

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Focus {
    Services,
    Observers,
}

/// One thing on the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) what: Focus,
    pub(super) id: String,
    pub(super) name: String,
}

/// A service with free slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Room {
    pub(super) service: String,
    pub(super) free: u32,
}
