//! The database as a manager reaches it. Each operation takes time in both directions and may meet a fault.
//! The database has its own clock. Commits are recorded for the judge.

mod access;
mod scheduling;

use crate::machine;
use crate::record::{Fact, note};
use async_trait::async_trait;
use everwatch_core::capacity::admission::{PoolOffers, Selection};
use everwatch_core::capacity::placement::Refused;
use everwatch_core::capacity::preemption::{Look, Preempted};
use everwatch_core::clock::Timestamp;
use everwatch_core::doctor::Schema;
use everwatch_core::id::{Name, ObserverId, ObserverRef, Pool, ServiceId, ServiceRef};
use everwatch_core::record::row::Row;
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_core::record::service::ServiceRow;
use everwatch_core::record::status::Status;
use everwatch_core::wire::checkpoint::{Checkpoint, CheckpointRestored, CheckpointStored, CheckpointWanted};
use everwatch_core::wire::report::{InventoryRange, RangeTotal};
use everwatch_core::wire::trace::TraceContext;
use everwatch_store::{
    Admission, Backlog, Backup, Change, Checkpoints, Counts, Created, Decided, DefinitionVersion, Event,
    EventFilter, EventPage, EventRange, Events, Filter, Found, HealthCounts, HeldWeights, KeyValue,
    Limits as _, ListCursor, MatchingCounts, MemoryStore, ObserverResult, Observers, Page, Parked,
    ParkedHead, ParkedMessages, Place, Services, Store, StoreError, Unreadable, WaitingPools, Worklists,
};
use futures::FutureExt as _;
use std::collections::BTreeMap;
use std::num::{NonZeroU64, NonZeroU128};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The latency in one direction, in ms.
const WAY: u64 = 1;
/// How long a client waits for a missing answer, in ms.
const ANSWER_WITHIN: u64 = 5000;

/// The span in the traces of user requests.
const REQUEST_SPAN: NonZeroU64 = NonZeroU64::MIN;

/// The trace of a user request. A manager saves the changes of several requests together, so the task that saves a row
/// does not tell whose change it is; the trace in the row does.
pub(crate) fn trace_of(request: u64) -> TraceContext {
    let number = NonZeroU128::MIN.saturating_add(request.into());
    TraceContext::new(number, REQUEST_SPAN, 0)
}

/// The number of the user request that made this change, if one did.
fn request_of(change: &Change<'_>) -> Option<u64> {
    let trace = change.after.trace.as_ref().filter(|trace| change.before.trace.as_ref() != Some(*trace))?;
    let number = u64::try_from(trace.trace.get() - 1).ok();
    number.filter(|_| trace.span == REQUEST_SPAN)
}

/// The database server.
pub(crate) struct Database {
    pub(crate) memory: MemoryStore,
    pub(crate) away: AtomicBool,
    /// Whether the disk is full: reads succeed, writes fail.
    pub(crate) full: AtomicBool,
    /// Added to the latency in each direction, in ms.
    pub(crate) delay: AtomicU64,
    /// How many of the next writes are committed but not confirmed to the client.
    pub(crate) loses_answers: AtomicU32,
    /// Rows that were read, over all operations.
    pub(crate) rows_read: AtomicU64,
    /// The number of writes. `looked_at`: all rows after the write with the given number.
    writes: AtomicU64,
    looked_at: Mutex<(u64, Arc<[Row]>)>,
}

impl Default for Database {
    fn default() -> Self {
        let memory = MemoryStore::new(RowPolicy::default());
        for limit in crate::history::limits() {
            memory.put_limit(&limit).now_or_never().expect("the store in memory never waits").unwrap();
        }
        Self {
            memory,
            away: AtomicBool::default(),
            full: AtomicBool::default(),
            delay: AtomicU64::default(),
            loses_answers: AtomicU32::default(),
            rows_read: AtomicU64::default(),
            writes: AtomicU64::new(1),
            looked_at: Mutex::new((0, Arc::default())),
        }
    }
}

