//! The code of simulated observers. The spec determines what it does and how long it takes to stop. Its
//! starts and ends are recorded.

use crate::machine;
use crate::record::{Fact, Start, note, number};
use everwatch::{Context, Error, Exit, Observer};
use everwatch_core::epoch::Epoch;
use everwatch_core::run::slots::Outcome;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::time::Duration;

/// What an observer's code does. Times are milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Does {
    RunsForEver,
    CompletesAfter(u64),
    FailsAfter(u64),
    /// Ends with an error `times` times, then runs for ever.
    Errs {
        times: u32,
        after: u64,
    },
    Panics {
        times: u32,
        after: u64,
    },
    /// Ends the service's process this many ms after each start.
    EndsItsService(u64),
}

/// How the code reacts to a cancellation. Times are in milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Stops {
    After(u64),
    /// It never stops by itself; the service must abort it.
    Never,
}

/// A spec.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub(crate) struct Code {
    pub(crate) does: Does,
    pub(crate) stops: Stops,
    /// Counts the changes that users made to it.
    pub(crate) edition: u32,
    /// If set, it counts to [`SAVES_UP_TO`] with this pause between two numbers, and saves each as a checkpoint.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) saves_every: Option<u64>,
}

/// The last number: no checkpoints are saved in the quiet time.
const SAVES_UP_TO: u64 = 30;

impl Code {
    pub(crate) fn of(spec: &str) -> Self {
        serde_json::from_str(spec).unwrap()
    }
    /// Whether the code ends the processes of its services.
    pub(crate) fn is_deadly(&self) -> bool {
        matches!(self.does, Does::EndsItsService(_))
    }
}

/// The host that code runs on, shared with all observers of its service.
pub(crate) struct Here(pub(crate) usize);

/// Records the end of a start, whatever caused it.
struct Running {
    start: u64,
    own: Option<Outcome>,
}

impl Drop for Running {
    fn drop(&mut self) {
        note(Fact::Ended { start: self.start, own: self.own.take() });
    }
}

async fn run(code: Code, ctx: Context) -> Result<Exit, Error> {
    let here = ctx.shared::<Here>().expect("every simulated service shares its host");
    let start = Start {
        number: number(),
        host: here.0,
        id: ctx.id().parse()?,
        epoch: Epoch::from(ctx.epoch()),
        attempt: ctx.attempt(),
        edition: code.edition,
    };
    let mut running = Running { start: start.number, own: None };
    note(Fact::Started(start));
    let work = async {
        tokio::select! {
            outcome = until_its_end(code, &ctx) => outcome,
            never = save(code, &ctx) => never,
        }
    };
    let ended = ctx.until_cancelled(work).await;
    let Some(outcome) = ended else {
        match code.stops {
            Stops::After(ms) => tokio::time::sleep(Duration::from_millis(ms)).await,
            Stops::Never => std::future::pending().await,
        }
        return Ok(Exit::Done);
    };
    match outcome {
        Outcome::Done | Outcome::DoneWith(_) => {
            running.own = Some(Outcome::Done);
            Ok(Exit::Done)
        }
        Outcome::Failed(why) => {
            running.own = Some(Outcome::Failed(why.clone()));
            Ok(Exit::Failed(why))
        }
        Outcome::Errored(why) => {
            running.own = Some(Outcome::Errored(why.clone()));
            if matches!(code.does, Does::Panics { .. }) {
                std::panic::resume_unwind(Box::new(why));
            }
            Err(why.into())
        }
        Outcome::Aborted => {
            note(Fact::EndedItsService);
            machine::exit_process(1);
            std::future::pending().await
        }
    }
}

/// Continues to count from the checkpoint of an earlier run; never ends.
async fn save(code: Code, ctx: &Context) -> Outcome {
    // An error says that the session is lost: the service ends the code soon.
    let _lost = try_save(code, ctx).await;
    std::future::pending().await
}

async fn try_save(code: Code, ctx: &Context) -> Result<(), Error> {
    let Some(pause) = code.saves_every else { return Ok(()) };
    let (id, epoch) = (ctx.id().parse()?, Epoch::from(ctx.epoch()));
    let mut count = ctx.restored::<u64>().await?.map_or(0, |it| it.value);
    note(Fact::CheckpointRestored { id, epoch, count });
    while count < SAVES_UP_TO {
        tokio::time::sleep(Duration::from_millis(pause)).await;
        count += 1;
        ctx.checkpoint(&count).await?;
        note(Fact::CheckpointStored { id, epoch, count });
    }
    Ok(())
}

async fn until_its_end(code: Code, ctx: &Context) -> Outcome {
    let (after, outcome) = match code.does {
        Does::CompletesAfter(after) => (after, Outcome::Done),
        Does::FailsAfter(after) => (after, Outcome::Failed("bad business".to_owned())),
        Does::Errs { times, after } | Does::Panics { times, after } if ctx.attempt() <= times => {
            (after, Outcome::Errored("bad luck".to_owned()))
        }
        Does::EndsItsService(after) => (after, Outcome::Aborted),
        Does::RunsForEver | Does::Errs { .. } | Does::Panics { .. } => return std::future::pending().await,
    };
    tokio::time::sleep(Duration::from_millis(after)).await;
    outcome
}

macro_rules! kind {
    ($name:ident, $kind:literal) => {
        #[derive(Deserialize, JsonSchema)]
        #[serde(transparent)]
        pub(crate) struct $name(Code);

        impl Observer for $name {
            const KIND: &'static str = $kind;
            async fn run(self, ctx: Context) -> Result<Exit, Error> {
                run(self.0, ctx).await
            }
        }
    };
}

kind!(Common, "common");
kind!(Rare, "rare");
