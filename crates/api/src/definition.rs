//! What the document says of bodies that `core` reads member by member: only their schemas are used.
#![expect(dead_code, reason = "core reads these bodies, so that every error names its place")]

use serde_json::Value;
use std::collections::BTreeMap;
use utoipa::ToSchema;

/// The definition of an observer; null means the default.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct NewObserver {
    /// 1 to 128 of `A-Z a-z 0-9 . _ -`; generated if missing.
    name: Option<String>,
    /// 1 to 63 of `a-z 0-9 -`. If missing, the query names it; otherwise it is the namespace of the token, or `default`.
    namespace: Option<String>,
    /// The code that runs: a kind that services of its pool offer.
    kind: String,
    /// The arguments of its kind, which the kind's JSON Schema describes; at most 64 KiB and 64 levels deep.
    spec: Option<Value>,
    /// The pool: the group of services that may run the observer.
    #[schema(default = "default")]
    pool: Option<String>,
    /// At most 64. A key has 1 to 128 of `A-Z a-z 0-9 . _ - /`, a value at most 256 bytes without control characters.
    labels: Option<BTreeMap<String, String>>,
    retry: Option<RetryPolicy>,
    overlap: Option<Overlap>,
    /// The time between telling its code to stop and aborting it; at most 1h.
    #[schema(default = "10s")]
    grace: Option<String>,
    on_full: Option<OnFull>,
    /// Free slots go to the highest priority first.
    #[schema(minimum = -100, maximum = 100, default = 0)]
    priority: Option<i8>,
    /// The number of slots that the observer takes. At most the `weight_max` of a service of its pool, by default 1.
    #[schema(minimum = 1, maximum = 1000, default = 1)]
    weight: Option<u16>,
    /// Keys of the limits that apply to the observer: each of 1 to 128 of `A-Z a-z 0-9 . _ -`. It runs only while each limit has a free place.
    #[schema(max_items = 8, example = json!(["account-42"]))]
    limits: Option<Vec<String>>,
    /// The observer does not start before this time, by the database's clock.
    #[schema(value_type = Option<String>, format = DateTime)]
    start_at: Option<String>,
    /// The observer ends at this time, by the database's clock, whether it is running, waiting or paused.
    #[schema(value_type = Option<String>, format = DateTime)]
    finish_at: Option<String>,
    /// The observer runs only within these hours, by the database's clock.
    windows: Option<RunWindows>,
    /// The observer executes at these times, by the database's clock. Cannot be combined with `windows`.
    schedule: Option<RunSchedule>,
    /// The observer fails if it still waits for a slot after this time. At least 1s.
    #[schema(example = "10m")]
    start_within: Option<String>,
    /// After this time, the service stops the attempt, and the retry policy decides whether another one follows. At least
    /// 1s.
    #[schema(example = "30m")]
    attempt_timeout: Option<String>,
    desired: Option<RunOrRest>,
}

/// The members of an observer to change; null restores the default.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct ObserverPatch {
    /// Its present name: a name cannot change.
    name: Option<String>,
    /// Its present namespace: a namespace cannot change.
    namespace: Option<String>,
    /// The code that runs: a kind that services of its pool offer. It has no default.
    kind: Option<String>,
    /// Merged member by member if it is an object.
    spec: Option<Value>,
    /// The pool: the group of services that may run the observer; by default `default`. A change ends the
    /// run.
    pool: Option<String>,
    /// Merged key by key: null removes a label; null in place of the object removes all.
    labels: Option<BTreeMap<String, Option<String>>>,
    /// Merged member by member, unless it names a kind.
    #[schema(value_type = Option<Object>)]
    retry: Option<RetryPolicy>,
    overlap: Option<Overlap>,
    /// The time between telling its code to stop and aborting it; at most 1h, by default 10s.
    grace: Option<String>,
    on_full: Option<OnFull>,
    /// Free slots go to the highest priority first.
    #[schema(minimum = -100, maximum = 100)]
    priority: Option<i8>,
    /// The number of slots that the observer takes. At most the `weight_max` of a service of its pool, by default 1.
    #[schema(minimum = 1, maximum = 1000)]
    weight: Option<u16>,
    /// Keys of the limits that apply to the observer: each of 1 to 128 of `A-Z a-z 0-9 . _ -`. It runs only while each limit has a free place.
    #[schema(max_items = 8, example = json!(["account-42"]))]
    limits: Option<Vec<String>>,
    /// The observer does not start before this time, by the database's clock.
    #[schema(value_type = Option<String>, format = DateTime)]
    start_at: Option<String>,
    /// The observer ends at this time, by the database's clock, whether it is running, waiting or paused.
    #[schema(value_type = Option<String>, format = DateTime)]
    finish_at: Option<String>,
    /// The observer runs only within these hours, by the database's clock.
    windows: Option<RunWindows>,
    /// The observer executes at these times, by the database's clock. Cannot be combined with `windows`.
    schedule: Option<RunSchedule>,
    /// The observer fails if it still waits for a slot after this time. At least 1s.
    #[schema(example = "10m")]
    start_within: Option<String>,
    /// After this time, the service stops the attempt, and the retry policy decides whether another one follows. At least
    /// 1s.
    #[schema(example = "30m")]
    attempt_timeout: Option<String>,
    desired: Option<RunOrRest>,
}

