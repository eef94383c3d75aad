//! Messages that are not from a manager: counted here, and reported to the managers, who write them to the audit log.

use super::ServiceSession;
use crate::metric;
use crate::session::reporter::Say;
use everwatch_core::id::ObserverId;
use everwatch_core::wire::report::{RefusedMessages, Report};
use everwatch_core::wire::signature::Refused;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// The most often that refusals for one reason are reported: a flood of forged messages must not fill the audit log.
const REPORT_EVERY: Duration = Duration::from_secs(60);

/// Refused messages by queue and reason; there are few of both.
#[derive(Default)]
pub(super) struct Refusals(BTreeMap<(String, &'static str), Group>);

struct Group {
    /// Those since the last report.
    count: u64,
    /// Of the latest one.
    detail: String,
    observer: Option<ObserverId>,
    reported_at: Option<Instant>,
}

impl Refusals {
    /// Counts a refused message. `what`: work or command.
    pub(super) fn add(
        &mut self,
        (what, queue): (&'static str, String),
        refused: &Refused,
        observer: Option<ObserverId>,
    ) {
        metrics::counter!(metric::REFUSED, "message" => what, "reason" => refused.code()).increment(1);
        let group = self.0.entry((queue, refused.code())).or_insert_with_key(|(queue, reason)| {
            tracing::error!(queue, reason, detail = %refused, "a message is refused: it is not from a manager");
            Group { count: 0, detail: String::new(), observer: None, reported_at: None }
        });
        group.count += 1;
        (group.detail, group.observer) = (refused.to_string(), observer);
    }

    /// What is to be reported now.
    fn due(&mut self) -> Vec<RefusedMessages> {
        let now = Instant::now();
        let is_due = |group: &Group| {
            group.count > 0 && group.reported_at.is_none_or(|at| now.duration_since(at) >= REPORT_EVERY)
        };
        let due = self.0.iter_mut().filter(|(_, group)| is_due(group));
        due.map(|((queue, reason), group)| {
            group.reported_at = Some(now);
            RefusedMessages {
                queue: queue.clone(),
                reason: (*reason).to_owned(),
                count: std::mem::take(&mut group.count),
                detail: group.detail.clone(),
                observer: group.observer,
            }
        })
        .collect()
    }
}

impl ServiceSession {
    pub(super) async fn report_refusals(&mut self) {
        for refused in self.refusals.due() {
            self.reporter.say(Say::Tell(Report::MessagesRefused(refused))).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(refusals: &mut Refusals) -> Vec<(&'static str, u64)> {
        let word = |it: &RefusedMessages| if it.reason == "unsigned" { "unsigned" } else { "altered" };
        refusals.due().iter().map(|it| (word(it), it.count)).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn refusals_for_one_reason_are_reported_together_once_a_minute() {
        let mut refusals = Refusals::default();
        let work = || ("work", "e.work.default".to_owned());
        for _ in 0..3 {
            refusals.add(work(), &Refused::Altered, None);
        }
        refusals.add(work(), &Refused::Unsigned, None);
        assert_eq!(counts(&mut refusals), [("altered", 3), ("unsigned", 1)]);
        refusals.add(work(), &Refused::Altered, None);
        assert_eq!(counts(&mut refusals), []);
        tokio::time::advance(REPORT_EVERY).await;
        assert_eq!(counts(&mut refusals), [("altered", 1)]);
        tokio::time::advance(REPORT_EVERY).await;
        assert_eq!(counts(&mut refusals), []);
    }
}
