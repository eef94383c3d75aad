//! When a service is lost. A manager suspects a service that is silent and asks the broker about its session: a service
//! whose session is gone is lost.

use crate::clock::Timestamp;
use crate::id::ServiceId;
use crate::record::service::ServiceRow;
use std::time::Duration;

/// The steps for silent services.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct SuspicionPlan {
    /// Silent for too long: mark them as suspect.
    pub suspect: Vec<ServiceId>,
    /// Suspect (including those above): ask the broker about their sessions.
    pub ask: Vec<ServiceId>,
}

/// `may_conclude`: whether this manager reads the queues well enough to conclude from silence.
#[must_use]
pub fn plan_suspicion(
    services: &[ServiceRow],
    now: Timestamp,
    lost_after: Duration,
    may_conclude: bool,
) -> SuspicionPlan {
    let mut plan = SuspicionPlan::default();
    for service in services.iter().filter(|service| service.end.is_none()) {
        let silent = may_conclude && service.is_silent(now, lost_after);
        if silent && service.suspect_since.is_none() {
            plan.suspect.push(service.id);
        }
        if silent || service.suspect_since.is_some() {
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
        let quiet = plan_suspicion(&services, at(20), LOST_AFTER, false);
        assert_eq!(quiet, SuspicionPlan::default());
        let plan = plan_suspicion(&services, at(20), LOST_AFTER, true);
        assert_eq!(
            (plan.suspect.as_slice(), plan.ask.as_slice()),
            (&[services[0].id][..], &[services[0].id][..])
        );
    }

    #[test]
    fn the_broker_is_asked_about_every_suspect() {
        let mut suspect = service(1, 0);
        suspect.suspect(at(1));
        let plan = plan_suspicion(std::slice::from_ref(&suspect), at(2), LOST_AFTER, false);
        assert_eq!((plan.suspect.len(), plan.ask.as_slice()), (0, &[suspect.id][..]));
        suspect.on_session_gone(at(3));
        assert_eq!(plan_suspicion(&[suspect], at(4), LOST_AFTER, true), SuspicionPlan::default());
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
