//! The state of the model: what the database, the broker, the services and the managers know.

use crate::properties::properties;
use crate::steps::Step;
use everwatch_core::epoch::Epoch;
use stateright::{Model, Property};
use std::collections::BTreeSet;

/// The size of the model.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Protocol {
    pub(crate) observers: usize,
    pub(crate) faults: u8,
    /// Whether a service stops all its runs before the broker redelivers the messages of the silent service.
    pub(crate) fenced: bool,
}

/// A message of the work queue: an observer and an epoch, that is, the number of the publish and of the
/// delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Message {
    pub(crate) observer: usize,
    pub(crate) epoch: Epoch,
}

impl Message {
    pub(crate) fn published(observer: usize, generation: u32) -> Self {
        Self { observer, epoch: Epoch::first_of(generation) }
    }
    pub(crate) fn redelivered(self) -> Self {
        let epoch = Epoch::new(self.epoch.generation(), self.epoch.acquisitions() + 1);
        Self { epoch, ..self }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Event {
    Started,
    Stopped,
}

/// The row of one observer.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Row {
    pub(crate) generation: u32,
    pub(crate) deleted: bool,
    /// Whether the message is not known to be in the queue.
    pub(crate) marked: bool,
    /// Acquisitions of the run that ended this generation.
    pub(crate) settled: Option<u32>,
    /// All reports of this generation that managers have applied.
    pub(crate) heard: BTreeSet<(Event, u32)>,
}

impl Row {
    pub(crate) fn revocation(&self) -> Epoch {
        if self.deleted || self.settled.is_some() {
            return Epoch::after_generation(self.generation);
        }
        let run = self.heard.iter().map(|(_, acquisitions)| *acquisitions).max();
        Epoch::new(self.generation, run.unwrap_or(0))
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Phase {
    /// A later message of the same observer, which waits until the run of the earlier one has ended.
    Waiting,
    Running,
    /// Told to stop, and still running.
    Ending,
    /// Its end is reported and confirmed.
    Settled,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Link {
    Up,
    /// No data passes in either direction.
    Cut,
    /// The broker has closed the connection, and the service does not know it.
    Reset,
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Service {
    pub(crate) link: Link,
    pub(crate) fenced: bool,
    /// The messages that the service believes to hold, with their phases.
    pub(crate) held: BTreeSet<(Message, Phase)>,
    /// The messages that the broker has delivered to the service.
    pub(crate) given: BTreeSet<Message>,
    /// The highest revocation that the service has received, by observer. `mail`: the highest that is on its
    /// way.
    pub(crate) revocations: [Epoch; 2],
    pub(crate) mail: [Epoch; 2],
}

impl Service {
    /// Stops all runs of this incarnation and discards its state.
    pub(crate) fn end_all(&mut self) {
        self.fenced = true;
        self.held.clear();
        self.revocations = [Epoch::default(); 2];
        self.mail = [Epoch::default(); 2];
    }
}

/// A publish of a manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Publish {
    pub(crate) message: Message,
    pub(crate) sent: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) rows: Vec<Row>,
    pub(crate) ready: BTreeSet<Message>,
    /// Reports on their way to the managers, in no order.
    pub(crate) reports: BTreeSet<(Message, Event)>,
    pub(crate) services: [Service; 2],
    pub(crate) managers: [BTreeSet<Publish>; 2],
    pub(crate) faults: u8,
    /// A rule that a step broke.
    pub(crate) broken: Option<&'static str>,
}

impl State {
    /// Everything that executes: by service and message.
    pub(crate) fn running(&self) -> impl Iterator<Item = (usize, Message)> {
        self.services.iter().enumerate().flat_map(|(s, service)| {
            let runs = |phase: &Phase| matches!(phase, Phase::Running | Phase::Ending);
            service.held.iter().filter(move |(_, phase)| runs(phase)).map(move |(message, _)| (s, *message))
        })
    }
}

impl State {
    fn forget_what_changes_nothing(&mut self) {
        if self.faults == 0 {
            // The time of a confirm matters only for managers that may still crash before it.
            for (m, publishes) in self.managers.clone().into_iter().enumerate() {
                for publish in publishes.into_iter().filter(|publish| publish.sent) {
                    self.take(Step::Confirm(m, publish));
                }
            }
        }
        let rows = &mut self.rows;
        // Managers ignore the end of an older generation.
        self.reports.retain(|(message, event)| {
            *event == Event::Started || message.epoch.generation() >= rows[message.observer].generation
        });
        // Of a settled generation, only the report that settled it matters.
        for row in rows.iter_mut().filter(|row| row.settled.is_some()) {
            row.heard.retain(|(event, run)| *event == Event::Stopped && Some(*run) == row.settled);
        }
    }
}

impl Model for Protocol {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let none = Epoch::default();
        let service = Service {
            link: Link::Up,
            fenced: false,
            held: BTreeSet::new(),
            given: BTreeSet::new(),
            revocations: [none; 2],
            mail: [none; 2],
        };
        let row = Row { generation: 1, deleted: false, marked: true, settled: None, heard: BTreeSet::new() };
        let publish = |observer| Publish { message: Message::published(observer, 1), sent: false };
        vec![State {
            rows: vec![row; self.observers],
            ready: BTreeSet::new(),
            reports: BTreeSet::new(),
            services: [service.clone(), service],
            managers: [(0..self.observers).map(publish).collect(), BTreeSet::new()],
            faults: self.faults,
            broken: None,
        }]
    }

    fn actions(&self, state: &State, actions: &mut Vec<Step>) {
        self.enabled(state, actions);
    }

    fn next_state(&self, last: &State, step: Step) -> Option<State> {
        let mut state = last.clone();
        state.take(step);
        state.forget_what_changes_nothing();
        // Services are interchangeable, and so are managers: sorting merges states that differ only in their
        // numbers.
        state.services.sort();
        state.managers.sort();
        Some(state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties()
    }
}
