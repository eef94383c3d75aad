//! The advice that operators get about RabbitMQ's acknowledgement time-out. Works on text and versions only.

/// The setting for `rabbitmq.conf`: ten years, which every version accepts. Not `undefined`, which breaks
/// 4.3.
const CURE: &str = "set `consumer_timeout = 315360000000` in rabbitmq.conf and restart the broker";

/// The reason of a loss when the broker cancels a consumer.
pub const ENDED_CONSUMER: &str = "the broker has ended a consumer";

/// A warning for a broker of this version (such as "3.10.8"), if an operator has to act. Up to 3.11, a queue
/// argument cannot lift the acknowledgement time-out (30 minutes by default), and the broker does not report
/// its value.
#[must_use]
pub fn at_start(version: &str) -> Option<String> {
    let mut numbers = version.split('.').map(|part| part.parse::<u32>().unwrap_or(u32::MAX));
    let (major, minor) = (numbers.next()?, numbers.next()?);
    ((major, minor) < (3, 12)).then(|| {
        format!(
            "RabbitMQ {version} takes messages back that are not acknowledged within its consumer_timeout \
             (30 minutes unless its configuration says otherwise), and only its configuration can lift that: \
             each time it fires, all observers of a service are stopped and run elsewhere, at most \
             `fence_grace` twice at once. To prevent it, {CURE}"
        )
    })
}

/// Advice on how to prevent the loss of a session for this reason.
#[must_use]
pub fn after_loss(reason: &str) -> Option<String> {
    if reason.contains("delivery acknowledgement on channel") {
        return Some(format!("the broker's acknowledgement time-out has fired; to prevent it, {CURE}"));
    }
    reason.contains(ENDED_CONSUMER).then(|| {
        format!(
            "either the work queue was deleted, or (from RabbitMQ 4.3 on) a policy gave it an acknowledgement \
             time-out that has fired: remove `consumer-timeout` from that policy, or {CURE}"
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_brokers_that_ignore_the_queue_argument_are_warned_about() {
        for version in ["3.8.17", "3.10.8", "3.11.28"] {
            assert!(at_start(version).unwrap().contains(version));
        }
        for version in ["3.12.0", "3.13.7", "4.0.5", "4.3.6", "", "next"] {
            assert_eq!(at_start(version), None);
        }
    }

    #[test]
    fn a_fired_time_out_is_recognised_in_the_broker_s_words() {
        let words = "PRECONDITION_FAILED - delivery acknowledgement on channel 7 timed out. Timeout value used: 60000 ms";
        assert!(after_loss(words).unwrap().contains("consumer_timeout"));
        assert_eq!(after_loss("connection reset by peer"), None);
    }
}
