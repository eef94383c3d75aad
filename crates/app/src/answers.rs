//! What commands and the full-screen view say after an action: what was done, or what a manager was asked to do, and how to look at
//! it.
//!
//! Every such line begins with the noun and the name of the object, as in `observer hello resumes (Created)`.

use everwatch_api::{Observer, Service};
use everwatch_core::record::health::Health;
use everwatch_core::record::reason::ReasonCode;
use everwatch_core::record::status::Status;
use everwatch_core::wording::counted;

/// What a command asked of an observer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Action<'a> {
    Create,
    Delete,
    Pause,
    Resume,
    Restart,
    Retry,
    Trigger,
    Move,
    MoveToPool(&'a str),
    MoveToService(&'a str),
    Revert(u32),
    Edit,
}

impl Action<'_> {
    /// The verb in the path of the request.
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Self::Create => "create",
            Self::Delete => "delete",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Restart => "restart",
            Self::Retry => "retry",
            Self::Trigger => "trigger",
            Self::Move | Self::MoveToPool(_) | Self::MoveToService(_) => "move",
            Self::Revert(_) => "revert",
            Self::Edit => "edit",
        }
    }

    /// The answer about one of several observers.
    pub(crate) fn told(self, it: &Observer) -> String {
        let what = match self {
            Self::Create => "is created".to_owned(),
            Self::Delete if it.status == Status::Deleted => {
                return format!("observer {} is deleted", it.name);
            }
            Self::Delete => "ends; it is deleted when its run has ended".to_owned(),
            Self::Pause if it.status == Status::Paused => return format!("observer {} is paused", it.name),
            Self::Pause | Self::Resume if it.status.is_final() => {
                format!("has ended, so there is nothing to {}", self.verb())
            }
            Self::Pause => "pauses".to_owned(),
            Self::Resume if it.health == Some(Health::Running) => "runs; it is not paused".to_owned(),
            Self::Resume => "resumes".to_owned(),
            Self::Restart => "restarts".to_owned(),
            Self::Retry => "starts again".to_owned(),
            Self::Trigger => "executes now".to_owned(),
            Self::Move if it.service.is_none() => "runs on no service now, so it does not move".to_owned(),
            Self::Move => "moves to another service".to_owned(),
            Self::MoveToPool(pool) => format!("moves to pool {pool}"),
            Self::MoveToService(service) if is_on(it, service) => {
                format!("is on service {service}, so it does not move")
            }
            Self::MoveToService(service) => format!("moves to service {service}"),
            Self::Edit => format!("is changed: its definition has version {}", it.definition_version),
            Self::Revert(to) => {
                format!("has the definition of version {to} again, as version {}", it.definition_version)
            }
        };
        let reason = match it.reason.as_str() {
            "" => String::new(),
            _ if it.reason_code == Some(ReasonCode::WaitingForSlot) => admitted_soon(it),
            reason => format!(": {reason}"),
        };
        format!("observer {} {what} ({}{reason})", it.name, it.status)
    }

    /// The answer about a single observer, with the command that shows what follows, if anything does.
    pub(crate) fn told_alone(self, it: &Observer) -> String {
        let told = self.told(it);
        if told.ends_with(')') { format!("{told}; {}", look(&it.name)) } else { told }
    }
}

/// Whether the service with this name or id holds the observer.
pub(crate) fn is_on(it: &Observer, service: &str) -> bool {
    it.service.as_ref().is_some_and(|on| on.name == service || on.id.to_string() == service)
}

/// What follows for an observer that waits although a service has a free slot: a manager admits it soon, after those before it.
fn admitted_soon(it: &Observer) -> String {
    match it.waiting.as_ref().and_then(|waiting| Some((waiting.place?, waiting.of?))) {
        Some((place, of)) if place > 1 => format!(": to be admitted, number {place} of {of} in line"),
        _ => ": to be admitted".to_owned(),
    }
}

fn look(name: &str) -> String {
    format!("see `everwatch observer get {name}`")
}

/// What a command asked of a service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    Cordon,
    Uncordon,
    Drain,
    Capacity,
}

impl Order {
    /// The answer about a service, with the command that shows what follows, if anything does.
    pub(crate) fn told(self, it: &Service) -> String {
        let told = self.briefly(it);
        let is_look_needed = self != Self::Drain && it.unconfirmed.is_some();
        if is_look_needed { format!("{told}; see `everwatch service get {}`", it.name) } else { told }
    }

    /// The answer about a service, where the user sees what follows.
    pub(crate) fn briefly(self, it: &Service) -> String {
        let capacity = it.capacity_set.unwrap_or(it.capacity);
        if it.state.is_over() {
            return self.for_the_next_process(it);
        }
        let what = match self {
            Self::Cordon => "cordoned".to_owned(),
            Self::Uncordon => "uncordoned".to_owned(),
            Self::Drain => return draining(it),
            Self::Capacity if it.capacity_set.is_none() => {
                "reset to the number of slots in its configuration".to_owned()
            }
            Self::Capacity => format!("resized to {}", counted(capacity, "slot")),
        };
        let Service { name, held, .. } = it;
        match &it.unconfirmed {
            Some(unconfirmed) => format!("service {name} is being {what} ({unconfirmed})"),
            None => format!("service {name} is {what}; it holds {held} of {capacity}"),
        }
    }

    /// Whether the service has this order already.
    pub(crate) fn changes_nothing(self, before: &Service) -> bool {
        let is_living = !before.state.is_over();
        match self {
            Self::Cordon => is_living && before.cordoned,
            Self::Uncordon => is_living && !before.cordoned,
            Self::Drain | Self::Capacity => false,
        }
    }

