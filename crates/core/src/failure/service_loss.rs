//! When a service is lost. A manager suspects a service that is silent and asks the broker about its session: a service
//! whose session is gone is lost. A manager asks at once, long before the silence is noticed, when the broker has
//! delivered an observer of the service to another service.

use crate::clock::Timestamp;
use crate::id::ServiceId;
use crate::record::service::ServiceRow;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// For how long a manager asks about a service in doubt. The broker ends the session of a killed process and redelivers
/// its messages within moments, in no fixed order.
const DOUBTED_FOR: Duration = Duration::from_secs(3);

/// Services whose observers other services run although the services did not report that they handed them over. Either
/// they have died, or their reports are still on the way: only the broker knows.
#[derive(Debug, Default)]
pub struct Doubts(BTreeMap<ServiceId, Timestamp>);

impl Doubts {
    /// Adds a service; returns whether it was not in doubt. The latest reason counts: an observer that moved may have brought the
    /// service into doubt just before it died.
    pub fn add(&mut self, service: ServiceId, now: Timestamp) -> bool {
        let before = self.0.insert(service, now);
        before.is_none_or(|at| now.since(at) >= DOUBTED_FOR)
    }

    /// The services to ask about now.
    pub fn current(&mut self, now: Timestamp) -> BTreeSet<ServiceId> {
        self.0.retain(|_, at| now.since(*at) < DOUBTED_FOR);
        self.0.keys().copied().collect()
    }
}

/// The steps for silent services.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SuspicionPlan {
    /// Silent for too long: mark them as suspect.
    pub suspect: Vec<ServiceId>,
    /// Suspect (including those above), or in doubt: ask the broker about their sessions.
    pub ask: Vec<ServiceId>,
}

/// `may_conclude`: whether this manager reads the queues well enough to conclude from silence.
#[must_use]
pub fn plan_suspicion(
    services: &[ServiceRow],
    now: Timestamp,
    lost_after: Duration,
    may_conclude: bool,
    doubted: &BTreeSet<ServiceId>,
) -> SuspicionPlan {
    let mut plan = SuspicionPlan::default();
    for service in services.iter().filter(|service| service.end.is_none()) {
        let silent = may_conclude && service.is_silent(now, lost_after);
        if silent && service.suspect_since.is_none() {
            plan.suspect.push(service.id);
        }
        if silent || service.suspect_since.is_some() || doubted.contains(&service.id) {
            plan.ask.push(service.id);
        }
    }
    plan
}

/// The broker reports that a suspect's session lives. A service that still sends heartbeats is cleared; a silent one
/// remains suspect.
pub fn on_alive(service: &mut ServiceRow, now: Timestamp, lost_after: Duration) -> bool {
    if service.end.is_some() || service.suspect_since.is_none() || service.is_silent(now, lost_after) {
        return false;
    }
    service.suspect_since = None;
    service.on_session_alive(now);
    true
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Name, Pool};
    use crate::wire::heartbeat::{Heartbeat, Intent};
    use crate::wire::message::VERSION;
    use crate::wire::report::Registration;
    use uuid::Uuid;

    const LOST_AFTER: Duration = Duration::from_secs(15);

    fn at(secs: i64) -> Timestamp {
        Timestamp(secs * 1000)
    }
    fn service(number: u128, heard: i64) -> ServiceRow {
        let registration = Registration {
            name: Name::new("s").unwrap(),
            pool: Pool::default(),
            capacity: 1,
            kinds: Vec::new(),
            version: String::new(),
            weight_max: 1,
            message_version: VERSION,
            host: String::new(),
            labels: Default::default(),
            pool_single: false,
            predecessor: None,
        };
        ServiceRow::registered(ServiceId(Uuid::from_u128(number)), registration, at(heard), at(heard))
    }

    #[test]
    fn silent_services_are_suspected_only_while_the_queues_are_read() {
        let services = [service(1, 0), service(2, 10)];
        let none = BTreeSet::new();
        let quiet = plan_suspicion(&services, at(20), LOST_AFTER, false, &none);
        assert_eq!(quiet, SuspicionPlan::default());
        let plan = plan_suspicion(&services, at(20), LOST_AFTER, true, &none);
        assert_eq!(
            (plan.suspect.as_slice(), plan.ask.as_slice()),
            (&[services[0].id][..], &[services[0].id][..])
        );
    }

    #[test]
    fn the_broker_is_asked_about_every_suspect() {
        let mut suspect = service(1, 0);
        suspect.suspect(at(1));
        let plan = plan_suspicion(std::slice::from_ref(&suspect), at(2), LOST_AFTER, false, &BTreeSet::new());
        assert_eq!((plan.suspect.len(), plan.ask.as_slice()), (0, &[suspect.id][..]));
        suspect.on_session_gone(at(3));
        assert_eq!(
            plan_suspicion(&[suspect], at(4), LOST_AFTER, true, &BTreeSet::new()),
            SuspicionPlan::default()
        );
    }

    #[test]
    fn the_broker_is_asked_at_once_about_a_service_whose_observers_run_elsewhere() {
        let services = [service(1, 20), service(2, 20)];
        let mut doubts = Doubts::default();
        assert!(doubts.add(services[1].id, at(20)) && !doubts.add(services[1].id, at(22)), "once");
        let plan = plan_suspicion(&services, at(20), LOST_AFTER, true, &doubts.current(at(20)));
        assert_eq!(
            (plan.suspect.len(), plan.ask.as_slice()),
            (0, &[services[1].id][..]),
            "it is not suspect"
        );
        assert!(!doubts.current(at(24)).is_empty(), "it may have died after the first doubt");
        assert!(doubts.current(at(25)).is_empty(), "its reports were late, as the broker says");
        assert!(doubts.add(services[1].id, at(25)));
    }

    #[test]
    fn a_living_session_clears_only_suspects_that_send_heartbeats() {
        let mut beating = service(1, 10);
        beating.suspect(at(11));
        assert!(on_alive(&mut beating, at(12), LOST_AFTER));
        assert_eq!(beating.suspect_since, None);
        let mut silent = service(2, 0);
        silent.suspect(at(20));
        assert!(!on_alive(&mut silent, at(21), LOST_AFTER));
        let heartbeat = Heartbeat {
            service: silent.id,
            seq: 1,
            state: Intent::Active,
            capacity: 1,
            held: 0,
            loop_lag_ms: 0,
            rss_bytes: 0,
            sent_at: None,
            stalled: Vec::new(),
        };
        assert!(silent.on_heartbeat(&heartbeat, at(22)));
        assert_eq!(silent.suspect_since, None);
    }
}
