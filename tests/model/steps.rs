//! The steps that are possible in a state, and their effects.

use crate::protocol::{Event, Link, Message, Phase, Protocol, Publish, Service, State};
use everwatch_core::epoch::Epoch;

/// One step. The numbers name a service, a manager or an observer, in this order.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    Publish(usize, Publish),
    Confirm(usize, Publish),
    Deliver(usize, Message),
    /// Code that was told to stop has stopped.
    End(usize, Message),
    Ack(usize, Message),
    HearRevocation(usize, usize),
    /// The inventory of a service reports a run that was revoked.
    List(usize, Message),
    Apply(Message, Event),
    Delete(usize),
    SendRevocation(usize),
    /// A manager republishes because a lease has expired, or because a stopped observer should run.
    Republish(usize, usize, Revocation),
    Fence(usize),
    /// The broker gives up a silent service.
    Drop(usize),
    Rebirth(usize),
    // Faults.
    Cut(usize),
    Reset(usize),
    Kill(usize),
    CrashManager(usize),
    /// A lease ends while its publish is under way.
    SlowPublish(usize, usize),
}

/// Whether the revocation before a republish is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Revocation {
    Told,
    Lost,
}

impl Protocol {
    pub(crate) fn enabled(&self, state: &State, steps: &mut Vec<Step>) {
        for (m, publishes) in state.managers.iter().enumerate() {
            for publish in publishes {
                let step = if publish.sent { Step::Confirm } else { Step::Publish };
                steps.push(step(m, *publish));
            }
        }
        steps.extend(state.reports.iter().map(|(message, event)| Step::Apply(*message, *event)));
        for (s, service) in state.services.iter().enumerate() {
            self.of_service(state, (s, service), steps);
        }
        for observer in 0..self.observers {
            self.of_row(state, observer, steps);
        }
        if state.faults > 0 {
            let publishing = state.managers.iter().enumerate().filter(|(_, publishes)| !publishes.is_empty());
            steps.extend(publishing.map(|(m, _)| Step::CrashManager(m)));
        }
    }

    /// Whether only requests of users and faults could still change the state.
    pub(crate) fn is_at_rest(&self, state: &State) -> bool {
        let mut steps = Vec::new();
        self.enabled(state, &mut steps);
        let from_outside =
            |step: &Step| matches!(step, Step::Delete(_) | Step::Cut(_) | Step::Reset(_) | Step::Kill(_));
        steps.iter().all(from_outside)
    }

    fn of_service(&self, state: &State, (s, service): (usize, &Service), steps: &mut Vec<Step>) {
        if service.link != Link::Up {
            if !service.fenced {
                steps.push(Step::Fence(s));
            }
            let silent = service.link == Link::Cut && (service.fenced || !self.fenced);
            if silent && !service.given.is_empty() {
                steps.push(Step::Drop(s));
            }
            if service.fenced && service.given.is_empty() {
                steps.push(Step::Rebirth(s));
            }
            return;
        }
        let room = service.given.len() < self.observers;
        steps.extend(state.ready.iter().filter(|_| room).map(|message| Step::Deliver(s, *message)));
        for (message, phase) in &service.held {
            let row = &state.rows[message.observer];
            let unheard = service.mail[message.observer] < row.revocation();
            match phase {
                Phase::Ending => steps.push(Step::End(s, *message)),
                Phase::Settled => steps.push(Step::Ack(s, *message)),
                Phase::Running if message.epoch < row.revocation() && unheard => {
                    steps.push(Step::List(s, *message));
                }
                Phase::Running | Phase::Waiting => {}
            }
        }
        for observer in 0..self.observers {
            if service.mail[observer] > service.revocations[observer] {
                steps.push(Step::HearRevocation(s, observer));
            }
        }
        if state.faults > 0 && !service.given.is_empty() {
            steps.extend([Step::Cut(s), Step::Reset(s), Step::Kill(s)]);
        }
    }

