//! Events of the history as the API shows them.

use everwatch_api::{Event, EventBurst, LogRequester, NamedThing, Run};
use everwatch_core::epoch::Epoch;
use everwatch_core::record::bursts::Burst;
use everwatch_store::By;

/// An entry of the history.
pub(crate) fn event(event: everwatch_store::Event) -> Event {
    Event {
        id: event.id,
        at: event.at,
        kind: event.kind,
        observer: event.observer.map(observer),
        service: event.service.map(named),
        epoch: event.epoch,
        epoch_string: event.epoch.map(|epoch| Epoch::from(epoch).to_string()),
        text: event.text,
        from: event.from.map(named),
        gap_ms: event.gap_ms,
        gap_is_bound: event.gap_is_bound,
        overlap_ms: event.overlap_ms,
        by: event.by.map(|By { who, from, with }| LogRequester { who, from, with }),
        burst: event.burst.as_ref().map(burst),
    }
}

fn burst(it: &Burst) -> EventBurst {
    let Burst { count, since, until, moves } = *it;
    EventBurst {
        count,
        since,
        until,
        gap_ms_median: moves.map(|it| it.gap_ms_median),
        gap_ms_p99: moves.map(|it| it.gap_ms_p99),
        gap_ms_max: moves.map(|it| it.gap_ms_max),
        gap_is_bound: moves.is_some_and(|it| it.gap_is_bound),
        overlap_ms_max: moves.map(|it| it.overlap_ms_max),
    }
}

/// The run that this event started.
pub(crate) fn run(epoch: Epoch, event: &everwatch_store::Event) -> Run {
    Run {
        epoch: epoch.into(),
        epoch_string: epoch.to_string(),
        generation: epoch.generation(),
        acquisitions: epoch.acquisitions(),
        service: event.service.clone().map(named),
        started_at: event.at,
        ended_at: None,
        ended: None,
        attempts: 1,
        gap_ms: event.gap_ms,
        gap_is_bound: event.gap_is_bound,
    }
}

fn named(it: everwatch_store::Named) -> NamedThing {
    NamedThing { id: it.id, name: it.name, namespace: None }
}

fn observer(it: everwatch_store::Named) -> NamedThing {
    let namespace = it.namespace.clone().unwrap_or_default();
    NamedThing { namespace: Some(namespace.to_string()), ..named(it) }
}
