//! What happened to an observer between two versions of its row, in words; and how a move went.

use crate::clock::Timestamp;
use crate::epoch::Epoch;
use crate::id::{Name, ServiceId};
use crate::row::{Desired, Row};
use crate::seen::{Doing, Left, Ran, Settlement, Told};
use crate::status::Status;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;
use std::time::Duration;

macro_rules! words {
    ($($(#[$doc:meta])* $variant:ident = $word:literal,)*) => {
        /// One kind of event.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum What { $($(#[$doc])* #[serde(rename = $word)] $variant,)* }

        impl What {
            /// Every word.
            pub const ALL: &[Self] = &[$(Self::$variant,)*];
            /// The word as it is written.
            #[must_use]
            pub fn as_str(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
        }
    };
}

words! {
    Created = "created",
    /// It ran, and the database did not know it.
    Adopted = "adopted",
    Changed = "changed",
    PauseAsked = "pause_asked",
    ResumeAsked = "resume_asked",
    RestartAsked = "restart_asked",
    MoveAsked = "move_asked",
    DeleteAsked = "delete_asked",
    /// A new generation is to be published.
    Reissued = "reissued",
    Started = "started",
    /// Its code was started again within the same run.
    Restarted = "restarted",
    Erred = "erred",
    HandedOver = "handed_over",
    Refused = "refused",
    /// Its message is taken out of the queue: no service of its pool can run it now.
    Withdrawn = "withdrawn",
    Stopped = "stopped",
    Completed = "completed",
    Failed = "failed",
    Deleted = "deleted",
    ServiceBorn = "service_born",
    ServiceSuspect = "service_suspect",
    ServiceLost = "service_lost",
    ServiceGone = "service_gone",
    ServiceCordoned = "service_cordoned",
    ServiceUncordoned = "service_uncordoned",
    ServiceDraining = "service_draining",
    /// Nothing is held there any more.
    ServiceDrained = "service_drained",
    ServiceResized = "service_resized",
    Rebalanced = "rebalanced",
    WorkQueueCreated = "work_queue_created",
    Hold = "hold",
    /// So many seemed to be lost at once that only some are published anew now.
    ReissuesCapped = "reissues_capped",
    /// Services died shortly after it had started there: from now on it starts alone.
    Suspected = "suspected",
    /// So many would be quarantined at once that none is.
    QuarantineCapped = "quarantine_capped",
}

impl fmt::Display for What {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for What {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        Self::ALL.iter().copied().find(|what| what.as_str() == text).ok_or_else(|| {
            let words = Self::ALL.iter().map(|what| what.as_str()).collect::<Vec<_>>().join(", ");
            format!("`{text}` is not an event: one of {words}")
        })
    }
}

/// One thing that happened to an observer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Happening {
    pub what: What,
    pub at: Timestamp,
    pub epoch: Epoch,
    pub service: Option<ServiceId>,
    /// The cause, as far as it is known.
    pub text: String,
}

/// What led from one version of a row to a later one. `before` is `None` for a new one.
#[must_use]
pub fn happenings(before: Option<&Row>, after: &Row) -> Vec<Happening> {
    let mut told = Teller { after, list: Vec::new() };
    let Some(before) = before else {
        told.plainly(What::Created, format!("kind {} in pool {}", after.wanted.kind, after.wanted.pool));
        return told.list;
    };
    if before.wanted != after.wanted {
        told.plainly(What::Changed, String::new());
    }
    if before.desired != after.desired {
        let what = match after.desired {
            Desired::Running => What::ResumeAsked,
            Desired::Paused => What::PauseAsked,
            Desired::Deleted => What::DeleteAsked,
        };
        told.plainly(what, String::new());
    }
    if after.withdrawn_at.is_some() && before.withdrawn_at != after.withdrawn_at {
        told.plainly(What::Withdrawn, withdrawn(after));
    } else if after.ending.is_some() && before.ending != after.ending {
        told.plainly(What::RestartAsked, String::new());
    }
    if after.generation > before.generation {
        told.plainly(What::Reissued, cause(before).to_owned());
    }
    told.seen(before);
    let status = |row: &Row| row.verdict().status;
    if status(before) != Status::Deleted && status(after) == Status::Deleted {
        told.plainly(What::Deleted, String::new());
    }
    told.list
}

/// A row that was made of what a service holds. `told` is the name in its message.
#[must_use]
pub fn adopted(after: &Row, told: &Name) -> Happening {
    let text = if *told == after.wanted.name {
        "it ran, and the database did not know it".to_owned()
    } else {
        format!("it ran as {told}, which the database knows as another observer's name")
    };
    let epoch = after.epoch();
    Happening { what: What::Adopted, at: after.modified_at, epoch, service: None, text }
}

fn withdrawn(after: &Row) -> String {
    let (pool, kind) = (&after.wanted.pool, &after.wanted.kind);
    format!(
        "no active service of pool {pool} that runs kind {kind} has a free slot: its message leaves the queue"
    )
}

fn cause(before: &Row) -> &'static str {
    if before.mark.is_some() {
        "the broker did not confirm its publish"
    } else if before.seen.settled.is_some() || before.generation == 0 {
        "it is to run again"
    } else {
        "its message was not to be found"
    }
}

struct Teller<'a> {
    after: &'a Row,
    list: Vec<Happening>,
}

