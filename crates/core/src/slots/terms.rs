//! What a service's decisions take in and give out.

use crate::clock::Timestamp;
use crate::epoch::Epoch;
use crate::id::{Kind, ObserverId};
use crate::message::{Cause, Floor, RunReport, Work, WorkRead};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Now, as the machine is told it.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Monotonic, since the service started.
    pub mono: Duration,
    /// The wall clock, for people.
    pub wall: Timestamp,
    /// 0..1, for jitter.
    pub chance: f64,
}

/// What a service's decisions depend on.
#[derive(Debug, Clone)]
pub struct SlotPolicy {
    pub kinds: BTreeSet<Kind>,
    pub fence_grace: Duration,
    /// How many consumers take messages for this service.
    pub consumers: u32,
    /// First and longest pause before a refused message is given back.
    pub refuse_first: Duration,
    pub refuse_max: Duration,
}

/// How a unit of code ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It returned: done.
    Done,
    /// It returned: never to be tried again.
    Failed(String),
    /// An error or a panic: the retry policy decides.
    Erred(String),
    /// It was aborted after its grace.
    Aborted,
}

/// What can happen to a service.
#[derive(Debug)]
pub enum Input<R> {
    /// A message was delivered; `R` is its receipt.
    Delivered { receipt: R, read: WorkRead, acquisitions: u32 },
    /// The managers have spoken.
    Floors(Vec<Floor>),
    /// Code has ended.
    Ended { id: ObserverId, epoch: Epoch, outcome: Outcome },
    /// The broker has confirmed the settlement report of this run.
    Confirmed { id: ObserverId, epoch: Epoch },
    /// Start these one at a time.
    Suspects(Vec<ObserverId>),
    /// The broker has the report of [`Effect::Announce`].
    Announced { id: ObserverId, epoch: Epoch },
    /// A deadline has passed ([`Slots::next_deadline`]).
    Wake,
    /// Hand these over, if they are held.
    HandOver(Vec<ObserverId>, Cause),
    /// Hand over what is held beyond so many, those first that have run the shortest time.
    HandOverDownTo(u32, Cause),
    /// Hand everything over and take nothing more.
    Drain,
    /// Give up waiting for code that is being ended.
    AbortAll,
}

/// What is to be done, in this order.
#[derive(Debug, Clone)]
pub enum Effect<R> {
    /// Run the code.
    Start { epoch: Epoch, attempt: u32, work: Arc<Work> },
    /// Tell the code to stop.
    Cancel { id: ObserverId },
    /// Stop the code whether it wants or not.
    Abort { id: ObserverId },
    /// Tell the managers; nothing waits for it.
    Report(RunReport),
    /// Tell the managers and come back with [`Input::Confirmed`].
    Settle(RunReport),
    /// Tell the managers and come back with [`Input::Announced`].
    Announce(RunReport),
    /// End the message.
    Ack(R),
    /// Give the message back.
    Requeue(R),
    /// Before this moment the queue serves every other service first: it may have room for what was refused here.
    StepBack { until: Duration },
    /// The broker has handed out again what this session holds: nothing of the session is ours any more.
    Lost { id: ObserverId, epoch: Epoch },
}
