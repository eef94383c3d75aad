//! What the managers say to this service.

use super::Life;
use crate::metric;
use everwatch_core::message::{Command, HandOver, Intent, Terms, Welcome, decode};
use everwatch_core::slots::Input;
use std::time::Duration;
use tokio::time::Instant;

/// How long the queue serves a service first that comes back after a goodbye: in a rolling deploy work
/// goes to those that were restarted already.
const COMES_FIRST: Duration = Duration::from_secs(60);
/// Observers to be handed over that wait for the blocks to be closed.
const HAND_OVERS_MAX: usize = 10_000;
/// The shortest and the longest rest that is kept to.
const REST_MIN: Duration = Duration::from_secs(1);
const REST_MAX: Duration = Duration::from_secs(60);

impl Life {
    pub(super) async fn on_command(&mut self, body: &[u8]) {
        let me = self.me.id;
        match decode::<Command>(body) {
            Ok(Command::Floors(floors)) => self.step(Input::Floors(floors)).await,
            Ok(Command::Welcome(welcome)) => self.on_welcome(*welcome).await,
            Ok(Command::Suspect(ids)) => self.step(Input::Suspects(ids)).await,
            Ok(Command::Describe { service, ids }) => self.describe(service, &ids).await,
            Ok(Command::Logs(asked)) => self.tell_logs(asked),
            Ok(Command::Terms { service, terms }) if service == me => self.follow(terms),
            Ok(Command::HandOver(asked)) if asked.service == me => self.on_hand_over(asked),
            Ok(Command::Terms { .. } | Command::HandOver(_)) => {}
            Ok(Command::Unknown(_)) => tracing::debug!("a command of a newer version is passed over"),
            Err(error) => {
                metrics::counter!(metric::UNREADABLE).increment(1);
                tracing::warn!(%error, "an unreadable command is dropped");
            }
        }
    }

    async fn on_welcome(&mut self, welcome: Welcome) {
        self.step(Input::Suspects(welcome.suspects)).await;
        self.step(Input::Floors(welcome.floors)).await;
        if welcome.service != self.me.id {
            return;
        }
        let waited = !std::mem::replace(&mut self.welcomed, true);
        // A late welcome is still the only message that carries the orders of the predecessor to a new incarnation.
        if let Some(terms) = welcome.terms {
            self.follow(terms);
        }
        if welcome.returning && waited {
            self.blocks.come_first(self.started.elapsed() + COMES_FIRST);
        }
    }

    /// What may be taken from now on.
    fn follow(&mut self, terms: Terms) {
        if terms.revision <= self.terms.revision {
            return;
        }
        let capacity = terms.capacity.unwrap_or_else(|| self.me.settings.capacity.slots());
        tracing::info!(cordoned = terms.cordoned, draining = terms.draining, capacity, "told what to take");
        self.terms = terms;
        if capacity != self.blocks.capacity() {
            self.blocks.resize(capacity);
        }
        let cordoned = terms.cordoned || terms.draining;
        self.blocks.cordon(cordoned);
        if !cordoned {
            self.to_hand_over.clear();
        }
        self.beat(self.intent());
    }

    fn on_hand_over(&mut self, asked: HandOver) {
        let now = self.started.elapsed();
        let until = now + asked.rest.clamp(REST_MIN, REST_MAX);
        if let Some(most) = asked.down_to {
            self.blocks.limit(most, now, until);
            self.asked_for = asked.cause;
        }
        if !asked.ids.is_empty() && self.to_hand_over.len() < HAND_OVERS_MAX {
            // Naively, one that takes anew is given back what it hands over.
            self.blocks.rest(until);
            self.to_hand_over.extend(asked.ids);
        }
    }

    pub(super) fn intent(&self) -> Intent {
        match self.terms {
            Terms { draining: true, .. } => Intent::Draining,
            Terms { cordoned: true, .. } => Intent::Cordoned,
            Terms { .. } => Intent::Active,
        }
    }

    pub(super) fn next_deadline(&self) -> Instant {
        let times = [self.slots.next_deadline(), self.blocks.next_deadline(self.started.elapsed())];
        let soonest = times.into_iter().flatten().min();
        soonest.map_or_else(|| Instant::now() + REST_MAX, |at| self.started + at)
    }
}
