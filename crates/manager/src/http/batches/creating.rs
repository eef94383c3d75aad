//! Stores a batch and its members, a part at a time. The ids of members follow from the id of the batch, which the
//! idempotency key reserves: a repeated request finds the members that exist, and creates the others.

use super::super::draft::Draft;
use super::super::idempotency::Identities;
use super::super::problem::{Code, Problem};
use super::super::{caller, namespaces};
use super::checking::{BatchDraft, check_members};
use super::not_now;
use crate::commit::{self, follow_creates};
use crate::context::Manager;
use crate::context::records::Records;
use crate::events::actor;
use everwatch_core::batch::{Batch, BatchAction, BatchState, Counts, NotNow, OPEN_MAX, Sample, step};
use everwatch_core::id::{BatchId, BatchRef, LimitKey, ObserverId};
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::record::row::{Membership, Row};
use everwatch_store::{BatchCreated, Created};
use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;
use tracing::info;
use uuid::Uuid;

/// The members that one transaction stores.
const PART: usize = 100;
/// The maximum age of the cached services.
const SERVICES_AGE: Duration = Duration::from_secs(1);

/// The id of the member at this place. The first identity of the request is that of the batch.
fn member_id(batch: BatchId, place: usize) -> ObserverId {
    ObserverId(Uuid::from_u128(batch.0.as_u128() + place as u128 + 1))
}

/// Creates the batch of a request, or continues it.
pub(super) async fn create(
    manager: &Arc<Manager>,
    identities: &Identities,
    draft: BatchDraft,
) -> Result<Batch, Problem> {
    let records = &manager.records;
    let (id, again) = identities.single();
    let id = BatchId(id);
    let known = if again { records.store.batch(&BatchRef::Id(id)).await? } else { None };
    let batch = match known {
        Some(batch) => {
            // The role of the sender may have changed since.
            caller::check_namespace(&batch.namespace)?;
            batch
        }
        None => {
            if again && !records.store.forgotten(&[member_id(id, 0)]).await?.is_empty() {
                let detail =
                    "the batch that was created with this idempotency-key has been deleted; use a new key";
                return Err(Problem::new(Code::KeyReused, detail));
            }
            // A request with a new key was checked before it reserved the key.
            if again {
                check_members(manager, id, &draft).await?;
            }
            store(records, id, &draft).await?
        }
    };
    let Some(batch) = continued(records, batch).await? else {
        return find(records, id).await;
    };
    for (number, part) in draft.members.chunks(PART).enumerate() {
        store_part(manager, &batch, (number * PART, part), again).await?;
    }
    info!(batch = %batch.name, members = draft.members.len(), "all members of a batch exist");
    finish(records, id).await
}

async fn find(records: &Records, id: BatchId) -> Result<Batch, Problem> {
    let gone = || Problem::new(Code::NotFound, format!("batch {id} has been deleted"));
    records.store.batch(&BatchRef::Id(id)).await?.ok_or_else(gone)
}

async fn store(records: &Records, id: BatchId, draft: &BatchDraft) -> Result<Batch, Problem> {
    let now = records.clock.now();
    let batch = Batch {
        id,
        version: 1,
        touched_at: now,
        name: draft.name.clone(),
        namespace: draft.namespace.clone(),
        total: u32::try_from(draft.members.len()).unwrap_or(u32::MAX),
        max_running: draft.max_running,
        state: BatchState::Creating,
        reason: None,
        by: actor::name(),
        created_at: now,
        modified_at: now,
        ended_at: None,
        retried_before: None,
        completions: 0,
        outbox: Vec::new(),
        samples: vec![Sample { at: now, settled: 0 }],
        counts: Counts::new(),
    };
    match records.store.create_batch(&batch).await? {
        BatchCreated::Done => {
            if let Some((kind, text)) = batch.event(None) {
                records.events.tell_all(kind, text);
            }
            Ok(batch)
        }
        BatchCreated::Exists => find(records, id).await,
        BatchCreated::NameTaken => {
            let cure = "wait for its end, or use another name";
            Err(Problem::new(Code::NameExists, format!("a batch named {} is not over: {cure}", batch.name)))
        }
        BatchCreated::TooMany => {
            let cure = "wait until one of them is over, or cancel one";
            Err(Problem::new(Code::TooManyBatches, format!("{OPEN_MAX} batches are not over: {cure}")))
        }
    }
}