    /// The answer about a service that had this order before.
    pub(crate) fn again(self, it: &Service) -> String {
        let what = if self == Self::Uncordon { "not cordoned" } else { "cordoned already" };
        format!("service {} is {what}; it holds {} of {}", it.name, it.held, it.capacity)
    }

    /// The answer about a service of which no process lives: orders belong to its name.
    fn for_the_next_process(self, Service { name, state, capacity_set, .. }: &Service) -> String {
        let next = match (self, capacity_set) {
            (Self::Cordon | Self::Drain, _) => {
                "starts cordoned, and takes no observers until you uncordon it".to_owned()
            }
            (Self::Uncordon, _) => "takes observers".to_owned(),
            (Self::Capacity, Some(slots)) => format!("has {}", counted(u64::from(*slots), "slot")),
            (Self::Capacity, None) => "has the number of slots in its configuration".to_owned(),
        };
        format!("service {name} is {}: its next process {next}", state.as_str())
    }
}

fn draining(it: &Service) -> String {
    let name = &it.name;
    let Some(drain) = &it.drain else { return format!("service {name} is drained and stays cordoned") };
    if drain.of == 0 {
        return format!(
            "service {name} holds no observer to hand over; it is cordoned until you uncordon it"
        );
    }
    let told = format!(
        "service {name} is draining: {} of {} handed over",
        drain.moved,
        counted(drain.of, "observer")
    );
    match (&it.unconfirmed, &drain.waits) {
        (Some(unconfirmed), _) => format!("{told}; {unconfirmed}"),
        (None, Some(why)) => format!("{told}; waiting: {why}"),
        (None, None) => told,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::an_observer;
    use everwatch_core::clock::Timestamp;
    use serde_json::json;

    #[test]
    fn an_order_for_a_dead_service_is_one_for_its_next_process() {
        let lost: Service = serde_json::from_value(json!({"id": uuid::Uuid::nil(), "name": "s1", "pool": "default",
            "capacity": 10, "held": 0, "free": 0, "state": "lost", "kinds": [], "version": "1", "host": "h",
            "created_at": Timestamp(0), "modified_at": Timestamp(0), "last_heartbeat_at": Timestamp(0), "is_deleted": true,
            "cordoned": true, "capacity_set": 5}))
        .unwrap();
        for (order, told) in [
            (
                Order::Drain,
                "service s1 is lost: its next process starts cordoned, and takes no observers until you uncordon it",
            ),
            (Order::Uncordon, "service s1 is lost: its next process takes observers"),
            (Order::Capacity, "service s1 is lost: its next process has 5 slots"),
        ] {
            assert_eq!(order.told(&lost), told);
        }
    }

    #[test]
    fn an_order_that_a_service_has_already_is_told_as_such() {
        let of = |state: &str, cordoned: bool| -> Service {
            serde_json::from_value(json!({"id": uuid::Uuid::nil(), "name": "s1", "pool": "default",
                "capacity": 10, "held": 4, "free": 6, "state": state, "kinds": [], "version": "1", "host": "h",
                "created_at": Timestamp(0), "modified_at": Timestamp(0), "last_heartbeat_at": Timestamp(0),
                "is_deleted": state == "lost", "cordoned": cordoned}))
            .unwrap()
        };
        for (order, state, cordoned, told) in [
            (Order::Cordon, "cordoned", true, Some("service s1 is cordoned already; it holds 4 of 10")),
            (Order::Uncordon, "active", false, Some("service s1 is not cordoned; it holds 4 of 10")),
            (Order::Uncordon, "cordoned", true, None),
            (Order::Cordon, "active", false, None),
            (Order::Cordon, "lost", true, None),
            (Order::Drain, "cordoned", true, None),
        ] {
            let it = of(state, cordoned);
            let again = order.changes_nothing(&it).then(|| order.again(&it));
            assert_eq!(again.as_deref(), told, "{order:?} {state}");
        }
    }

    #[test]
    fn an_observer_waits_for_a_slot_only_if_there_is_none() {
        let created = |code: &str, place: u64| {
            let mut sent =
                an_observer("news", "Created", "waiting for a slot in pool default").sent().clone();
            sent["reason_code"] = json!(code);
            sent["waiting"] = json!({"since": sent["created_at"], "place": place, "of": 9});
            Action::Create.told(&serde_json::from_value(sent).unwrap())
        };
        assert_eq!(created("waiting-for-slot", 1), "observer news is created (Created: to be admitted)");
        let fourth = "observer news is created (Created: to be admitted, number 4 of 9 in line)";
        assert_eq!(created("waiting-for-slot", 4), fourth);
        assert!(created("pool-is-full", 1).ends_with("(Created: waiting for a slot in pool default)"));
    }

    #[test]
    fn an_observer_that_runs_nowhere_does_not_move() {
        let mut sent = an_observer("once", "Failed", "exited with code 1").sent().clone();
        let told =
            |sent: &serde_json::Value| Action::Move.told(&serde_json::from_value(sent.clone()).unwrap());
        sent["service"] = json!(null);
        let nowhere =
            "observer once runs on no service now, so it does not move (Failed: exited with code 1)";
        assert_eq!(told(&sent), nowhere);
        sent["service"] = json!({"id": uuid::Uuid::nil(), "name": "a"});
        assert_eq!(told(&sent), "observer once moves to another service (Failed: exited with code 1)");
    }

    #[test]
    fn an_observer_that_has_ended_is_neither_paused_nor_resumed() {
        let it = an_observer("once", "Completed", "");
        let told = "observer once has ended, so there is nothing to";
        assert_eq!(Action::Pause.told(&it), format!("{told} pause (Completed)"));
        assert_eq!(Action::Resume.told(&it), format!("{told} resume (Completed)"));
    }
}
