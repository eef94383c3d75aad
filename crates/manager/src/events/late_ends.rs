//! Ends of runs that became known after the next start.

use everwatch_core::record::events::EventKind;
use everwatch_store::Event;
use std::collections::HashMap;

/// Corrects the gaps of moves whose earlier run reported its end after the next start, but among the same events.
///
/// Two services send these two reports, so a manager can read them in either order. At the start, the end is not known, so the gap is
/// only bound by the last sign of life of the earlier service.
pub(crate) fn correct(events: &mut [Event]) {
    let ended = events.iter().filter(|it| it.kind == EventKind::HandedOver);
    let ends: HashMap<_, _> = ended
        .filter_map(|it| Some(((it.observer.as_ref()?.id, it.service.as_ref()?.id), (it.epoch?, it.at))))
        .collect();
    if ends.is_empty() {
        return;
    }
    for start in events.iter_mut().filter(|it| it.gap_is_bound) {
        let (Some(observer), Some(from)) = (&start.observer, &start.from) else { continue };
        let end = ends.get(&(observer.id, from.id)).filter(|(epoch, _)| Some(*epoch) < start.epoch);
        let Some((_, ended_at)) = end else { continue };
        let millis = |a: everwatch_core::clock::Timestamp, b| u64::try_from(a.since(b).as_millis()).ok();
        start.gap_ms = millis(start.at, *ended_at);
        start.overlap_ms = millis(*ended_at, start.at);
        start.gap_is_bound = false;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::log::plain;
    use everwatch_core::clock::Timestamp;
    use everwatch_core::epoch::Epoch;
    use everwatch_core::id::ServiceId;
    use everwatch_store::Named;
    use uuid::Uuid;

    fn of(kind: EventKind, at: i64, service: u128, epoch: (u32, u32)) -> Event {
        let observer = Named { id: Uuid::from_u128(7), name: "o".to_owned(), namespace: None };
        Event {
            observer: Some(observer),
            service: Some(Named::service(ServiceId(Uuid::from_u128(service)), "s")),
            epoch: Some(Epoch::new(epoch.0, epoch.1).into()),
            ..plain(kind, Timestamp(at), String::new())
        }
    }

    /// A start on service 2, at most 300 ms after the run on this service.
    fn started(from: u128) -> Event {
        let from = Some(Named::service(ServiceId(Uuid::from_u128(from)), "f"));
        let start = of(EventKind::Started, 1000, 2, (1, 1));
        Event { from, gap_ms: Some(300), gap_is_bound: true, overlap_ms: Some(0), ..start }
    }

    #[test]
    fn an_end_that_is_told_late_makes_the_gap_exact() {
        let handed_over = |at, service, epoch| of(EventKind::HandedOver, at, service, epoch);
        for (end, expected) in [
            (handed_over(997, 1, (1, 0)), (Some(3), Some(0), false)),
            (handed_over(1004, 1, (1, 0)), (Some(0), Some(4), false)),
            (handed_over(997, 3, (1, 0)), (Some(300), Some(0), true)),
            (handed_over(997, 1, (1, 2)), (Some(300), Some(0), true)),
            (of(EventKind::Completed, 997, 1, (1, 0)), (Some(300), Some(0), true)),
        ] {
            let mut events = [started(1), end];
            correct(&mut events);
            let it = &events[0];
            assert_eq!((it.gap_ms, it.overlap_ms, it.gap_is_bound), expected, "{:?}", events[1]);
        }
    }
}
