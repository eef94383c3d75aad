//! Batches as transcripts: what happens to the members, and what the next step says.

use super::*;
use crate::batch::BatchAction::{Cancel, Continue, Delete, RetryFailed};
use uuid::Uuid;

/// A batch and its members by status, as one database holds them.
struct Stage {
    now: Timestamp,
    batch: Batch,
    counts: Counts,
}

impl Stage {
    /// A batch whose request has stored none of its members.
    fn new(total: u32) -> Self {
        let now = Timestamp(1_000_000);
        let batch = Batch {
            id: BatchId(Uuid::from_u128(1)),
            version: 1,
            touched_at: now,
            name: Name::new("b").unwrap(),
            namespace: Namespace::default(),
            total,
            max_running: None,
            state: BatchState::Creating,
            reason: None,
            by: None,
            created_at: now,
            modified_at: now,
            ended_at: None,
            retried_before: None,
            completions: 0,
            outbox: Vec::new(),
            samples: vec![Sample { at: now, settled: 0 }],
            counts: Counts::new(),
        };
        Self { now, batch, counts: Counts::new() }
    }
    fn later(&mut self, secs: u64) -> &mut Self {
        self.now = self.now.plus(Duration::from_secs(secs));
        self
    }
    /// Its request stores members.
    fn stores(&mut self, members: u32) -> &mut Self {
        self.batch.touched_at = self.now;
        *self.counts.entry(Status::Created).or_default() += members;
        self
    }
    fn turn(&mut self, members: u32, from: Status, to: Status) -> &mut Self {
        *self.counts.get_mut(&from).unwrap() -= members;
        *self.counts.entry(to).or_default() += members;
        self
    }
    fn ends(&mut self, members: u32, to: Status) -> &mut Self {
        self.turn(members, Status::Created, to)
    }
    fn act(&mut self, action: BatchAction) -> Result<bool, NotNow> {
        self.batch.act(action, Some("ada"), self.now)
    }
    /// Takes steps until nothing changes.
    #[track_caller]
    fn then(&mut self, state: BatchState, todo: Todo) -> &mut Self {
        while let Some(next) = step(&self.batch, &self.counts, self.now) {
            assert_ne!(next, self.batch);
            self.batch = next;
        }
        assert_eq!((self.batch.state, super::todo(&self.batch)), (state, todo));
        self
    }
}

#[test]
fn a_batch_completes_once_all_members_exist_and_have_ended() {
    let mut it = Stage::new(4);
    it.then(BatchState::Creating, Todo::Nothing).stores(3).then(BatchState::Creating, Todo::Nothing);
    it.ends(3, Status::Completed).then(BatchState::Creating, Todo::Nothing);
    it.stores(1).then(BatchState::Running, Todo::Nothing);
    it.later(1).ends(1, Status::Failed).then(BatchState::Completed, Todo::Emit);
    let completed = it.batch.outbox[0].clone();
    assert_eq!((completed.completion, completed.members, completed.completed_at), (1, 4, it.now));
    assert_eq!(completed.counts, [("Completed".to_owned(), 3), ("Failed".to_owned(), 1)].into());
    it.batch.outbox.clear();
    it.then(BatchState::Completed, Todo::Nothing);
    // A user retries one member by itself: the batch stays completed.
    it.turn(1, Status::Failed, Status::Created).later(60).then(BatchState::Completed, Todo::Nothing);
}

#[test]
fn all_members_may_have_ended_before_the_last_one_is_stored() {
    let mut it = Stage::new(2);
    it.stores(2).ends(2, Status::Deleted).then(BatchState::Completed, Todo::Emit);
}

#[test]
fn a_paused_or_scheduled_member_keeps_its_batch_running() {
    let mut it = Stage::new(2);
    it.stores(2).ends(1, Status::Paused).ends(1, Status::Scheduled).then(BatchState::Running, Todo::Nothing);
    it.turn(1, Status::Paused, Status::Completed).then(BatchState::Running, Todo::Nothing);
    it.turn(1, Status::Scheduled, Status::Completed).then(BatchState::Completed, Todo::Emit);
}

#[test]
fn a_request_that_was_cut_off_makes_the_batch_incomplete_until_it_is_sent_again() {
    let mut it = Stage::new(4);
    it.stores(2).later(20).stores(1).later(29).then(BatchState::Creating, Todo::Nothing);
    it.later(1).then(BatchState::Incomplete, Todo::Nothing);
    assert!(it.batch.reason.as_ref().unwrap().contains("after 3 of 4 members"), "{:?}", it.batch.reason);
    it.ends(3, Status::Completed).later(9999).then(BatchState::Incomplete, Todo::Nothing);
    assert_eq!(it.act(RetryFailed), Err(NotNow(BatchState::Incomplete)));
    assert_eq!(it.act(Delete), Err(NotNow(BatchState::Incomplete)));
    assert_eq!(it.act(Continue), Ok(true));
    it.then(BatchState::Creating, Todo::Nothing);
    assert_eq!((it.act(Continue), &it.batch.reason), (Ok(false), &None));
    it.stores(1).then(BatchState::Running, Todo::Nothing);
    it.ends(1, Status::Completed).then(BatchState::Completed, Todo::Emit);
    assert_eq!(it.act(Continue), Ok(false));
}