    fn of_row(&self, state: &State, observer: usize, steps: &mut Vec<Step>) {
        let row = &state.rows[observer];
        // Only the first observer can be deleted, so that a deleted and a live observer are checked together.
        if !row.deleted && observer == 0 {
            steps.push(Step::Delete(observer));
        }
        let knows = |service: &Service| {
            service.fenced || service.revocations[observer].max(service.mail[observer]) >= row.revocation()
        };
        if row.deleted && row.settled.is_none() && !state.services.iter().all(knows) {
            steps.push(Step::SendRevocation(observer));
        }
        let present = Message::published(observer, row.generation);
        let leased = state.managers.iter().flatten().any(|publish| publish.message == present);
        let stopped = row.settled.is_some() && !row.deleted;
        if stopped || (row.marked && !leased) {
            steps.extend((0..2).map(|m| Step::Republish(m, observer, Revocation::Told)));
            if state.faults > 0 {
                steps.extend((0..2).map(|m| Step::Republish(m, observer, Revocation::Lost)));
            }
        } else if row.marked && state.faults > 0 {
            steps.extend((0..2).map(|m| Step::SlowPublish(m, observer)));
        }
    }
}

impl State {
    pub(crate) fn take(&mut self, step: Step) {
        match step {
            Step::Publish(m, publish) => {
                self.managers[m].remove(&publish);
                self.managers[m].insert(Publish { sent: true, ..publish });
                self.ready.insert(publish.message);
            }
            Step::Confirm(m, publish) => {
                self.managers[m].remove(&publish);
                let row = &mut self.rows[publish.message.observer];
                row.marked &= row.generation != publish.message.epoch.generation();
            }
            Step::Deliver(s, message) => self.deliver(s, message),
            Step::End(s, message) => self.settle(s, (message, Phase::Ending)),
            Step::Ack(s, message) => self.ack(s, message),
            Step::HearRevocation(s, observer) => self.hear(s, observer),
            Step::List(_, message) => self.apply(message, Event::Started),
            Step::Apply(message, event) => {
                self.reports.remove(&(message, event));
                self.apply(message, event);
            }
            Step::Delete(observer) => self.rows[observer].deleted = true,
            Step::SendRevocation(observer) => self.tell(observer),
            Step::Republish(m, observer, revocation) => {
                self.faults -= u8::from(revocation == Revocation::Lost);
                self.republish(m, observer, revocation);
            }
            Step::Fence(s) => self.services[s].end_all(),
            Step::Drop(s) => self.give_back(s),
            Step::Rebirth(s) => self.rebirth(s),
            Step::Cut(s) => {
                self.faults -= 1;
                self.services[s].link = Link::Cut;
            }
            Step::Reset(s) => {
                self.faults -= 1;
                self.services[s].link = Link::Reset;
                self.give_back(s);
            }
            Step::Kill(s) => {
                self.faults -= 1;
                self.services[s].link = Link::Cut;
                self.services[s].end_all();
                self.give_back(s);
            }
            Step::CrashManager(m) => {
                self.faults -= 1;
                self.managers[m].clear();
            }
            Step::SlowPublish(m, observer) => {
                self.faults -= 1;
                self.republish(m, observer, Revocation::Told);
            }
        }
    }

    fn deliver(&mut self, s: usize, message: Message) {
        self.ready.remove(&message);
        let service = &mut self.services[s];
        service.given.insert(message);
        let same = service.held.iter().copied().find(|(held, _)| held.observer == message.observer);
        match same {
            _ if message.epoch < service.revocations[message.observer] => {
                self.settle(s, (message, Phase::Waiting));
            }
            None => self.start(s, message),
            Some((held, _)) if held.epoch > message.epoch => self.settle(s, (message, Phase::Waiting)),
            Some((held, phase)) => {
                service.held.insert((message, Phase::Waiting));
                match phase {
                    Phase::Running => {
                        service.held.remove(&(held, phase));
                        service.held.insert((held, Phase::Ending));
                    }
                    Phase::Waiting => self.settle(s, (held, phase)),
                    Phase::Ending | Phase::Settled => {}
                }
            }
        }
    }

