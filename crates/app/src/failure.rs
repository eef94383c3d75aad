//! How commands fail. Each kind of failure has its own exit code, on which scripts rely.

use crate::output::line;
use everwatch_api::ProblemBody;
use everwatch_core::observer::definition::FieldError;
use everwatch_core::wording::parser::sentence;

/// The manager's code of a name that is taken.
const NAME_EXISTS: &str = "name-exists";
const INVALID: &str = "invalid";

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    #[error("{0}")]
    Failed(String),
    #[error("{0}")]
    Usage(String),
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    Conflict(String),
    /// A name that is taken.
    #[error("{0}")]
    Exists(String),
    #[error("{0}")]
    TimedOut(String),
    #[error("{0}")]
    Unreachable(String),
    #[error("{0}")]
    NotPermitted(String),
    /// The doctor's worst finding is a warning.
    #[error("{0}")]
    Warnings(String),
    /// The doctor has a critical finding.
    #[error("{0}")]
    Critical(String),
}

impl Failure {
    pub(crate) fn exit_code(&self) -> u8 {
        match self {
            Self::Failed(_) => 1,
            Self::Usage(_) => 2,
            Self::NotFound(_) => 3,
            Self::Conflict(_) | Self::Exists(_) => 4,
            Self::TimedOut(_) => 5,
            Self::Unreachable(_) => 6,
            Self::NotPermitted(_) => 7,
            Self::Warnings(_) => 8,
            Self::Critical(_) => 9,
        }
    }

    fn text(&mut self) -> &mut String {
        let (Self::Failed(text)
        | Self::Usage(text)
        | Self::NotFound(text)
        | Self::Conflict(text)
        | Self::Exists(text)
        | Self::TimedOut(text)
        | Self::Unreachable(text)
        | Self::NotPermitted(text)
        | Self::Warnings(text)
        | Self::Critical(text)) = self;
        text
    }

    /// The same failure, which says more on a line of its own.
    pub(crate) fn with(mut self, more: &str) -> Self {
        let text = self.text();
        text.push('\n');
        text.push_str(more);
        self
    }

    /// A failure with the same exit code and another text.
    pub(crate) fn replaced(mut self, text: String) -> Self {
        *self.text() = text;
        self
    }

    /// The manager's problem text. If the body is not valid, with the error of each field that the text does not contain on its own line.
    pub(crate) fn of_problem(problem: &ProblemBody) -> Self {
        let told = if problem.detail.is_empty() { &problem.title } else { &problem.detail };
        let (mut told, mut more) = (sentence(told), String::new());
        for FieldError { pointer, detail } in &problem.errors {
            let (old, new) = (format!("{pointer} {detail}"), format!("{pointer} {}", sentence(detail)));
            if told.contains(old.trim()) {
                told = told.replacen(old.trim(), new.trim(), 1);
            } else if problem.code == INVALID && !told.contains(new.trim()) {
                more.push_str(&format!("\n  {pointer}: {}", sentence(detail)));
            }
        }
        told.push_str(&more);
        match &problem.request_id {
            // By this id, the log of the manager has the cause.
            Some(id) if problem.status == 500 => {
                Self::of_status(problem.status, format!("{told}; request {id}"))
            }
            _ if problem.code == NAME_EXISTS => Self::Exists(told),
            _ => Self::of_status(problem.status, told),
        }
    }

    /// A failure from any response of this server that is not a success. A proxy, or a server that is no manager, may send a
    /// response whose body is not a problem body.
    pub(crate) fn of_answer(server: &str, status: u16, text: &str) -> Self {
        match serde_json::from_str::<ProblemBody>(text) {
            Ok(problem) => Self::of_problem(&ProblemBody { status, ..problem }),
            Err(_) if matches!(status, 401 | 403) => {
                Self::of_status(status, format!("{}: {}", server, start(text)))
            }
            Err(_) => Self::no_manager(server, &format!("HTTP {status}: {}", start(text))),
        }
    }

    /// What answers at this URL is not a manager.
    pub(crate) fn no_manager(server: &str, answer: &str) -> Self {
        Self::Failed(format!(
            "the server at {server} did not answer as an Everwatch manager does ({answer}): check --server, EVERWATCH_SERVER \
             and the context"
        ))
    }

    fn of_status(status: u16, told: String) -> Self {
        match status {
            401 => Self::NotPermitted(format!(
                "{told} (`everwatch login` stores a token, EVERWATCH_TOKEN overrides it)"
            )),
            403 => Self::NotPermitted(told),
            404 => Self::NotFound(told),
            409 | 412 => Self::Conflict(told),
            400 | 422 => Self::Usage(told),
            500 => Self::Failed(format!("{told} (HTTP 500)")),
            // The text says what a user can do.
            _ => Self::Failed(told),
        }
    }
}

/// The longest part of a foreign response in an error, in characters.
const START: usize = 80;

/// The start of a response, on one line.
pub(crate) fn start(text: &str) -> String {
    let told = line(text);
    let told = told.trim();
    match told.char_indices().nth(START) {
        Some((at, _)) => format!("{}…", &told[..at]),
        None if told.is_empty() => "an empty body".to_owned(),
        None => told.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_is_no_manager_is_named() {
        let page = format!("<!DOCTYPE html>\n<p>{}", "x".repeat(200));
        let failure = Failure::of_answer("http://a:1", 404, &page);
        let told = failure.to_string();
        assert_eq!(failure.exit_code(), 1, "the object may exist");
        assert!(told.starts_with(
            "the server at http://a:1 did not answer as an Everwatch manager does (HTTP 404: <!DOCTYPE html>"
        ));
        assert!(told.contains("check --server") && told.chars().count() < 300, "{told}");
        assert_eq!(Failure::of_answer("http://a:1", 403, "no").exit_code(), 7, "a proxy may refuse");
    }

    #[test]
    fn an_error_of_a_member_is_printed_once() {
        let told = |detail: &str| {
            let body = serde_json::json!({"type": "", "title": "", "status": 422, "code": "invalid", "detail": detail,
                "instance": "", "errors": [{"pointer": "/grace", "detail": "at most 1h"}]});
            Failure::of_answer("http://a:1", 422, &body.to_string()).to_string()
        };
        assert_eq!(told("/grace at most 1h; /kind is missing"), "/grace at most 1h; /kind is missing");
        assert_eq!(told("the body is not valid"), "the body is not valid\n  /grace: at most 1h");
    }

    #[test]
    fn messages_of_parsers_are_reworded() {
        let told = |detail: &str, error: &str| {
            let body = serde_json::json!({"type": "", "title": "", "status": 422, "code": "invalid", "detail": detail,
                "instance": "", "errors": [{"pointer": "/retry", "detail": error}]});
            Failure::of_answer("http://a:1", 422, &body.to_string()).to_string()
        };
        let missing = "missing field `kind`";
        assert_eq!(
            told("/retry missing field `kind`; /kind is wrong", missing),
            "/retry lacks the field kind; /kind is wrong"
        );
        assert_eq!(told("not valid", missing), "not valid\n  /retry: lacks the field kind");
    }
}
