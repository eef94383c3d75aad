//! The types of events, for the HTTP reference.

use everwatch_core::record::events::EventKind;
use std::fmt::Write as _;

const HEAD: &str = "
## Event types

The values of `type` of [Event](#event), and of the query parameter `type`:

| type | what has happened |
|---|---|
";

/// What has happened when an event of a type is stored.
fn meaning(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Created => "A user created an observer.",
        EventKind::Adopted => {
            "A manager found a running observer that the database does not know, and stored it."
        }
        EventKind::Changed => "A user changed the definition of an observer.",
        EventKind::PauseRequested => "A user paused an observer.",
        EventKind::ResumeRequested => "A user resumed an observer.",
        EventKind::RestartRequested => "A user restarted an observer.",
        EventKind::Preempted => {
            "The run of an observer ends, so that an observer of a higher priority gets its slot."
        }
        EventKind::MoveRequested => "A user moved an observer.",
        EventKind::MovedElsewhere => {
            "A user moved an observer to a service, and another service took the observer."
        }
        EventKind::DeleteRequested => "A user deleted an observer, whose run has not ended yet.",
        EventKind::TriggerRequested => "A user requested an execution before the next time of the schedule.",
        EventKind::Scheduled => {
            "An observer waits for its `start_at`, its window or the next time of its schedule."
        }
        EventKind::Waiting => "An observer waits for a slot or for a place of a limit.",
        EventKind::Admitted => "An observer that waited has a slot; a manager publishes its next generation.",
        EventKind::Republished => "A manager publishes a further generation of an observer.",
        EventKind::Started => "A service started the code of an observer, at the beginning of a run.",
        EventKind::Restarted => "A service started the code again within the same run.",
        EventKind::Errored => "The code ended with an error.",
        EventKind::HandedOver => "A service handed an observer over.",
        EventKind::Duplicated => {
            "Two services ran an observer at once, because its message existed twice; the observer restarts."
        }
        EventKind::Refused => "A service refused an observer, because it cannot run the kind or the weight.",
        EventKind::Withdrawn => {
            "A manager withdrew the message of an observer, because no service of the pool can run it now."
        }
        EventKind::Stopped => "The run of an observer ended, as requested.",
        EventKind::Completed => "The code of an observer has completed.",
        EventKind::Failed => "An observer has failed.",
        EventKind::Deleted => "An observer is deleted.",
        EventKind::ServiceRegistered => "A service registered.",
        EventKind::ServiceSuspect => "A service is silent; managers ask the broker about its session.",
        EventKind::ServiceLost => "The session of a service ended before the service unregistered.",
        EventKind::ServiceGone => "A service handed over its observers and unregistered.",
        EventKind::ServiceCordoned => "A user cordoned a service.",
        EventKind::ServiceUncordoned => "A user uncordoned a service.",
        EventKind::ServiceDraining => "A user started the drain of a service.",
        EventKind::ServiceDrained => "A drained service holds no observer any more.",
        EventKind::ServiceResized => "A user changed the capacity of a service.",
        EventKind::Rebalanced => "A user applied a rebalance.",
        EventKind::LimitSet => "A user created or changed a limit.",
        EventKind::LimitDeleted => "A user deleted a limit.",
        EventKind::PoolPaused => "A user paused a pool: managers admit no observer to it.",
        EventKind::PoolResumed => "A user resumed a pool.",
        EventKind::RateSet => "A user created or changed a rate.",
        EventKind::RateDeleted => "A user deleted a rate.",
        EventKind::RolloutStarted => "A user started a rollout.",
        EventKind::RolloutPaused => {
            "A user paused a rollout, or a member has failed: managers change no member until it is resumed."
        }
        EventKind::RolloutResumed => "A user resumed a rollout.",
        EventKind::RolloutReverting => "Managers restore the former definitions of the members of a rollout.",
        other => of_operations(other),
    }
}

fn of_operations(kind: EventKind) -> &'static str {
    match kind {
        EventKind::RolloutFinished => "A rollout has changed all its members.",
        EventKind::RolloutReverted => "A rollout has restored the former definitions of its members.",
        EventKind::RolloutCancelled => "A user cancelled a rollout.",
        EventKind::BatchCreated => "A user created a batch.",
        EventKind::BatchIncomplete => "The request that creates the members of a batch was cut off.",
        EventKind::BatchCompleted => "Each member of a batch has ended.",
        EventKind::BatchRetried => "A user retried the failed members of a batch.",
        EventKind::BatchCancelling => {
            "A user cancelled a batch: managers delete the members that have not ended."
        }
        EventKind::BatchCancelled => "A cancelled batch is over.",
        EventKind::BatchDeleted => "A user deleted a batch.",
        EventKind::WorkQueueCreated => "A manager or a service created the work queue of a pool.",
        EventKind::SafeMode => "A user switched safe mode on or off.",
        EventKind::MessagesRefused => "A service refused messages that no manager has signed.",
        EventKind::RepublishCapped => {
            "Very many observers seem to be lost. Managers republish some of them now, and the others later."
        }
        EventKind::CrashLooping => {
            "Services died shortly after they had started an observer. From now on, services start this observer alone."
        }
        EventKind::QuarantineCapped => {
            "Managers quarantined no observer, because they would have had to quarantine very many at once."
        }
        EventKind::Unreadable => {
            "This manager cannot read the stored event, for example because a newer version stored it."
        }
        _ => "",
    }
}

/// One row for each type.
pub(super) fn table() -> String {
    let mut table = HEAD.to_owned();
    for kind in EventKind::ALL {
        assert!(!meaning(*kind).is_empty(), "nothing says what {kind} means");
        writeln!(table, "| `{kind}` | {} |", meaning(*kind)).unwrap();
    }
    table
}
