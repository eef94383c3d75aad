//! What is on the screen and can be selected: services and observers.

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
