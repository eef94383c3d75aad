//! What an answer says, and the digest that tells whether it has changed.

use super::Http;
use super::request::Received;
use serde_json::Value;
use sha2::{Digest as _, Sha256};

pub(super) type Digest = [u8; 32];

pub(super) struct Answer {
    pub(super) status: u16,
    /// Bytes of the body.
    pub(super) size: usize,
    pub(super) body: Value,
    /// What the pointer of the spec points to.
    pub(super) value: Option<Value>,
    /// Of all that counts as a change.
    pub(super) digest: Digest,
}

impl Answer {
    /// # Errors
    /// If the body has no part at `pointer`.
    pub(super) fn new(received: Received, spec: &Http) -> Result<Self, String> {
        let Received { status, body } = received;
        let size = body.len();
        let parsed =
            if spec.json || spec.pointer.is_some() { serde_json::from_slice(&body) } else { Ok(Value::Null) };
        let value = match (&spec.pointer, &parsed) {
            (None, _) => None,
            (Some(pointer), Ok(parsed)) => {
                let found = parsed.pointer(pointer).cloned();
                Some(found.ok_or_else(|| format!("the body has nothing at `pointer`, `{pointer}`"))?)
            }
            (Some(_), Err(error)) => {
                return Err(format!("the body is not JSON, which `pointer` needs: {error}"));
            }
        };
        let mut digest = Sha256::new().chain_update(status.to_be_bytes());
        match &value {
            Some(value) => digest.update(value.to_string()),
            None => digest.update(&body),
        }
        let body = match parsed {
            Ok(parsed) if spec.json => parsed,
            _ => Value::String(String::from_utf8_lossy(&body).into_owned()),
        };
        Ok(Self { status, size, body, value, digest: digest.finalize().into() })
    }
}
