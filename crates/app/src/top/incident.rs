//! The incidents of the last minutes, and when to read them again: seldom, and only while something moves. Independent of terminal, HTTP and clock.

use super::seen::{Observer, Seen, Service};
use everwatch_api::Incident;
use everwatch_core::clock::Timestamp;
use std::collections::BTreeSet;
use std::time::Duration;

/// How long an incident that is over is shown.
pub(super) const SHOWN_FOR: Duration = Duration::from_secs(180);
/// The same if the doctor has found problems, which are shown afterwards.
const SHOWN_BEFORE_PROBLEMS_FOR: Duration = Duration::from_secs(30);
/// How long incidents are read after a change: managers conclude, and observers start, later than the change.
const WATCH_FOR: Duration = Duration::from_secs(6);
/// The pause between two requests after a change, and while an incident stays open.
const EVERY: Duration = Duration::from_secs(1);
const OPEN_EVERY: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct RecentIncidents {
    read: Vec<Incident>,
    /// When the last change was.
    changed_at: Option<Timestamp>,
    requested_at: Option<Timestamp>,
    loading: bool,
}

impl RecentIncidents {
    /// Something has changed that may be an incident.
    pub(super) fn watch(&mut self, now: Timestamp) {
        self.changed_at = Some(now);
    }

    /// Whether something has changed that may be an incident, so recently that observers may still start elsewhere.
    pub(super) fn has_changed_lately(&self, now: Timestamp) -> bool {
        self.changed_at.is_some_and(|then| now.since(then) <= WATCH_FOR)
    }

    /// Whether to read incidents now. Only one request is in progress at a time.
    pub(super) fn is_due(&mut self, now: Timestamp) -> bool {
        let has_changed = self.has_changed_lately(now);
        let is_open = self.last().is_some_and(|it| it.until.is_none());
        let pause = match (has_changed, is_open) {
            (true, _) => EVERY,
            (false, true) => OPEN_EVERY,
            (false, false) => return false,
        };
        let is_early = self.requested_at.is_some_and(|then| now.since(then) < pause);
        !is_early && self.begin(now)
    }

    /// Whether to read incidents for the screen that was just loaded: so that both tell the same, at each load after a change.
    pub(super) fn is_due_with_load(&mut self, now: Timestamp) -> bool {
        self.has_changed_lately(now) && self.begin(now)
    }

    /// Whether a request is in progress.
    pub(super) fn is_loading(&self) -> bool {
        self.loading
    }

    fn begin(&mut self, now: Timestamp) -> bool {
        if self.loading {
            return false;
        }
        (self.loading, self.requested_at) = (true, Some(now));
        true
    }

    /// A request that failed, or that the manager refuses, is made again only after the next change.
    pub(super) fn take(&mut self, read: Option<Vec<Incident>>) {
        self.loading = false;
        match read {
            Some(all) => self.read = all,
            None => self.changed_at = None,
        }
    }

    /// The newest loss, otherwise the newest of all: moves that follow a loss do not hide it.
    fn last(&self) -> Option<&Incident> {
        self.read.iter().max_by_key(|it| (is_loss(it), it.since))
    }

    /// Since when the service is lost, as its incident says. If it held no observers, it has none, and the time is that of the end.
    pub(super) fn lost_since(&self, it: &Service) -> Timestamp {
        let of_loss = |one: &&Incident| {
            let is_then = (it.last_heartbeat_at..=it.modified_at).contains(&one.since);
            one.from == it.name && is_loss(one) && is_then
        };
        self.read.iter().rfind(of_loss).map_or(it.modified_at, |one| one.since)
    }

    /// The incident that is shown.
    pub(super) fn shown(&self, now: Timestamp, has_problems: bool) -> Option<&Incident> {
        let most = if has_problems { SHOWN_BEFORE_PROBLEMS_FOR } else { SHOWN_FOR };
        self.last().filter(|it| it.until.is_none_or(|until| now.since(until) < most))
    }
}

fn is_loss(it: &Incident) -> bool {
    !matches!(it.cause.as_str(), "stopped" | "handed_over")
}

fn lost(seen: &Seen) -> BTreeSet<&str> {
    seen.services.iter().filter(|it| it.is_lost()).map(|it| it.id.as_str()).collect()
}

/// Whether a service was lost between two loads, or an observer runs on another service.
pub(super) fn has_changed(before: &Seen, after: &Seen) -> bool {
    let has_moved = |it: &Observer| {
        let former = before.observers.items.iter().find(|former| former.id == it.id);
        former.is_some_and(|former| it.service.is_some() && former.service != it.service)
    };
    !lost(after).is_subset(&lost(before)) || after.observers.items.iter().any(has_moved)
}
