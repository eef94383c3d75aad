//! The state that a request requires of its observer: `If-Match` and `If-None-Match` (RFC 9110, 13.1).

use super::etag::tag;
use super::problem::{Code, Problem};
use axum::extract::FromRequestParts;
use axum::http::header::{HeaderName, IF_MATCH, IF_NONE_MATCH};
use axum::http::request::Parts;
use everwatch_core::record::row::Row;

/// One of the two headers.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Tag {
    /// The header was not sent.
    #[default]
    Absent,
    /// `*`
    Any,
    This(String),
}

impl Tag {
    fn read(parts: &Parts, name: &HeaderName) -> Result<Self, Problem> {
        let Some(text) = parts.headers.get(name) else { return Ok(Self::Absent) };
        match text.to_str() {
            Ok("*") => Ok(Self::Any),
            Ok(tag) if tag.len() >= 2 && tag.starts_with('"') && tag.ends_with('"') => {
                Ok(Self::This(tag.to_owned()))
            }
            _ => {
                let detail = format!("the header {name} must be * or one quoted ETag from a response");
                Err(Problem::new(Code::BadHeader, detail))
            }
        }
    }
    fn fits(&self, row: &Row) -> bool {
        let [(_, now)] = tag(row);
        match self {
            Self::Absent => false,
            Self::Any => true,
            Self::This(tag) => *tag == now,
        }
    }
}

/// Both headers of a request.
#[derive(Debug, Clone, Default)]
pub(crate) struct Precondition {
    if_match: Tag,
    if_none_match: Tag,
}

impl<S: Send + Sync> FromRequestParts<S> for Precondition {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, Problem> {
        Ok(Self { if_match: Tag::read(parts, &IF_MATCH)?, if_none_match: Tag::read(parts, &IF_NONE_MATCH)? })
    }
}

impl Precondition {
    /// Refuses to change an observer that does not meet the precondition.
    pub(crate) fn check(&self, row: &Row) -> Result<(), Problem> {
        let name = &row.definition.name;
        let detail = if self.if_match != Tag::Absent && !self.if_match.fits(row) {
            format!("observer {name} was changed meanwhile: read it again")
        } else if self.if_none_match.fits(row) {
            format!("observer {name} exists: drop if-none-match to change it")
        } else {
            return Ok(());
        };
        Err(Problem::new(Code::Changed, detail))
    }

    /// Refuses to create an observer if the request requires an existing one.
    pub(crate) fn check_missing(&self, name: &str) -> Result<(), Problem> {
        if self.if_match == Tag::Absent {
            return Ok(());
        }
        Err(Problem::new(Code::Changed, format!("no observer {name}: drop if-match to create it")))
    }

    /// Whether the client has the present definition.
    pub(crate) fn is_known(&self, row: &Row) -> bool {
        self.if_none_match.fits(row)
    }
}