impl Teller<'_> {
    fn plainly(&mut self, what: What, text: String) {
        let (at, epoch) = (self.after.modified_at, self.after.epoch());
        self.list.push(Happening { what, at, epoch, service: None, text });
    }

    fn say(&mut self, what: What, (service, at): (ServiceId, Timestamp), acquisitions: u32, text: String) {
        let epoch = Epoch::new(self.after.generation, acquisitions);
        self.list.push(Happening { what, at, epoch, service: Some(service), text });
    }

    fn seen(&mut self, before: &Row) {
        let nothing = crate::seen::Seen::default();
        let old = if before.generation == self.after.generation { &before.seen } else { &nothing };
        let new = &self.after.seen;
        if let Some(start) = &new.started
            && old.started.as_ref().is_none_or(|known| start.key > known.key)
            && let Some(ran) = &new.ran
        {
            let same_run =
                old.started.as_ref().is_some_and(|known| known.key.acquisitions == start.key.acquisitions);
            let what = if same_run { What::Restarted } else { What::Started };
            let text = format!("attempt {}", start.value.attempt);
            self.say(what, (ran.service, start.value.at), start.key.acquisitions, text);
        }
        if let Some(error) = &new.last_error
            && old.last_error.as_ref().is_none_or(|known| error.key > known.key)
            && let Some(latest) = &new.latest
            && matches!(latest.doing, Doing::Restarting { .. })
        {
            let (key, text) = (error.key, error.value.clone());
            self.say(What::Erred, (latest.service, latest.at), key.acquisitions, text);
        }
        // Not by what is latest: the next service's start may be heard before this one's goodbye.
        for tenure in &new.tenures {
            let known =
                old.tenures.iter().any(|it| it.acquisitions == tenure.acquisitions && it.left.is_some());
            if let Some(Told { value: Left { at, cause }, .. }) = tenure.left
                && !known
            {
                let text = cause.map_or_else(String::new, |cause| cause.as_str().to_owned());
                self.say(What::HandedOver, (tenure.service, at), tenure.acquisitions, text);
            }
        }
        if let Some(latest) = &new.latest
            && old.latest.as_ref().is_none_or(|known| latest.key > known.key)
        {
            let who = (latest.service, latest.at);
            match &latest.doing {
                Doing::Refused { why } => {
                    self.say(What::Refused, who, latest.key.acquisitions, why.clone());
                }
                Doing::Held { .. }
                | Doing::Running
                | Doing::Restarting { .. }
                | Doing::HandedOver
                | Doing::HandedOverFor { .. } => {}
            }
        }
        if let Some(settled) = &new.settled
            && old.settled.is_none()
        {
            let (what, text) = match &settled.how {
                Settlement::Stopped => (What::Stopped, String::new()),
                Settlement::Completed => (What::Completed, String::new()),
                Settlement::Failed { error, .. } => (What::Failed, error.clone()),
            };
            self.say(what, (settled.service, settled.at), settled.key.acquisitions, text);
        }
    }
}

/// How an observer came from one service to the next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// Time without a run.
    pub gap: Duration,
    /// Time in which two runs were reported at once.
    pub overlap: Duration,
}

