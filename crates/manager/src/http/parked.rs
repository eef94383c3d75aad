//! Messages that no version could read: lists them, sends them back, deletes them.

use super::pagination::Part;
use super::problem::{Code, Problem};
use super::query::Params;
use crate::context::Manager;
use crate::context::link::Link;
use crate::context::records::Records;
use axum::Json;
use axum::extract::{Path, State};
use axum::http::StatusCode;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use everwatch_api::{Listed, ParkedMessage, ProblemBody};
use everwatch_broker::{BrokerError, HeaderValue, Message, Target};
use everwatch_core::wire::signature::PARKED_AS;
use everwatch_store::{Parked, ParkedHead};
use std::sync::Arc;
use std::time::Duration;
use tracing::info;

type Shared = State<Arc<Manager>>;

/// The time limit for the confirm of a message that is sent back.
const CONFIRM_WITHIN: Duration = Duration::from_secs(10);

/// List the parked messages, newest first: managers could not read or apply them, or no manager has signed them.
#[utoipa::path(get, path = "/v1/parked", tag = "operations", security(("token" = ["parked:read"])),
    params(("limit" = Option<u32>, Query, description = "1 to 1,000, 100 by default"),
    ("cursor" = Option<String>, Query,
        description = "where the page starts: next_cursor of the page before")),
    responses((status = 200, body = Listed<ParkedMessage>)))]
pub(crate) async fn list(
    State(manager): Shared,
    mut params: Params,
) -> Result<Json<Listed<ParkedMessage>>, Problem> {
    let part: Part<i64> = Part::read(&mut params)?;
    params.finish()?;
    let (mut messages, total) = manager.records.store.parked(part.after, part.limit + 1).await?;
    let more = messages.len() > part.limit;
    messages.truncate(part.limit);
    let next_cursor = messages.last().filter(|_| more).and_then(|last| part.cursor(last.id));
    Ok(Json(Listed { items: messages.into_iter().map(shown).collect(), next_cursor, total }))
}

fn shown(it: ParkedHead) -> ParkedMessage {
    let whole = it.head.len() as u64 == it.size;
    let text = match std::str::from_utf8(&it.head) {
        Ok(text) => Some(text),
        // The cut may go through a character.
        Err(error) if !whole && error.error_len().is_none() => {
            std::str::from_utf8(&it.head[..error.valid_up_to()]).ok()
        }
        Err(_) => None,
    };
    ParkedMessage {
        id: it.id,
        queue: it.queue,
        reason: it.reason,
        size: it.size,
        text: text.map(str::to_owned),
        body: STANDARD.encode(&it.head),
        at: it.at,
    }
}

/// Send a message back to the queue that it came from.
#[utoipa::path(post, path = "/v1/parked/{id}/retry", tag = "operations", security(("token" = ["parked:write"])),
    params(("id" = String, Path, description = "number of the message")),
    responses((status = 202, body = ParkedMessage), (status = 404, body = ProblemBody, description = "not-found"),
    (status = 409, body = ProblemBody, description = "no-such-queue: the queue of the message does not exist, \
    or not-from-a-manager: services verify signatures, and this message may be forged"),
    (status = 503, body = ProblemBody, description = "broker-unavailable")))]
pub(crate) async fn retry(
    State(manager): Shared,
    Path(id): Path<String>,
    params: Params,
) -> Result<(StatusCode, Json<ParkedMessage>), Problem> {
    params.finish()?;
    let parked = find(&manager.records, &id).await?;
    if parked.queue == manager.link.topology.parked() {
        return Err(Problem::new(
            Code::NoSuchQueue,
            format!("where message {id} came from is unknown; delete it"),
        ));
    }
    ensure_genuine(&manager.link, &parked)?;
    send_back(&manager.link, &parked).await?;
    // Only now: between the two it is there twice, which an observer or a report may be.
    manager.records.store.unpark(parked.id).await?;
    info!(message = parked.id, queue = parked.queue, "a parked message is sent back");
    Ok((StatusCode::ACCEPTED, Json(shown(parked.head()))))
}

/// This manager would sign the message, and services would take it for genuine, whoever has parked it.
fn ensure_genuine(link: &Link, parked: &Parked) -> Result<(), Problem> {
    let is_work = link.topology.leads_to_services(&link.topology.exchange_of(&parked.queue));
    if parked.reason.starts_with(PARKED_AS) || is_work && link.broker.signs() {
        let detail = format!(
            "message {} may be forged: delete it. Managers publish the messages of observers themselves; `everwatch observer \
             restart NAME` makes them do so at once",
            parked.id
        );
        return Err(Problem::new(Code::NotFromAManager, detail));
    }
    Ok(())
}

async fn send_back(link: &Link, parked: &Parked) -> Result<(), Problem> {
    let unavailable = |why: String| Problem::new(Code::BrokerUnavailable, why);
    let Some(session) = link.open_session() else {
        return Err(unavailable("the broker is not connected or takes no messages now".to_owned()));
    };
    let reason = HeaderValue::Text("sent back by an operator".to_owned());
    let headers = vec![("everwatch-reason".to_owned(), reason)];
    let message = Message { body: parked.body.clone().into(), headers };
    let target = Target::Queue(parked.queue.clone());
    match tokio::time::timeout(CONFIRM_WITHIN, session.publish(&target, message)).await {
        Ok(Ok(())) => Ok(()),
        Ok(Err(BrokerError::NoQueue(queue) | BrokerError::Unroutable(queue))) => {
            Err(Problem::new(Code::NoSuchQueue, format!("the queue {queue} is not there any more")))
        }
        Ok(Err(error)) => Err(unavailable(error.to_string())),
        Err(_) => Err(unavailable("the broker has not confirmed the message".to_owned())),
    }
}

/// Delete a message.
#[utoipa::path(delete, path = "/v1/parked/{id}", tag = "operations", security(("token" = ["parked:write"])),
    params(("id" = String, Path, description = "number of the message")),
    responses((status = 204), (status = 404, body = ProblemBody, description = "not-found")))]
pub(crate) async fn discard(
    State(manager): Shared,
    Path(id): Path<String>,
    params: Params,
) -> Result<StatusCode, Problem> {
    params.finish()?;
    let parked = find(&manager.records, &id).await?;
    manager.records.store.unpark(parked.id).await?;
    info!(message = parked.id, queue = parked.queue, "parked message discarded");
    Ok(StatusCode::NO_CONTENT)
}

async fn find(records: &Records, id: &str) -> Result<Parked, Problem> {
    let shown: String = id.chars().take(40).collect();
    let missing = || Problem::new(Code::NotFound, format!("there is no parked message `{shown}`"));
    let id = id.parse().map_err(|_| missing())?;
    records.store.parked_one(id).await?.ok_or_else(missing)
}
