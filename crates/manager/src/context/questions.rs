//! The questions to services that wait for their answers.

use crate::lock::lock;
use everwatch_core::id::RepliesId;
use everwatch_core::wire::logs::{Lines, LogsAnswer};
use std::collections::HashMap;
use std::sync::Mutex;
use tokio::sync::oneshot;
use tracing::debug;
use uuid::Uuid;

/// Questions that wait for their answers at once.
const WAITING_MAX: usize = 1000;

/// Who waits for which answer.
#[derive(Debug)]
pub(crate) struct Questions {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    to: RepliesId,
    last: u64,
    waiting: HashMap<u64, oneshot::Sender<Lines>>,
}

impl Default for Questions {
    fn default() -> Self {
        let state = State { to: RepliesId(Uuid::nil()), last: 0, waiting: HashMap::new() };
        Self { state: Mutex::new(state) }
    }
}

/// One question. When it is dropped, its answer is no longer awaited.
pub(crate) struct Asked<'a> {
    questions: &'a Questions,
    pub(crate) number: u64,
    pub(crate) to: RepliesId,
}

impl Drop for Asked<'_> {
    fn drop(&mut self) {
        lock(&self.questions.state).waiting.remove(&self.number);
    }
}

impl Questions {
    /// A new queue for the answers of a new session: the broker may keep that of a lost one for a while.
    pub(crate) fn begin(&self) -> RepliesId {
        let to = RepliesId(Uuid::new_v4());
        lock(&self.state).to = to;
        to
    }
    pub(crate) fn to(&self) -> RepliesId {
        lock(&self.state).to
    }
    pub(crate) fn ask(&self) -> Option<(Asked<'_>, oneshot::Receiver<Lines>)> {
        let mut state = lock(&self.state);
        if state.waiting.len() >= WAITING_MAX {
            return None;
        }
        state.last += 1;
        let (number, to) = (state.last, state.to);
        let (sender, answer) = oneshot::channel();
        state.waiting.insert(number, sender);
        Some((Asked { questions: self, number, to }, answer))
    }
    pub(crate) fn on_answer(&self, LogsAnswer { number, lines }: LogsAnswer) {
        let waiting = lock(&self.state).waiting.remove(&number);
        if waiting.is_none_or(|waiting| waiting.send(lines).is_err()) {
            debug!("an answer came too late");
        }
    }
}
