//! One queue that must keep every message: arguments and policies that make it lose or redeliver observers.

use super::{Finding, QueueFacts, Server, Severity};
use crate::clock::show;
use serde_json::Value;
use std::time::Duration;

/// The line for `rabbitmq.conf` that every version accepts.
pub(super) const TIMEOUT_CURE: &str =
    "set `consumer_timeout = 315360000000` in rabbitmq.conf and restart the broker";
/// A shorter timeout is reported; Everwatch sets ten years.
const NO_TIMEOUT_MS: u64 = 365 * 86_400_000;
/// A lower limit is reported; Everwatch sets a billion.
const NO_DELIVERY_LIMIT: i64 = 1_000_000;
const TIMEOUT_STOPS: &str = "each time it fires, a service stops all its observers and they start elsewhere";

/// `lifts`: the broker supports a timeout per queue.
pub(super) fn findings(queue: &QueueFacts, server: &Server, lifts: bool) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !queue.differs.is_empty() {
        let each = queue.differs.iter().map(|it| {
            let value = |it: &Value| if it.is_null() { "not set".to_owned() } else { it.to_string() };
            format!("{} is {} instead of {}", it.argument, value(&it.theirs), value(&it.ours))
        });
        findings.push(other_arguments(server, &queue.name, &each.collect::<Vec<_>>().join(", ")));
    }
    let harms = limits(queue).into_iter().chain(lifts.then(|| time_out(queue)).flatten());
    findings.extend(harms.map(|harm| Finding {
        code: "policy",
        severity: harm.severity,
        subject: format!("queue {}", queue.name),
        what: format!("{} sets {} on the queue", named(queue), harm.what),
        why: harm.why.to_owned(),
        cure: cure(queue, server, harm.key),
    }));
    let told = queue.consumer_timeout_ms.filter(|millis| *millis < NO_TIMEOUT_MS);
    if let Some(millis) = told.filter(|_| time_out(queue).is_none()) {
        let timeout = show(Duration::from_millis(millis));
        findings.push(Finding {
            code: "ack-timeout-short",
            severity: Severity::Critical,
            subject: format!("queue {}", queue.name),
            what: format!("its consumers have an acknowledgement timeout of {timeout}"),
            why: TIMEOUT_STOPS.to_owned(),
            cure: TIMEOUT_CURE.to_owned(),
        });
    }
    findings
}

pub(super) fn other_arguments(server: &Server, queue: &str, what: &str) -> Finding {
    Finding {
        code: "queue-arguments",
        severity: Severity::Critical,
        subject: format!("queue {queue}"),
        what: format!("the queue has other arguments than Everwatch declares: {what}"),
        why: "the queue loses or redelivers observers, or cannot be used at all".to_owned(),
        cure: format!(
            "`rabbitmqctl -p {} delete_queue {queue}`: Everwatch creates it again and republishes the observers \
             of a work queue (each restarts once)",
            server.vhost
        ),
    }
}

/// The effect of a policy on a queue.
struct Harm {
    severity: Severity,
    key: &'static str,
    what: String,
    why: &'static str,
}

fn number(queue: &QueueFacts, key: &str) -> Option<i64> {
    queue.definition.get(key).and_then(Value::as_i64)
}

fn limits(queue: &QueueFacts) -> Vec<Harm> {
    let drops = "the queue drops observers for good when their service dies";
    let mut harms = Vec::new();
    if let Some(limit) = number(queue, "delivery-limit").filter(|limit| *limit < NO_DELIVERY_LIMIT) {
        let (what, why) =
            (format!("a delivery limit of {limit}"), "observers delivered more often are dropped for good");
        harms.push(Harm { severity: Severity::Critical, key: "delivery-limit", what, why });
    }
    for key in ["message-ttl", "expires"] {
        if let Some(millis) = number(queue, key) {
            harms.push(Harm {
                severity: Severity::Critical,
                key,
                what: format!("{key} of {millis} ms"),
                why: drops,
            });
        }
    }
    // The overflow of a policy takes precedence over the argument of the queue.
    let (severity, why) = match queue.definition.get("overflow") {
        Some(overflow) if overflow == "drop-head" => (Severity::Critical, drops),
        _ => (Severity::Warning, "a full queue refuses creates and reports"),
    };
    for key in ["max-length", "max-length-bytes"] {
        if let Some(most) = number(queue, key) {
            harms.push(Harm { severity, key, what: format!("{key} of {most}"), why });
        }
    }
    if queue.definition.get("delayed-retry-type").is_some_and(|it| it != "disabled") {
        let (what, why) =
            ("delayed retries".to_owned(), "observers of a dead service start later than necessary");
        harms.push(Harm { severity: Severity::Warning, key: "delayed-retry-type", what, why });
    }
    harms
}

fn time_out(queue: &QueueFacts) -> Option<Harm> {
    let key = "consumer-timeout";
    let millis =
        number(queue, key).filter(|millis| u64::try_from(*millis).is_ok_and(|it| it < NO_TIMEOUT_MS))?;
    let what = format!("an acknowledgement timeout of {millis} ms");
    Some(Harm { severity: Severity::Critical, key, what, why: TIMEOUT_STOPS })
}

fn named(queue: &QueueFacts) -> String {
    match (&queue.policy, &queue.operator_policy) {
        (Some(policy), None) => format!("policy {policy}"),
        (None, Some(operator)) => format!("operator policy {operator}"),
        (Some(policy), Some(operator)) => format!("policy {policy} or operator policy {operator}"),
        (None, None) => "a policy".to_owned(),
    }
}

fn cure(queue: &QueueFacts, server: &Server, key: &str) -> String {
    let clear = |verb: &str, name: &String| format!("`rabbitmqctl -p {} {verb} {name}`", server.vhost);
    let both = [
        queue.policy.as_ref().map(|name| clear("clear_policy", name)),
        queue.operator_policy.as_ref().map(|name| clear("clear_operator_policy", name)),
    ];
    let commands: Vec<String> = both.into_iter().flatten().collect();
    if commands.is_empty() {
        return format!("remove {key} from the policy that matches the queue (`rabbitmqctl list_policies`)");
    }
    format!("{}, or change the pattern to exclude Everwatch's queues", commands.join(" or "))
}