/// `heard` is when the earlier run's service was last heard of, which counts where the run itself did not
/// say that it was over.
#[must_use]
pub fn moved(earlier: &Ran, heard: Option<Timestamp>, next_start: Timestamp) -> Move {
    let end = if earlier.over { earlier.at } else { heard.map_or(earlier.at, |heard| heard.max(earlier.at)) };
    Move { gap: next_start.since(end), overlap: end.since(next_start) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::id::ObserverId;
    use crate::message::{RunEvent, RunReport};
    use crate::observer::Wanted;
    use crate::plan::plan_row;
    use crate::row::RowPolicy;
    use serde_json::json;
    use uuid::Uuid;

    fn at(secs: i64) -> Timestamp {
        Timestamp(secs * 1000)
    }
    fn row() -> Row {
        let wanted = Wanted::parse(json!({"kind": "ticker"}), &Name::new("a").unwrap()).unwrap();
        Row::created(ObserverId(Uuid::from_u128(1)), wanted, at(0), &RowPolicy::default())
    }
    /// Changes the row and tells what happened, as words.
    fn tell(row: &mut Row, change: impl FnOnce(&mut Row)) -> Vec<String> {
        let before = row.clone();
        change(row);
        let line = |it: Happening| format!("{} {} {}", it.what, it.epoch, it.text).trim().to_owned();
        happenings(Some(&before), row).into_iter().map(line).collect()
    }
    fn hear(row: &mut Row, (acquisitions, seq): (u32, u64), event: RunEvent) -> Vec<String> {
        let epoch = Epoch::new(row.generation, acquisitions);
        let report = RunReport { id: row.id, epoch, event };
        let service = ServiceId(Uuid::from_u128(u128::from(acquisitions)));
        let now = at(i64::try_from(seq).unwrap());
        tell(row, |row| {
            row.apply(service, seq, now, &report, now);
        })
    }
    fn started(attempt: u32, secs: i64) -> RunEvent {
        RunEvent::Started { attempt, started_at: at(secs) }
    }

    #[test]
    fn a_life_is_told_event_by_event() {
        let mut row = row();
        assert_eq!(happenings(None, &row)[0].text, "kind ticker in pool default");
        assert_eq!(hear(&mut row, (0, 1), started(1, 1)), ["started 1.0 attempt 1"]);
        assert!(hear(&mut row, (0, 1), started(1, 1)).is_empty(), "heard twice, happened once");
        let erred = RunEvent::Erred { attempt: 1, error: "e".into(), next_at: at(3) };
        assert_eq!(hear(&mut row, (0, 2), erred), ["erred 1.0 e"]);
        assert_eq!(hear(&mut row, (0, 3), started(2, 3)), ["restarted 1.0 attempt 2"]);
        assert_eq!(hear(&mut row, (0, 4), RunEvent::HandedOver), ["handed_over 1.0"]);
        assert!(hear(&mut row, (1, 1), RunEvent::Taken { reason: "r".into(), refuses: false }).is_empty());
        assert_eq!(hear(&mut row, (1, 2), started(1, 5)), ["started 1.1 attempt 1"]);
        let policy = RowPolicy::default();
        assert_eq!(
            tell(&mut row, |row| assert_eq!(row.restart(at(6), &policy), Ok(true))),
            ["restart_asked 1.1"]
        );
        assert_eq!(hear(&mut row, (1, 3), RunEvent::Stopped), ["stopped 1.1"]);
        let again = tell(&mut row, |row| *row = plan_row(row, at(7), &policy).unwrap().row);
        assert_eq!(again, ["reissued 2.0 it is to run again"]);
        assert_eq!(tell(&mut row, |row| assert!(row.delete(at(8), &policy))), ["delete_asked 2.0"]);
        assert_eq!(hear(&mut row, (0, 9), RunEvent::Stopped), ["stopped 2.0", "deleted 2.0"]);
    }

    #[test]
    fn every_word_reads_back() {
        for what in What::ALL {
            assert_eq!(what.as_str().parse(), Ok(*what));
            assert_eq!(serde_json::to_value(what).unwrap(), what.as_str());
        }
        assert!("moved".parse::<What>().unwrap_err().contains("started"));
    }

    #[test]
    fn a_move_has_a_gap_or_an_overlap() {
        let mut row = row();
        hear(&mut row, (0, 1), started(1, 1));
        hear(&mut row, (1, 2), RunEvent::Taken { reason: "r".into(), refuses: false });
        hear(&mut row, (1, 3), started(1, 20));
        let earlier = row.seen.before.clone().unwrap();
        assert_eq!((earlier.key.acquisitions, earlier.over), (0, false));
        let seconds = |it: Move| (it.gap.as_secs(), it.overlap.as_secs());
        assert_eq!(seconds(moved(&earlier, Some(at(12)), at(20))), (8, 0), "killed, last heard of at 12");
        assert_eq!(seconds(moved(&earlier, Some(at(23)), at(20))), (0, 3), "it lived on");
        assert_eq!(seconds(moved(&earlier, None, at(20))), (19, 0), "nothing but its own word");
        hear(&mut row, (0, 15), RunEvent::HandedOver);
        let earlier = row.seen.before.clone().unwrap();
        assert_eq!(seconds(moved(&earlier, Some(at(99)), at(20))), (5, 0), "it said when it was over");
    }
}
