//! The codes of errors: one line for each.

use axum::http::StatusCode;
use std::borrow::Cow;

macro_rules! codes {
    ($($name:ident = $status:ident, $word:literal, $title:literal $(, retry after $seconds:literal)?;)*) => {
        /// The kind of an error: a stable word for programs.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(crate) enum Code {
            $($name,)*
            Other(StatusCode),
        }

        impl Code {
            /// All but that of an answer for which the web framework alone has a word.
            const NAMED: &[Self] = &[$(Self::$name,)*];

            /// The HTTP status, the stable word and the title.
            pub(super) fn describe(self) -> (StatusCode, &'static str, Cow<'static, str>) {
                match self {
                    $(Self::$name => (StatusCode::$status, $word, Cow::Borrowed($title)),)*
                    Self::Other(status) => {
                        let title = status.canonical_reason().unwrap_or("error").to_lowercase();
                        (status, "error", Cow::Owned(title))
                    }
                }
            }

            /// After how many seconds a client may ask again.
            pub(super) fn retry_after(self) -> Option<u32> {
                match self {
                    $($(Self::$name => Some($seconds),)?)*
                    _ => None,
                }
            }
        }
    };
}

codes! {
    MalformedJson = BAD_REQUEST, "malformed-json", "the body is not JSON";
    BadQuery = BAD_REQUEST, "bad-query", "a query parameter is wrong";
    BadHeader = BAD_REQUEST, "bad-header", "a header is wrong";
    BadRequest = BAD_REQUEST, "bad-request", "the request cannot be read";
    Unauthenticated = UNAUTHORIZED, "no-valid-token", "a valid token is needed";
    Forbidden = FORBIDDEN, "not-permitted", "the role does not permit this";
    LoginFailed = FORBIDDEN, "login-failed", "the login failed";
    ForeignPage = FORBIDDEN, "foreign-page", "a page of another site sent this";
    NotFound = NOT_FOUND, "not-found", "not found";
    NoSuchRoute = NOT_FOUND, "no-such-route", "there is nothing at this path";
    MethodNotAllowed = METHOD_NOT_ALLOWED, "method-not-allowed", "not with this method";
    NameExists = CONFLICT, "name-exists", "the name is taken";
    NoSuchQueue = CONFLICT, "no-such-queue", "there is no queue for this message";
    NotFromAManager = CONFLICT, "not-from-a-manager", "no manager has signed the message";
    NotActive = CONFLICT, "observer-not-active", "the observer is not active";
    CountDiffers = CONFLICT, "count-differs", "not as many as expected";
    NotFailed = CONFLICT, "observer-not-failed", "the observer has not failed";
    Deleted = CONFLICT, "observer-deleted", "the observer is deleted";
    Paused = CONFLICT, "observer-paused", "the observer is paused";
    FinishAtPassed = CONFLICT, "finish-at-passed", "the finish_at of the observer has passed";
    NoSchedule = CONFLICT, "no-schedule", "the observer has no schedule";
    Active = CONFLICT, "observer-active", "the observer waits for a slot or runs";
    Changed = PRECONDITION_FAILED, "observer-changed", "the observer was changed";
    Contended = CONFLICT, "changed-too-often", "others keep changing it", retry after 1;
    EventsGone = GONE, "events-gone", "these events are not kept any more";
    SlowBody = REQUEST_TIMEOUT, "slow-body", "the body takes too long";
    UnknownHost = MISDIRECTED_REQUEST, "unknown-host", "the host name is not one of the manager's";
    TooManyRequests = TOO_MANY_REQUESTS, "too-many-requests", "this client sends too many requests", retry after 1;
    TooManyStreams = TOO_MANY_REQUESTS, "too-many-streams", "too many open streams on this manager", retry after 5;
    TooManyWaits = TOO_MANY_REQUESTS, "too-many-waits", "too many requests wait on this manager", retry after 5;
    TooManyBodies = SERVICE_UNAVAILABLE, "too-many-bodies", "too much is being sent to this manager", retry after 1;
    ServiceSilent = SERVICE_UNAVAILABLE, "service-silent", "the service does not answer", retry after 5;
    TooLarge = PAYLOAD_TOO_LARGE, "too-large", "the body is too large";
    NotJson = UNSUPPORTED_MEDIA_TYPE, "not-json", "the body must be application/json";
    Invalid = UNPROCESSABLE_ENTITY, "invalid", "the body is not valid";
    KeyReused = UNPROCESSABLE_ENTITY, "idempotency-key-reused", "the key was used before";
    NoServiceForKind = UNPROCESSABLE_ENTITY, "no-service-for-kind", "no service can run this kind";
    NoCapacity = SERVICE_UNAVAILABLE, "no-capacity", "the pool has no free slot", retry after 5;
    PoolPaused = SERVICE_UNAVAILABLE, "pool-paused", "the pool is paused", retry after 5;
    ServiceWithoutRoom = CONFLICT, "service-without-room", "the service cannot take the observer";
    ServiceEnded = CONFLICT, "service-ended", "the process of the service has ended";
    PoolInUse = CONFLICT, "pool-in-use", "the pool is in use";
    LimitUnknown = UNPROCESSABLE_ENTITY, "limit-unknown", "no limit applies to a key";
    LimitReached = SERVICE_UNAVAILABLE, "limit-reached", "a limit has no free place", retry after 5;
    NamespaceUnknown = UNPROCESSABLE_ENTITY, "namespace-unknown", "the namespace does not exist";
    PoolNotAllowed = UNPROCESSABLE_ENTITY, "pool-not-allowed", "the namespace may not use the pool";
    QuotaReached = CONFLICT, "quota-reached", "the namespace has reached a quota";
    CreateQuotaReached = TOO_MANY_REQUESTS, "create-quota-reached", "the namespace has used its creates of this minute", retry after 10;
    NamespaceInUse = CONFLICT, "namespace-in-use", "the namespace has observers";
    TooManyNamespaces = CONFLICT, "too-many-namespaces", "there are too many namespaces";
    LimitInUse = CONFLICT, "limit-in-use", "observers name the limit";
    NameEnding = SERVICE_UNAVAILABLE, "name-ending", "the name is about to become free", retry after 1;
    RebalanceRunning = SERVICE_UNAVAILABLE, "rebalance-running", "a rebalance has not settled yet", retry after 5;
    TooManyTokens = CONFLICT, "too-many-tokens", "there are too many tokens";
    TokenNotValid = CONFLICT, "token-not-valid", "the token cannot be rotated";
    LastToken = CONFLICT, "last-token", "the last token that may create tokens cannot be revoked";
    NoSession = CONFLICT, "no-session", "not possible in this session";
    TooManyRoles = CONFLICT, "too-many-roles", "there are too many roles";
    RoleInUse = CONFLICT, "role-in-use", "the role is in use";
    TooManyLimits = CONFLICT, "too-many-limits", "there are too many limits";
    TooManyRates = CONFLICT, "too-many-rates", "there are too many rates";
    InRollout = CONFLICT, "in-rollout", "the observer is in another rollout";
    RolloutOver = CONFLICT, "rollout-over", "the rollout is over";
    RolloutReverting = CONFLICT, "rollout-reverting", "the rollout is being reverted";
    TooManyRollouts = CONFLICT, "too-many-rollouts", "too many rollouts are not over";
    BatchIncomplete = CONFLICT, "batch-incomplete", "not all members of the batch exist";
    BatchNotOver = CONFLICT, "batch-not-over", "the batch is not over";
    BatchOver = CONFLICT, "batch-over", "the batch is over";
    TooManyBatches = CONFLICT, "too-many-batches", "too many batches are not over";
    BrokerUnavailable = SERVICE_UNAVAILABLE, "broker-unavailable", "the broker does not answer", retry after 1;
    DatabaseUnavailable = SERVICE_UNAVAILABLE, "database-unavailable", "the database does not answer", retry after 1;
    ProviderUnavailable = SERVICE_UNAVAILABLE, "identity-provider-unavailable", "the identity provider does not answer", retry after 10;
    NotReady = SERVICE_UNAVAILABLE, "not-ready", "the manager is not ready", retry after 5;
    Stopping = SERVICE_UNAVAILABLE, "stopping", "the manager is stopping", retry after 1;
    Internal = INTERNAL_SERVER_ERROR, "internal", "the manager failed";
}

impl Code {
    /// Those whose words stand in a text.
    pub(crate) fn told_in(text: &str) -> Vec<Self> {
        let words = text.split(|c: char| !c.is_ascii_lowercase() && c != '-');
        words.filter_map(|word| Self::NAMED.iter().copied().find(|code| code.word() == word)).collect()
    }

    /// Its HTTP status.
    pub(crate) fn status(self) -> StatusCode {
        self.describe().0
    }
    /// The stable word.
    pub(crate) fn word(self) -> &'static str {
        self.describe().1
    }

    pub(super) fn of_status(status: StatusCode) -> Self {
        match status {
            StatusCode::BAD_REQUEST => Self::BadRequest,
            StatusCode::NOT_FOUND => Self::NoSuchRoute,
            StatusCode::METHOD_NOT_ALLOWED => Self::MethodNotAllowed,
            StatusCode::PAYLOAD_TOO_LARGE => Self::TooLarge,
            StatusCode::UNSUPPORTED_MEDIA_TYPE => Self::NotJson,
            StatusCode::UNPROCESSABLE_ENTITY => Self::Invalid,
            other => Self::Other(other),
        }
    }
}
