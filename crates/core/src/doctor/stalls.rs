//! Services in which the code of an observer blocks a thread.

use super::{Finding, Severity};
use crate::clock::show;
use crate::record::service::ServiceRow;
use std::time::Duration;

/// One finding per service: its longest stall, and the number of others.
pub(super) fn findings(services: &[ServiceRow]) -> Vec<Finding> {
    services.iter().filter_map(finding).collect()
}

fn finding(service: &ServiceRow) -> Option<Finding> {
    let stalled = &service.heartbeat.as_ref()?.stalled;
    // The heartbeat of a silent service is too old to tell.
    let is_current = service.suspect_since.is_none() && !service.state().is_over();
    let longest = stalled.first().filter(|_| is_current)?;
    let lasted = show(Duration::from_secs(longest.stalled_ms / 1000));
    let others = match stalled.len() - 1 {
        0 => String::new(),
        1 => ", and one other does so".to_owned(),
        count => format!(", and {count} others do so"),
    };
    let (name, observer) = (&service.registration.name, &longest.name);
    Some(Finding {
        code: "code-stalls",
        severity: Severity::Warning,
        subject: format!("service {name}"),
        what: format!("the code of observer {observer} blocks a thread, for {lasted} so far{others}"),
        why: "other observers may have to wait for a thread, and nothing but the end of the process ends this code; \
              `[service] stall_limit` replaces the process"
            .to_owned(),
        cure: format!(
            "move its blocking calls to `tokio::task::spawn_blocking`, or give its kind threads of its own; until then, \
             `everwatch observer pause {observer}` and restart service {name}"
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::{Name, ObserverId};
    use crate::wire::heartbeat::StalledObserver;
    use uuid::Uuid;

    fn service(stalled: &[(&str, u64)]) -> ServiceRow {
        let mut row = crate::doctor::tests::service(1, "a", 10);
        let named = stalled.iter().map(|(name, stalled_ms)| StalledObserver {
            id: ObserverId(Uuid::nil()),
            name: Name::new(name).unwrap(),
            stalled_ms: *stalled_ms,
        });
        row.heartbeat.as_mut().unwrap().stalled = named.collect();
        row
    }

    #[test]
    fn a_stall_names_its_service_and_observer_and_what_to_do() {
        assert_eq!(findings(&[service(&[])]), []);
        let found = findings(&[service(&[("hog", 61_900)])]);
        assert_eq!((found.len(), &*found[0].subject), (1, "service a"));
        assert_eq!(found[0].what, "the code of observer hog blocks a thread, for 1m 1s so far");
        assert!(found[0].cure.contains("observer pause hog") && found[0].cure.contains("restart service a"));
        let three = findings(&[service(&[("hog", 61_000), ("b", 2000), ("c", 1000)])]);
        assert!(three[0].what.ends_with("and 2 others do so"), "{three:?}");
    }

    #[test]
    fn the_stall_of_an_ended_or_silent_service_is_over() {
        let mut silent = service(&[("hog", 61_000)]);
        assert!(silent.suspect(silent.heard_at));
        assert_eq!(findings(&[silent]), []);
        let mut over = service(&[("hog", 61_000)]);
        over.on_session_gone(over.heard_at);
        assert_eq!(findings(&[over]), []);
    }
}
