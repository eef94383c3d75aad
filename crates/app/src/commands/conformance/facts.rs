//! What the worker has told so far: its reports and heartbeats, in the order in which they came.

use everwatch_core::epoch::Epoch;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::wire::heartbeat::Heartbeat;
use everwatch_core::wire::report::{Registration, Report, RunEvent, SequencedReport};
use std::time::Instant;

/// A report.
#[derive(Debug, Clone)]
pub(super) struct Told {
    pub(super) service: ServiceId,
    pub(super) entry: SequencedReport,
    /// The number of its state queue.
    pub(super) queue: u16,
    pub(super) came: Instant,
}

/// A message of the queue for unreadable messages.
#[derive(Debug, Clone)]
pub(super) struct Parked {
    pub(super) body: Vec<u8>,
    pub(super) reason: Option<String>,
    pub(super) queue: Option<String>,
}

/// Everything that was told.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) reports: Vec<Told>,
    pub(super) heartbeats: Vec<(Heartbeat, Instant)>,
    pub(super) probes: Vec<(ServiceId, Instant)>,
    pub(super) parked: Vec<Parked>,
    /// The bodies of replies about logs.
    pub(super) replies: Vec<Vec<u8>>,
    /// Messages that are no reports or heartbeats.
    pub(super) unreadable: Vec<String>,
}

impl Facts {
    /// The registrations, each with its service.
    pub(super) fn registrations(&self) -> impl Iterator<Item = (ServiceId, &Registration)> {
        self.reports.iter().filter_map(|told| match &told.entry.report {
            Report::ServiceRegistered(registration) => Some((told.service, registration.as_ref())),
            _ => None,
        })
    }

    /// The events of an observer, each with its epoch and time.
    pub(super) fn events(&self, id: ObserverId) -> Vec<(Epoch, &RunEvent, Instant)> {
        let mut events = Vec::new();
        for told in &self.reports {
            if let Report::Run(run) = &told.entry.report
                && run.id == id
            {
                events.push((run.epoch, &run.event, told.came));
            }
        }
        events
    }

    /// The events of an observer in words, such as `started 1.0`.
    pub(super) fn story(&self, id: ObserverId) -> Vec<String> {
        self.events(id).iter().map(|(epoch, event, _)| format!("{} {epoch}", word(event))).collect()
    }

    /// The newest heartbeat of a service.
    pub(super) fn heartbeat(&self, service: ServiceId) -> Option<&Heartbeat> {
        self.heartbeats.iter().rev().map(|(heartbeat, _)| heartbeat).find(|it| it.service == service)
    }

    /// A gap or a repetition in the numbers of the reports of a service. They count over all state queues.
    pub(super) fn wrong_number(&self) -> Option<String> {
        let mut services: Vec<(ServiceId, u64)> = Vec::new();
        let mut reports: Vec<&Told> = self.reports.iter().collect();
        if reports.iter().any(|told| told.queue > 0) {
            reports.sort_by_key(|told| told.entry.seq);
        }
        for told in reports {
            let seq = told.entry.seq;
            match services.iter_mut().find(|(service, _)| *service == told.service) {
                None if seq != 1 => return Some(format!("its first report has the number {seq}, not 1")),
                None => services.push((told.service, 1)),
                Some((_, last)) if seq == *last + 1 => *last = seq,
                Some((_, last)) => return Some(format!("report number {last} is followed by number {seq}")),
            }
        }
        None
    }
}

/// The name of an event on the wire.
pub(super) fn word(event: &RunEvent) -> &'static str {
    match event {
        RunEvent::Held { .. } => "held",
        RunEvent::Starting { .. } => "starting",
        RunEvent::Started { .. } => "started",
        RunEvent::Errored { .. } => "errored",
        RunEvent::Progress { .. } => "progress",
        RunEvent::HandedOver => "handed_over",
        RunEvent::HandedOverFor { .. } => "handed_over_for",
        RunEvent::Released => "released",
        RunEvent::Refused { .. } => "refused",
        RunEvent::Stopped => "stopped",
        RunEvent::Completed | RunEvent::CompletedWith { .. } => "completed",
        RunEvent::Finished { .. } => "finished",
        RunEvent::Failed { .. } => "failed",
    }
}
