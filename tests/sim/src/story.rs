//! Prints a history for a reader: the events of the world and the logs of the shipped programs, in simulated
//! time.

use crate::machine;
use crate::record::Fact;
use crate::world::World;
use std::fmt;
use tracing::subscriber::DefaultGuard;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::time::FormatTime;

struct SimulatedTime;

impl FormatTime for SimulatedTime {
    fn format_time(&self, to: &mut Writer<'_>) -> fmt::Result {
        write!(to, "{}  host {}", moment(machine::now()), machine::host())
    }
}

/// A moment of simulated time, in seconds.
pub(crate) fn moment(now: u64) -> String {
    format!("{:>6}.{:03}", now / 1000, now % 1000)
}

/// Shows what the programs on this thread log, until the guard is dropped.
pub(crate) fn tell() -> DefaultGuard {
    let subscriber = tracing_subscriber::fmt()
        .with_ansi(false)
        .with_target(false)
        .with_timer(SimulatedTime)
        .with_writer(std::io::stderr)
        .with_max_level(tracing::Level::INFO);
    tracing::subscriber::set_default(subscriber.finish())
}

impl World {
    pub(crate) fn tell_fact(&self, fact: &Fact) {
        let known = &self.judge.knowledge;
        let host = |host: &usize| self.hosts[*host].name.clone();
        let line = match fact {
            Fact::Started(it) => {
                let name = known.name(it.id);
                format!("{} starts {name} {}, attempt {}", host(&it.host), it.epoch, it.attempt)
            }
            Fact::Ended { start, own } => {
                let Some(it) = known.starts.get(start) else { return };
                format!("{} {} ends on {}: {own:?}", known.name(it.id), it.epoch, host(&it.host))
            }
            Fact::Published { id, generation, .. } => {
                format!("published: {} generation {generation}", known.name(*id))
            }
            Fact::Delivered { host: to, id, epoch, .. } => {
                format!("delivered: {} {epoch} to {}", known.name(*id), host(to))
            }
            Fact::TakenBack { id, epoch, loss, .. } => {
                format!("back in the queue: {} {epoch} ({loss:?})", known.name(*id))
            }
            Fact::Acknowledged { host: by, id, epoch, .. } => {
                format!("acknowledged: {} {epoch} by {}", known.name(*id), host(by))
            }
            Fact::Heard { host: by, command } => format!("{} hears {command:?}", host(by)),
            Fact::Saved { before, after, .. } => {
                let verdict = after.verdict();
                if before.as_ref().is_some_and(|before| {
                    before.verdict() == verdict && before.generation == after.generation
                }) {
                    return;
                }
                let (name, status) = (&after.definition.name, verdict.status);
                format!("row {name}: {status} {} ({})", after.epoch(), verdict.reason)
            }
            Fact::AnswerLost { .. } => {
                "FAULT a write of the database is committed and never answered".to_owned()
            }
            Fact::Frozen { host: it } => format!("{} is frozen", host(it)),
            Fact::Thawed { host: it } => format!("{} thaws", host(it)),
            Fact::Mislaid { id, epoch, .. } => format!("{} {epoch} never arrives", known.name(*id)),
            Fact::Abandoned { id, epoch, .. } => format!("{} {epoch} belongs to no session", known.name(*id)),
            Fact::WorkLost => "the work queues are lost".to_owned(),
            Fact::Rewound { messages } => format!("{} older messages are back", messages.len()),
            Fact::SafeMode { on } => format!("safe mode: {on}"),
            Fact::Restored => "the database is restored from its backup".to_owned(),
            Fact::ServiceSaved { row } if row.end.is_some() || row.suspect_since.is_some() => {
                format!("service row {}: {:?}", row.registration.name, row.state())
            }
            _ => return,
        };
        self.tell(|_| line);
    }
}
