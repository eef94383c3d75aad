//! The executions of an observer with a schedule.

use everwatch_core::clock::Timestamp;
use everwatch_core::record::row;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// How an execution of an observer with a schedule ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Execution {
    /// The time of the schedule for which it started; null if a request started it.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub scheduled_for: Option<Timestamp>,
    /// When it completed or failed: by the clock of the service's host, or by the database's if a manager
    /// ended it.
    #[schema(value_type = String, format = DateTime)]
    pub ended_at: Timestamp,
    /// Why it failed; null if it completed.
    pub error: Option<String>,
}

impl From<row::Execution> for Execution {
    fn from(row::Execution { scheduled_for, ended_at, error }: row::Execution) -> Self {
        Self { scheduled_for, ended_at, error }
    }
}

/// When an observer with a schedule executes next.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ScheduleTimes {
    /// The cron expression in English.
    #[schema(example = "At 03:00.")]
    pub description: String,
    /// The name in the IANA time zone database: the times are those of its clocks.
    #[schema(example = "Europe/Berlin")]
    pub time_zone: String,
    /// The time for which the current or the latest execution started; null if a request started it, or if there was none.
    #[schema(value_type = Option<String>, format = DateTime)]
    pub scheduled_for: Option<Timestamp>,
    /// The next times of the schedule up to `finish_at`, with the delay that `jitter` gives this observer. A time during a
    /// pause starts nothing; `if_running` decides about a time during an execution.
    #[schema(value_type = Vec<String>)]
    pub next: Vec<Timestamp>,
}
