//! The inputs and effects of a service's decisions.

use crate::clock::Timestamp;
use crate::epoch::Epoch;
use crate::id::{Kind, ObserverId};
use crate::wire::command::{Cause, Revocation};
use crate::wire::report::RunReport;
use crate::wire::work::{DecodedWork, Work};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// The current time, as the caller passes it in.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Monotonic, since the service started.
    pub mono: Duration,
    /// The wall clock, for display.
    pub wall: Timestamp,
    /// 0..1, for jitter.
    pub chance: f64,
}

/// The settings of a service's decisions.
#[derive(Debug, Clone)]
pub struct SlotPolicy {
    pub kinds: BTreeSet<Kind>,
    /// The greatest weight of an observer that it takes.
    pub weight_max: u16,
    /// The kinds whose code announces when it is ready.
    pub announce_readiness: BTreeSet<Kind>,
    pub fence_grace: Duration,
    /// The number of consumers of this service.
    pub consumers: u32,
    /// First and longest pause before a refused message is given back.
    pub refuse_first: Duration,
    pub refuse_max: Duration,
}

/// Why code is told to stop.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum CancelReason {
    /// The observer is deleted.
    Deleted,
    /// The observer is paused.
    Paused,
    /// The observer restarts: its definition changed, or a user requested a restart.
    Restarted,
    /// Another run of the observer replaces this one.
    Replaced,
    /// The observer continues on another service: a user or a rebalance moved it.
    Moved,
    /// The observer continues on another service, because this one stops, is drained or gets fewer slots.
    Drained,
    /// The attempt has run for its `attempt_timeout`: the retry policy decides whether another one follows.
    TimedOut,
    /// The `finish_at` of the observer has passed.
    Finished,
    /// The window of the observer has closed. The observer starts again in its next window.
    WindowClosed,
    /// The service may have lost its session with the broker, so that another service may run the observer already.
    Fenced,
}

/// How the code of an observer ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It returned: it is done.
    Done,
    /// The same, with a result as JSON text.
    DoneWith(String),
    /// It returned: it must not be retried.
    Failed(String),
    /// An error or a panic: the retry policy decides.
    Errored(String),
    /// It was aborted after its grace.
    Aborted,
}

/// An input of the state machine.
#[derive(Debug)]
pub enum Input<R> {
    /// A message was delivered; `R` is its receipt.
    Delivered { receipt: R, read: DecodedWork, acquisitions: u32 },
    /// A manager sent a revocation.
    Revocations(Vec<Revocation>),
    /// The code of an observer has ended.
    Ended { id: ObserverId, epoch: Epoch, outcome: Outcome },
    /// The code of an observer, in this attempt, has announced that it is ready.
    Ready { id: ObserverId, epoch: Epoch, attempt: u32 },
    /// The broker has confirmed the settlement report of this run.
    Confirmed { id: ObserverId, epoch: Epoch },
    /// The time by the database's clock.
    Time(Timestamp),
    /// Start these one at a time.
    CrashLooping(Vec<ObserverId>),
    /// The broker has confirmed the report of [`Effect::Announce`].
    Announced { id: ObserverId, epoch: Epoch },
    /// A deadline has passed ([`Slots::next_deadline`]).
    Wake,
    /// Hand these over, if they are held.
    HandOver(Vec<ObserverId>, Cause),
    /// Hand over observers until this many slots are in use, those with the shortest run first.
    HandOverDownTo(u32, Cause),
    /// Hand everything over and take nothing more. Without a cause, the service was told to end.
    Drain(Option<Cause>),
    /// Stop waiting for code that is ending.
    AbortAll,
}

/// An effect; the caller carries out effects in order.
#[derive(Debug, Clone)]
pub enum Effect<R> {
    /// Run the code.
    Start { epoch: Epoch, attempt: u32, work: Arc<Work> },
    /// Tell the code to stop.
    Cancel { id: ObserverId, reason: CancelReason },
    /// Abort the code.
    Abort { id: ObserverId },
    /// Report to the managers; nothing waits for the confirm.
    Report(RunReport),
    /// Report to the managers; feed [`Input::Confirmed`] once the broker confirms.
    Settle(RunReport),
    /// Report to the managers; feed [`Input::Announced`] once the broker confirms.
    Announce(RunReport),
    /// Acknowledge the message.
    Ack(R),
    /// Acknowledge the message, and send the report once the queue has accepted that.
    Release(R, RunReport),
    /// Give the message back.
    Requeue(R),
    /// Until then, the queue serves every other service first: one of them may run the observers refused here.
    StepBack { until: Duration },
    /// The broker redelivered a message that this session holds, so the session no longer owns any message.
    Lost { id: ObserverId, epoch: Epoch },
}