    fn start(&mut self, s: usize, message: Message) {
        let service = &mut self.services[s];
        if message.epoch < service.revocations[message.observer] {
            return self.settle(s, (message, Phase::Waiting));
        }
        service.held.remove(&(message, Phase::Waiting));
        service.held.insert((message, Phase::Running));
        self.reports.insert((message, Event::Started));
    }

    /// Settles a run: reports its end and confirms the report.
    fn settle(&mut self, s: usize, (message, phase): (Message, Phase)) {
        self.services[s].held.remove(&(message, phase));
        self.services[s].held.insert((message, Phase::Settled));
        self.reports.insert((message, Event::Stopped));
    }

    fn ack(&mut self, s: usize, message: Message) {
        let service = &mut self.services[s];
        let settled = service.held.remove(&(message, Phase::Settled));
        if !settled || !service.given.remove(&message) {
            self.broken.get_or_insert("an acknowledgement of what was not settled or not given");
        }
        let service = &self.services[s];
        let of_it = |held: &&(Message, Phase)| held.0.observer == message.observer;
        let next = service.held.iter().filter(of_it).copied().collect::<Vec<_>>();
        if let [(waiting, Phase::Waiting)] = next[..] {
            self.start(s, waiting);
        }
    }

    fn hear(&mut self, s: usize, observer: usize) {
        let service = &mut self.services[s];
        service.revocations[observer] = service.mail[observer];
        let below = service.revocations[observer];
        let doomed: Vec<_> = service.held.iter().copied().collect();
        for (message, phase) in doomed {
            if message.observer != observer || message.epoch >= below {
                continue;
            }
            match phase {
                Phase::Running => {
                    self.services[s].held.remove(&(message, phase));
                    self.services[s].held.insert((message, Phase::Ending));
                }
                Phase::Waiting | Phase::Ending | Phase::Settled => {}
            }
        }
    }

    fn apply(&mut self, message: Message, event: Event) {
        let (generation, acquisitions) = (message.epoch.generation(), message.epoch.acquisitions());
        let row = &mut self.rows[message.observer];
        if generation == row.generation {
            row.marked = false;
            row.heard.insert((event, acquisitions));
            if event == Event::Stopped {
                row.settled = Some(row.settled.map_or(acquisitions, |known| known.min(acquisitions)));
            }
        }
        if event == Event::Started && message.epoch < row.revocation() {
            self.tell(message.observer);
        }
    }

    /// Sends the row's revocation to every connected service.
    fn tell(&mut self, observer: usize) {
        let revocation = self.rows[observer].revocation();
        for service in
            self.services.iter_mut().filter(|service| service.link != Link::Reset && !service.fenced)
        {
            service.mail[observer] = service.mail[observer].max(revocation);
        }
    }

    fn republish(&mut self, m: usize, observer: usize, revocation: Revocation) {
        let row = &mut self.rows[observer];
        row.generation += 1;
        row.marked = true;
        row.settled = None;
        row.heard.clear();
        let message = Message::published(observer, row.generation);
        self.managers[m].insert(Publish { message, sent: false });
        if revocation == Revocation::Told {
            self.tell(observer);
        }
    }

    fn give_back(&mut self, s: usize) {
        let given = std::mem::take(&mut self.services[s].given);
        self.ready.extend(given.into_iter().map(Message::redelivered));
    }

    fn rebirth(&mut self, s: usize) {
        let welcome = |observer: usize| match self.rows.get(observer) {
            Some(row) if row.deleted && row.settled.is_none() => row.revocation(),
            _ => Epoch::default(),
        };
        let mail = [welcome(0), welcome(1)];
        let service = &mut self.services[s];
        service.link = Link::Up;
        service.fenced = false;
        service.mail = mail;
    }
}