/// The hours of the week in which an observer may run, by the clocks of a time zone. At the end of a window, its service
/// stops it; when the next one opens, it waits for a slot. Openings without a gap between them count as one.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunWindows {
    /// A name of the IANA time zone database.
    #[schema(example = "America/New_York")]
    time_zone: String,
    /// The windows.
    #[schema(min_items = 1, max_items = 32)]
    open: Vec<WindowOpening>,
    /// Local dates on which nothing opens, as `YYYY-MM-DD`.
    #[schema(required = false, max_items = 366, example = json!(["2026-12-25"]))]
    except: Vec<String>,
}

/// One window: it opens on each of its days.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct WindowOpening {
    /// Days of the week, ranges of them, and lists of both.
    #[schema(required = false, default = "mon-sun", example = "mon-fri")]
    days: String,
    /// The time at which it opens, as `HH:MM`.
    #[schema(example = "09:30")]
    from: String,
    /// The time at which it closes, as `HH:MM`. A time before `from` is one on the next day; `24:00` is the end of the day.
    #[schema(example = "16:00")]
    to: String,
}

/// The times at which an observer executes. When an execution has completed or failed, the observer waits for the next
/// time.
#[derive(ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RunSchedule {
    /// Minute, hour, day of the month, month and day of the week; a sixth field before them gives the seconds. Names,
    /// lists, ranges and steps are accepted, and so are `@hourly`, `@daily`, `@weekly`, `@monthly` and `@yearly`.
    #[schema(max_length = 200, example = "0 3 * * *")]
    cron: String,
    /// A name of the IANA time zone database: the times are those of its clocks.
    #[schema(required = false, default = "UTC", example = "Europe/Berlin")]
    time_zone: String,
    /// How late an execution may start if no manager was alive at its time. A delay of up to 10s always counts as on time;
    /// at most 168h. If several times were missed, only the latest is executed.
    #[schema(required = false, default = "1h")]
    catch_up: String,
    if_running: Option<IfRunning>,
    /// The largest delay: each observer executes later than these times by its own fixed delay; at most 168h.
    #[schema(required = false, default = "0s", example = "5m")]
    jitter: String,
}

/// What happens at a time of the schedule while an execution is active: nothing; the next one starts when this one
/// has ended; or this one is stopped and the next one starts.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum IfRunning {
    Skip,
    Queue,
    Restart,
}

/// When its code starts again after an error. Delays are at most a year.
#[derive(ToSchema)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum RetryPolicy {
    /// Doubling delays, each shortened at random by up to half.
    Exponential {
        /// The first delay.
        #[schema(required = false, default = "1s")]
        first: String,
        /// The longest delay.
        #[schema(required = false, default = "60s")]
        max: String,
        /// The maximum number of starts in one run; after that, the observer fails. Null means no limit.
        #[schema(minimum = 1)]
        attempts: Option<u32>,
        /// After running this long without an error, the delays begin at `first` again.
        #[schema(required = false, default = "5m")]
        reset_after: String,
    },
    /// The same delay each time.
    Fixed {
        /// The delay.
        #[schema(example = "30s")]
        every: String,
        /// The maximum number of starts in one run; after that, the observer fails. Null means no limit.
        #[schema(minimum = 1)]
        attempts: Option<u32>,
    },
    /// These delays, then it fails.
    Intervals {
        /// At most 100. With none, the first error fails the observer.
        #[schema(example = json!(["1s", "10s", "1m"]))]
        delays: Vec<String>,
    },
}

/// Whether a redelivered run may start while the previous run may still be ending: `allow`, or `forbid`, which waits until that run has
/// certainly ended.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Overlap {
    Allow,
    Forbid,
}

/// What a create does if the pool has no free slot: `reject` the request, or `queue` the observer, which then waits for one.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum OnFull {
    Reject,
    Queue,
}

/// The desired state: `running`, or `paused`, which keeps the observer without a run.
#[derive(ToSchema)]
#[serde(rename_all = "snake_case")]
pub(crate) enum RunOrRest {
    Running,
    Paused,
}

/// An error in one member of a body.
#[derive(ToSchema)]
pub struct MemberError {
    /// The member, as a JSON pointer.
    pointer: String,
    /// What is wrong with the member, for people.
    detail: String,
}