#[test]
fn an_incomplete_batch_is_cancelled_with_the_members_that_exist() {
    let mut it = Stage::new(4);
    it.stores(2).later(30).then(BatchState::Incomplete, Todo::Nothing);
    assert_eq!(it.act(Cancel), Ok(true));
    it.then(BatchState::Cancelling, Todo::End);
    assert_eq!(it.act(Continue), Err(NotNow(BatchState::Cancelling)));
    it.ends(1, Status::Deleted).then(BatchState::Cancelling, Todo::End);
    it.ends(1, Status::OnDeleting).then(BatchState::Cancelling, Todo::End);
    it.turn(1, Status::OnDeleting, Status::Deleted).then(BatchState::Cancelled, Todo::Nothing);
    assert_eq!((it.batch.completions, it.batch.counts.get(&Status::Deleted)), (0, Some(&2)));
    assert_eq!(it.act(Cancel), Ok(false));
    assert_eq!(it.act(RetryFailed), Err(NotNow(BatchState::Cancelled)));
    assert_eq!(it.act(Delete), Ok(true));
    it.then(BatchState::Deleting, Todo::Remove);
    assert_eq!((it.act(Delete), it.act(Cancel)), (Ok(false), Err(NotNow(BatchState::Deleting))));
}

#[test]
fn a_retry_completes_the_batch_again() {
    let mut it = Stage::new(3);
    it.stores(3).ends(1, Status::Completed).ends(2, Status::Failed).then(BatchState::Completed, Todo::Emit);
    assert_eq!(it.act(RetryFailed), Ok(true));
    // The first completion is still to be published.
    it.then(BatchState::Running, Todo::Emit);
    it.batch.outbox.clear();
    it.then(BatchState::Running, Todo::Retry { from: 0 });
    it.turn(1, Status::Failed, Status::Created);
    it.batch.retried_before = Some(2);
    it.then(BatchState::Running, Todo::Retry { from: 2 });
    // All have ended, but the retry has not come to its end.
    it.ends(1, Status::Completed).then(BatchState::Running, Todo::Retry { from: 2 });
    it.batch.retried_before = None;
    it.then(BatchState::Completed, Todo::Emit);
    assert_eq!(it.batch.outbox[0].completion, 2);
    assert_eq!(
        it.batch.outbox[0].counts,
        [("Completed", 2), ("Failed", 1)].map(|(status, count)| (status.to_owned(), count)).into()
    );
}

#[test]
fn the_rate_is_that_of_the_last_five_minutes() {
    let mut it = Stage::new(1000);
    it.stores(1000);
    assert_eq!((it.batch.rate(0, it.now), it.batch.time_left(0, it.now)), (None, None));
    it.later(1).ends(10, Status::Completed);
    assert_eq!(it.batch.rate(10, it.now), Some(600.0));
    assert_eq!(it.batch.time_left(10, it.now), Some(Duration::from_secs(99)));
    // Ten a minute, for ten minutes; then none.
    for _ in 0..20 {
        it.later(30).ends(5, Status::Completed).then(BatchState::Running, Todo::Nothing);
    }
    let ended = settled(&it.counts);
    assert_eq!((ended, it.batch.rate(ended, it.now)), (110, Some(10.0)));
    assert!(it.batch.samples.len() <= 12, "{:?}", it.batch.samples);
    for _ in 0..11 {
        it.later(30).then(BatchState::Running, Todo::Nothing);
    }
    assert_eq!((it.batch.rate(ended, it.now), it.batch.time_left(ended, it.now)), (Some(0.0), None));
    // Managers were away for an hour.
    it.later(3600).ends(60, Status::Completed);
    let rate = it.batch.rate(ended + 60, it.now).unwrap();
    assert!(rate > 0.9 && rate < 1.1, "{rate}");
}

#[test]
fn members_that_do_not_end_have_no_time_left() {
    let mut it = Stage::new(8);
    it.stores(8);
    it.later(1).ends(7, Status::Completed).then(BatchState::Running, Todo::Nothing);
    assert!(it.batch.time_left(7, it.now).is_some());
    for (secs, is_estimated) in [(30, true), (30, true), (30, true), (1, false), (30, false)] {
        it.later(secs).then(BatchState::Running, Todo::Nothing);
        assert_eq!(it.batch.time_left(7, it.now).is_some(), is_estimated, "{:?}", it.batch.samples);
        assert!(it.batch.rate(7, it.now).is_some_and(|rate| rate > 0.0));
    }
    // Of a small batch, too.
    let mut it = Stage::new(4);
    it.stores(4);
    it.later(1).ends(3, Status::Completed).then(BatchState::Running, Todo::Nothing);
    for (secs, is_estimated) in [(30, true), (60, true), (1, false)] {
        it.later(secs).then(BatchState::Running, Todo::Nothing);
        assert_eq!(it.batch.time_left(3, it.now).is_some(), is_estimated, "{:?}", it.batch.samples);
    }
    // A slow batch has long pauses.
    let mut it = Stage::new(10);
    it.stores(10);
    for _ in 0..4 {
        it.later(70).then(BatchState::Running, Todo::Nothing);
        it.later(1).ends(1, Status::Completed).then(BatchState::Running, Todo::Nothing);
    }
    it.later(100).then(BatchState::Running, Todo::Nothing);
    assert!(it.batch.time_left(4, it.now).is_some(), "{:?}", it.batch.samples);
}

#[test]
fn the_newest_batches_that_are_over_are_kept() {
    let sized = |sizes: &[u32]| {
        let batch = |(place, total): (usize, &u32)| Batch {
            id: BatchId(Uuid::from_u128(place as u128)),
            ..Stage::new(*total).batch
        };
        sizes.iter().enumerate().map(batch).collect::<Vec<_>>()
    };
    let gone =
        |sizes: &[u32]| beyond(sized(sizes).iter()).iter().map(|id| id.0.as_u128()).collect::<Vec<_>>();
    assert_eq!(gone(&[1; ENDED_KEPT]), []);
    assert_eq!(gone(&[1; ENDED_KEPT + 2]), [100, 101]);
    assert_eq!(gone(&[10_000; 22]), [20, 21]);
}
