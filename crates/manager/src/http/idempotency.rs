//! Idempotency keys. A repeated create with the same key returns the observer that the first one created; a repeated
//! action with the same key does not act again. The row stores the keys of actions together with their effect, so a
//! crash cannot separate the two.

use super::caller;
use super::problem::{Code, Problem};
use crate::context::records::Records;
use axum::http::HeaderMap;
use everwatch_core::access::{Principal, Verb};
use everwatch_core::id::{Namespace, ObserverId};
use everwatch_core::record::row::Row;
use serde_json::Value;
use std::time::Duration;
use uuid::Uuid;

pub(crate) const HEADER: &str = "idempotency-key";
/// How long a key is remembered.
const KEEP: Duration = Duration::from_secs(86_400);
const LONGEST: usize = 255;
/// The bits of an identity that number the observers of one request, from 0. A batch holds at most 10,000.
const ROOM: u128 = 0xFFFF;

/// The identity of a new observer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Identity {
    /// No request has used it.
    Fresh(ObserverId),
    /// An earlier request with the same key may have created the observer.
    Reserved(ObserverId),
}

impl Identity {
    pub(crate) fn id(self) -> ObserverId {
        let (Self::Fresh(id) | Self::Reserved(id)) = self;
        id
    }
}

/// What a create has to do.
pub(crate) enum Once {
    /// Create the observer.
    Make(Identity),
    /// The observer exists.
    Made(Box<Row>),
}

/// The obvious way stores the key after the create. A manager that dies in between would let the repeated request
/// create a second observer. Instead, the key reserves the identity first, and a repeated request creates that same
/// observer.
pub(crate) async fn reserve(
    records: &Records,
    headers: &HeaderMap,
    request: (&Namespace, &Value),
) -> Result<Once, Problem> {
    Identities::reserve(records, headers, request).await?.of(records, 0).await
}

/// Whether an earlier request has used the key of this one. A request with an unused key is checked before it reserves the key: one that is
/// refused as invalid can then be corrected and sent again with its key.
pub(crate) async fn is_used(records: &Records, headers: &HeaderMap) -> Result<bool, Problem> {
    let Some(key) = key(headers)? else { return Ok(false) };
    Ok(records.store.note(&note_of(key)).await?.is_some())
}

/// The identities that one request reserves: one for each observer that it creates.
pub(crate) struct Identities {
    first: Uuid,
    /// Whether the request may have been tried before.
    again: bool,
    key: Option<String>,
}

impl Identities {
    pub(crate) async fn reserve(
        records: &Records,
        headers: &HeaderMap,
        (namespace, body): (&Namespace, &Value),
    ) -> Result<Self, Problem> {
        let fresh = Uuid::from_u128(Uuid::now_v7().as_u128() & !ROOM);
        let Some(key) = key(headers)? else { return Ok(Self { first: fresh, again: false, key: None }) };
        // A body that leaves out its namespace means another observer in each.
        let mut text = body.to_string();
        if !namespace.is_default() {
            text = format!("{namespace}\n{text}");
        }
        let digest = Uuid::new_v5(&Uuid::NAMESPACE_OID, text.as_bytes());
        let stands = records.store.claim(&note_of(key), &format!("{fresh} {digest}"), KEEP).await?;
        let (first, known) = stands.split_once(' ').unwrap_or_default();
        if known != digest.to_string() {
            let detail =
                format!("the {HEADER} `{key}` was used with another body; use a new key for a new request");
            return Err(Problem::new(Code::KeyReused, detail));
        }
        let first: Uuid =
            first.parse().map_err(|_| Problem::new(Code::Internal, "a stored key cannot be read"))?;
        Ok(Self { first, again: first != fresh, key: Some(key.to_owned()) })
    }

    /// The identity of the observer at this position in the request.
    pub(crate) async fn of(&self, records: &Records, place: usize) -> Result<Once, Problem> {
        let id = ObserverId(Uuid::from_u128(self.first.as_u128() + place as u128));
        if !self.again {
            return Ok(Once::Make(Identity::Fresh(id)));
        }
        Ok(match records.store.load(&[id]).await?.one()? {
            Some(row) => {
                // Its role may have changed since.
                caller::check_verb(Verb::ObserversCreate, &row.definition)?;
                Once::Made(Box::new(row))
            }
            // The identity of an observer that was forgotten is never given to another: its epochs would begin again.
            None if records.store.forgotten(&[id]).await?.contains(&id) => {
                return Err(deleted(self.key.as_deref().unwrap_or_default()));
            }
            None => Once::Make(Identity::Reserved(id)),
        })
    }

    /// The first identity, and whether an earlier request may have used it.
    pub(crate) fn single(&self) -> (Uuid, bool) {
        (self.first, self.again)
    }

    /// The key of the action at this position in the request.
    pub(crate) fn action(&self, place: usize) -> Option<Uuid> {
        self.key.as_ref().map(|key| digest(&place.to_string(), key))
    }
}

/// The key of an action on one observer, or on each of many.
pub(crate) fn action(headers: &HeaderMap, what: &str) -> Result<Option<Uuid>, Problem> {
    Ok(key(headers)?.map(|key| digest(what, key)))
}

/// Whether this is the first request with this key for this observer; true for every request without a key.
pub(crate) async fn is_first(
    records: &Records,
    headers: &HeaderMap,
    (what, id): (&str, ObserverId),
) -> Result<bool, Problem> {
    let Some(key) = action(headers, what)? else { return Ok(true) };
    let mine = Uuid::now_v7().to_string();
    Ok(records.store.claim(&format!("key/{key}/{id}"), &mine, KEEP).await? == mine)
}

fn digest(what: &str, key: &str) -> Uuid {
    Uuid::new_v5(&Uuid::NAMESPACE_OID, format!("{what} {}", own(key)).as_bytes())
}

/// The note that reserves the key of a create.
fn note_of(key: &str) -> String {
    format!("key/{}", own(key))
}

/// The key with its sender, because each sender has keys of its own. No key contains the separator. A later token of the
/// same name may have another namespace.
fn own(key: &str) -> String {
    let own = |who: &Principal| match who.namespace() {
        Some(namespace) => format!("{}\n{namespace}\n{key}", who.account()),
        None => format!("{}\n{key}", who.account()),
    };
    caller::principal().map_or_else(|| key.to_owned(), |who| own(&who))
}

fn deleted(key: &str) -> Problem {
    let detail = format!(
        "the observer that was created with the {HEADER} `{key}` has been deleted; use a new key for a new observer"
    );
    Problem::new(Code::KeyReused, detail)
}

fn key(headers: &HeaderMap) -> Result<Option<&str>, Problem> {
    let Some(key) = headers.get(HEADER) else { return Ok(None) };
    let key = key.to_str().ok().filter(|key| !key.is_empty() && key.len() <= LONGEST);
    let rule = format!("the header {HEADER} is 1 to {LONGEST} visible ASCII characters");
    key.map(Some).ok_or_else(|| Problem::new(Code::BadHeader, rule))
}