impl Database {
    /// All rows, for the judge. They are read again only after a write.
    pub(crate) fn rows(&self) -> Arc<[Row]> {
        let writes = self.writes.load(Ordering::Relaxed);
        let mut looked_at = self.looked_at.lock().unwrap();
        if looked_at.0 != writes {
            let filter = Filter { status: Status::ALL.to_vec(), ..Filter::default() };
            let page = self.memory.list(&filter, None, usize::MAX - 1).now_or_never();
            let rows = page.and_then(Result::ok).map(|page| page.rows).unwrap_or_default();
            *looked_at = (writes, rows.into());
        }
        Arc::clone(&looked_at.1)
    }

    /// Replaces the content of the database with a backup, and runs `migrate --restored`.
    pub(crate) fn restore(&self, backup: &Backup) {
        self.memory.restore(backup);
        let restored = everwatch_manager::restored(&self.memory).now_or_never();
        restored.expect("the store in memory never waits").unwrap();
        self.writes.fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Access {
    Read,
    Write,
}

/// A client of the database.
pub(crate) struct RemoteStore(pub(crate) Arc<Database>);

impl RemoteStore {
    fn memory(&self) -> &MemoryStore {
        &self.0.memory
    }

    async fn way(&self) -> Result<(), StoreError> {
        let delay = self.0.delay.load(Ordering::Relaxed);
        tokio::time::sleep(Duration::from_millis(WAY + delay)).await;
        if self.0.away.load(Ordering::Relaxed) {
            return Err(StoreError::Unavailable("connection refused".to_owned()));
        }
        Ok(())
    }

    async fn operation<T>(
        &self,
        access: Access,
        operation: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        self.way().await?;
        if access == Access::Write && self.0.full.load(Ordering::Relaxed) {
            return Err(StoreError::Unavailable("no space left on device".to_owned()));
        }
        let skew = machine::set_skew(0);
        let answer = operation.now_or_never();
        machine::set_skew(skew);
        self.0.writes.fetch_add(u64::from(access == Access::Write), Ordering::Relaxed);
        let lost = &self.0.loses_answers;
        if access == Access::Write
            && lost.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
        {
            note(Fact::AnswerLost { until: machine::now() + ANSWER_WITHIN });
            tokio::time::sleep(Duration::from_millis(ANSWER_WITHIN)).await;
            return Err(StoreError::Unavailable("the connection was closed before the answer".to_owned()));
        }
        self.way().await?;
        answer.expect("the store in memory never waits")
    }

    async fn rows<T>(
        &self,
        count: impl Fn(&T) -> usize,
        operation: impl Future<Output = Result<T, StoreError>> + Send,
    ) -> Result<T, StoreError> {
        let answer = self.operation(Access::Read, operation).await?;
        self.0.rows_read.fetch_add(count(&answer) as u64, Ordering::Relaxed);
        Ok(answer)
    }

    /// Inserts rows and records their stored state.
    async fn insert(&self, rows: &[Row], offers: &PoolOffers) -> Result<Vec<Created>, StoreError> {
        let answers = self.memory().create(rows, offers).await?;
        for (row, answer) in rows.iter().zip(&answers) {
            if let Some(row) = answer.stored(row) {
                note(Fact::Saved { request: None, before: None, after: Box::new(row.into_owned()) });
            }
        }
        Ok(answers)
    }

    /// Admits waiting rows and records their stored state.
    async fn admit_waiting(&self, admission: &Admission<'_>) -> Result<Vec<Decided>, StoreError> {
        let admitted = self.memory().admit(admission).await?;
        for Decided { before, after } in &admitted {
            let before = Some(Box::new(before.clone()));
            note(Fact::Saved { request: None, before, after: Box::new(after.clone()) });
        }
        Ok(admitted)
    }

    async fn preempt_runs(&self, look: &Look<'_>) -> Result<Vec<Preempted>, StoreError> {
        let preempted = self.memory().preempt(look).await?;
        for Preempted { before, after, .. } in &preempted {
            let before = Some(Box::new(before.clone()));
            note(Fact::Saved { request: None, before, after: Box::new(after.clone()) });
        }
        Ok(preempted)
    }

    async fn update(&self, changes: &[Change<'_>]) -> Result<Vec<ObserverId>, StoreError> {
        let late = self.memory().save(changes).await?;
        for change @ Change { before, after } in changes.iter().filter(|it| !late.contains(&it.after.id)) {
            let request = request_of(change);
            let before = Some(Box::new(Row::clone(before)));
            note(Fact::Saved { request, before, after: Box::new(Row::clone(after)) });
        }
        Ok(late)
    }

    async fn update_services(&self, rows: &[ServiceRow]) -> Result<Vec<ServiceId>, StoreError> {
        let late = self.memory().save_services(rows).await?;
        for row in rows.iter().filter(|row| !late.contains(&row.id)) {
            note(Fact::ServiceSaved { row: Box::new(row.clone()) });
        }
        Ok(late)
    }

    async fn write_note(&self, name: &str, value: &str, keep: Duration) -> Result<(), StoreError> {
        self.memory().set_note(name, value, keep).await?;
        if name == crate::SAFE_MODE_NOTE {
            note(Fact::SafeMode { on: value.contains("\"on\":true") });
        }
        Ok(())
    }
}

#[async_trait]
impl KeyValue for RemoteStore {
    async fn claim(&self, name: &str, value: &str, keep: Duration) -> Result<String, StoreError> {
        self.operation(Access::Write, self.memory().claim(name, value, keep)).await
    }
    async fn note(&self, name: &str) -> Result<Option<String>, StoreError> {
        self.operation(Access::Read, self.memory().note(name)).await
    }
    async fn notes_under(&self, prefix: &str) -> Result<Vec<(String, String)>, StoreError> {
        self.operation(Access::Read, self.memory().notes_under(prefix)).await
    }
    async fn set_note(&self, name: &str, value: &str, keep: Duration) -> Result<(), StoreError> {
        self.operation(Access::Write, self.write_note(name, value, keep)).await
    }
    async fn swap_note(&self, name: &str, before: &str, after: &str) -> Result<bool, StoreError> {
        self.operation(Access::Write, self.memory().swap_note(name, before, after)).await
    }
    async fn forget_notes(&self) -> Result<u64, StoreError> {
        self.operation(Access::Write, self.memory().forget_notes()).await
    }
}

#[async_trait]
impl Events for RemoteStore {
    async fn record(&self, events: &[Event]) -> Result<(), StoreError> {
        self.operation(Access::Write, self.memory().record(events)).await
    }
    async fn events(
        &self,
        filter: &EventFilter,
        stretch: EventRange,
        most: usize,
    ) -> Result<EventPage, StoreError> {
        self.operation(Access::Read, self.memory().events(filter, stretch, most)).await
    }
    async fn event_ends(&self) -> Result<(i64, i64), StoreError> {
        self.operation(Access::Read, self.memory().event_ends()).await
    }
    async fn forget_events(&self, before: Timestamp, keep: usize) -> Result<u64, StoreError> {
        self.operation(Access::Write, self.memory().forget_events(before, keep)).await
    }
}

#[async_trait]
impl Observers for RemoteStore {
    async fn create(&self, rows: &[Row], offers: &PoolOffers) -> Result<Vec<Created>, StoreError> {
        self.operation(Access::Write, self.insert(rows, offers)).await
    }
    async fn load(&self, ids: &[ObserverId]) -> Result<Found<Row, ObserverId>, StoreError> {
        self.rows(|found: &Found<_, _>| found.rows.len(), self.memory().load(ids)).await
    }
    async fn find(&self, which: &ObserverRef) -> Result<Option<Row>, StoreError> {
        self.rows(|found| usize::from(found.is_some()), self.memory().find(which)).await
    }
    async fn save(&self, changes: &[Change<'_>]) -> Result<Vec<ObserverId>, StoreError> {
        self.operation(Access::Write, self.update(changes)).await
    }
    async fn versions(&self, id: ObserverId) -> Result<Vec<DefinitionVersion>, StoreError> {
        self.operation(Access::Read, self.memory().versions(id)).await
    }
    async fn list(
        &self,
        filter: &Filter,
        after: Option<&ListCursor>,
        limit: usize,
    ) -> Result<Page, StoreError> {
        self.rows(|page: &Page| page.rows.len(), self.memory().list(filter, after, limit)).await
    }
    async fn counts_matching(&self, filter: &Filter) -> Result<MatchingCounts, StoreError> {
        self.operation(Access::Read, self.memory().counts_matching(filter)).await
    }
    async fn counts(&self) -> Result<Counts, StoreError> {
        self.operation(Access::Read, self.memory().counts()).await
    }
    async fn health_counts(&self) -> Result<HealthCounts, StoreError> {
        self.operation(Access::Read, self.memory().health_counts()).await
    }
    async fn held_weights(&self) -> Result<HeldWeights, StoreError> {
        self.operation(Access::Read, self.memory().held_weights()).await
    }
    async fn forget(&self, rows: &[(ObserverId, i64)]) -> Result<(), StoreError> {
        self.operation(Access::Write, self.memory().forget(rows)).await
    }
    async fn forgotten(&self, ids: &[ObserverId]) -> Result<Vec<ObserverId>, StoreError> {
        self.operation(Access::Read, self.memory().forgotten(ids)).await
    }
    async fn unreadable(&self) -> Result<Vec<Unreadable>, StoreError> {
        self.operation(Access::Read, self.memory().unreadable()).await
    }
}

#[async_trait]
impl Backlog for RemoteStore {
    async fn waiting_pools(&self) -> Result<WaitingPools, StoreError> {
        self.operation(Access::Read, self.memory().waiting_pools()).await
    }
    async fn admit(&self, admission: &Admission<'_>) -> Result<Vec<Decided>, StoreError> {
        self.operation(Access::Write, self.admit_waiting(admission)).await
    }
    async fn preempt(&self, look: &Look<'_>) -> Result<Vec<Preempted>, StoreError> {
        self.operation(Access::Write, self.preempt_runs(look)).await
    }
    async fn waiting(&self, pool: &Pool, selection: &Selection) -> Result<Vec<Row>, StoreError> {
        self.rows(Vec::len, self.memory().waiting(pool, selection)).await
    }
    async fn place(&self, row: &Row) -> Result<Option<Place>, StoreError> {
        self.operation(Access::Read, self.memory().place(row)).await
    }
}

#[async_trait]
impl Worklists for RemoteStore {
    async fn due(&self, now: Timestamp, most: usize) -> Result<Vec<Row>, StoreError> {
        self.rows(Vec::len, self.memory().due(now, most)).await
    }
    async fn commanded_since(&self, since: Timestamp, most: usize) -> Result<Vec<Row>, StoreError> {
        self.rows(Vec::len, self.memory().commanded_since(since, most)).await
    }
    async fn ending(&self, most: usize) -> Result<Vec<Row>, StoreError> {
        self.rows(Vec::len, self.memory().ending(most)).await
    }
    async fn refused(&self) -> Result<Vec<Refused>, StoreError> {
        self.operation(Access::Read, self.memory().refused()).await
    }
    async fn refused_rows(&self, of: &Refused, most: usize) -> Result<Vec<Row>, StoreError> {
        self.rows(Vec::len, self.memory().refused_rows(of, most)).await
    }
    async fn unheld(&self, pool: &Pool, living: &[ServiceId], most: usize) -> Result<Vec<Row>, StoreError> {
        self.rows(Vec::len, self.memory().unheld(pool, living, most)).await
    }
    async fn held_totals(
        &self,
        service: ServiceId,
        ranges: &[InventoryRange],
    ) -> Result<Vec<RangeTotal>, StoreError> {
        self.operation(Access::Read, self.memory().held_totals(service, ranges)).await
    }
    async fn held_by(
        &self,
        service: ServiceId,
        range: InventoryRange,
    ) -> Result<Vec<ObserverId>, StoreError> {
        self.operation(Access::Read, self.memory().held_by(service, range)).await
    }
}

#[async_trait]
impl Services for RemoteStore {
    async fn services(&self, ended_since: Timestamp) -> Result<Found<ServiceRow, ServiceId>, StoreError> {
        self.operation(Access::Read, self.memory().services(ended_since)).await
    }
    async fn load_services(&self, ids: &[ServiceId]) -> Result<Found<ServiceRow, ServiceId>, StoreError> {
        self.operation(Access::Read, self.memory().load_services(ids)).await
    }
    async fn namesakes(&self, names: &[Name], ended_since: Timestamp) -> Result<Vec<ServiceRow>, StoreError> {
        self.operation(Access::Read, self.memory().namesakes(names, ended_since)).await
    }
    async fn ends(&self, ids: &[ServiceId]) -> Result<BTreeMap<ServiceId, Timestamp>, StoreError> {
        self.operation(Access::Read, self.memory().ends(ids)).await
    }
    async fn service(&self, which: &ServiceRef) -> Result<Option<ServiceRow>, StoreError> {
        self.operation(Access::Read, self.memory().service(which)).await
    }
    async fn save_services(&self, rows: &[ServiceRow]) -> Result<Vec<ServiceId>, StoreError> {
        self.operation(Access::Write, self.update_services(rows)).await
    }
    async fn forget_services(&self, before: Timestamp) -> Result<u64, StoreError> {
        self.operation(Access::Write, self.memory().forget_services(before)).await
    }
}

#[async_trait]
impl Checkpoints for RemoteStore {
    async fn save_checkpoints(
        &self,
        checkpoints: &[Checkpoint],
    ) -> Result<Vec<CheckpointStored>, StoreError> {
        self.operation(Access::Write, self.memory().save_checkpoints(checkpoints)).await
    }
    async fn request_checkpoints(
        &self,
        wanted: &[CheckpointWanted],
    ) -> Result<Vec<CheckpointRestored>, StoreError> {
        self.operation(Access::Write, self.memory().request_checkpoints(wanted)).await
    }
    async fn save_results(&self, results: &[ObserverResult]) -> Result<(), StoreError> {
        self.operation(Access::Write, self.memory().save_results(results)).await
    }
    async fn result(&self, id: ObserverId) -> Result<Option<ObserverResult>, StoreError> {
        self.operation(Access::Read, self.memory().result(id)).await
    }
}

#[async_trait]
impl ParkedMessages for RemoteStore {
    async fn park(&self, parked: &[Parked]) -> Result<(), StoreError> {
        self.operation(Access::Write, self.memory().park(parked)).await
    }
    async fn parked_one(&self, id: i64) -> Result<Option<Parked>, StoreError> {
        self.operation(Access::Read, self.memory().parked_one(id)).await
    }
    async fn unpark(&self, id: i64) -> Result<bool, StoreError> {
        self.operation(Access::Write, self.memory().unpark(id)).await
    }
    async fn forget_parked(&self, before: Timestamp, keep: usize) -> Result<u64, StoreError> {
        self.operation(Access::Write, self.memory().forget_parked(before, keep)).await
    }
    async fn parked(&self, before: Option<i64>, limit: usize) -> Result<(Vec<ParkedHead>, u64), StoreError> {
        self.operation(Access::Read, self.memory().parked(before, limit)).await
    }
}

#[async_trait]
impl Store for RemoteStore {
    async fn close(&self) {}
    async fn schema(&self) -> Result<Schema, StoreError> {
        self.operation(Access::Read, self.memory().schema()).await
    }
    async fn now(&self) -> Result<Timestamp, StoreError> {
        self.operation(Access::Read, self.memory().now()).await
    }
}