/// The batch whose members this request may store; `None` if all exist.
async fn continued(records: &Records, mut batch: Batch) -> Result<Option<Batch>, Problem> {
    for _ in 0..commit::CAS_TRIES {
        let before = batch.clone();
        match batch.act(BatchAction::Continue, actor::name().as_deref(), records.clock.now()) {
            Err(NotNow(state)) => return Err(not_now(&before, state)),
            Ok(false) => return Ok((batch.state == BatchState::Creating).then_some(batch)),
            Ok(true) => {}
        }
        if let Some(saved) = commit::save_batch(records, &before, batch).await? {
            return Ok(Some(saved));
        }
        batch = find(records, before.id).await?;
    }
    Err(Problem::new(Code::Contended, "the batch keeps changing: send the request again"))
}

/// Stores the members from this place on, as far as they do not exist.
async fn store_part(
    manager: &Arc<Manager>,
    batch: &Batch,
    (first, part): (usize, &[Draft]),
    again: bool,
) -> Result<(), Problem> {
    let records = &manager.records;
    let ids: Vec<ObserverId> = (first..first + part.len()).map(|place| member_id(batch.id, place)).collect();
    let exist = if again { existing(records, &ids).await? } else { HashSet::new() };
    let paused = records.paused_pools(SERVICES_AGE).await?;
    let (now, by) = (records.clock.now(), actor::name());
    let mut rows: Vec<Row> = Vec::with_capacity(part.len());
    for (place, draft) in part.iter().enumerate().filter(|(place, _)| !exist.contains(&ids[*place])) {
        let mut definition = draft.definition.clone();
        definition.limits.extend(batch.limit_key());
        definition.limits.extend(LimitKey::of_namespace(&batch.namespace));
        let row = Row::created(ids[place], definition, now, &manager.settings.row).created_by(by.clone());
        let place = u32::try_from(first + place).unwrap_or(u32::MAX);
        let membership = Some(Membership { batch: batch.id, place });
        let row = Row { batch: membership, trace: everwatch_trace::current(), ..row };
        let waits = row.starts_later(now).is_some() || paused.contains(&row.definition.pool);
        rows.push(match draft.paused {
            Some(true) => row.created_paused(),
            Some(false) | None if waits => row.created_waiting(),
            Some(false) | None => row,
        });
    }
    if rows.is_empty() {
        return Ok(());
    }
    let offers = records.offers(SERVICES_AGE).await?;
    let Some(created) = records.store.create_members(batch.id, &rows, &offers).await? else {
        let current = find(records, batch.id).await?;
        return Err(not_now(&current, current.state));
    };
    let refused = rows.iter().zip(&created).filter(|(_, created)| !created.is_stored());
    let refused: Vec<ObserverId> = refused.map(|(row, _)| row.id).collect();
    let told: Vec<(Arc<ObserverDefinition>, Created)> =
        rows.iter().zip(&created).map(|(row, created)| (Arc::clone(&row.definition), *created)).collect();
    let ids: Vec<ObserverId> = rows.iter().map(|row| row.id).collect();
    follow_creates(manager, rows.into_iter().zip(created.iter().copied()));
    // The same request, sent twice at once, may have stored them.
    let exist = if refused.is_empty() { HashSet::new() } else { existing(records, &refused).await? };
    let missing = ids.iter().zip(told).find(|(id, _)| refused.contains(id) && !exist.contains(id));
    let Some((_, (definition, created))) = missing else { return Ok(()) };
    if created != Created::NameTaken && created != Created::NameEnding {
        let problem = namespaces::refusal(records, &definition, created).await?;
        let cure = "then send the request again with the same Idempotency-Key, or cancel the batch";
        return Err(problem.and(cure));
    }
    let cure = "delete it and send the request again with the same Idempotency-Key, or cancel the batch";
    let detail = format!("an observer named {} was created in the meantime: {cure}", definition.name);
    Err(Problem::new(Code::NameExists, detail))
}

async fn existing(records: &Records, ids: &[ObserverId]) -> Result<HashSet<ObserverId>, Problem> {
    let found = records.store.load(ids).await?;
    Ok(found.rows.iter().map(|row| row.id).chain(found.unreadable).collect())
}

/// Takes the step that follows when all members exist; if another manager is faster, it has taken it.
async fn finish(records: &Records, id: BatchId) -> Result<Batch, Problem> {
    let batch = find(records, id).await?;
    let counts = records.store.batch_counts(&[id]).await?.remove(&id).unwrap_or_default();
    if let Some(next) = step(&batch, &counts, records.clock.now())
        && let Some(saved) = commit::save_batch(records, &batch, next).await?
    {
        return Ok(saved);
    }
    find(records, id).await
}
