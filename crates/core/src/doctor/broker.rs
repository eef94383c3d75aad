//! The broker: versions, settings and policies that take observers away from their services.

use super::queue::TIMEOUT_CURE;
use super::{
    Facts, Finding, FleetFacts, Management, ManagementSnapshot, Server, SessionFacts, Severity, queue,
    state_queues,
};
use crate::clock::show;
use crate::failure::fence::BROKER_HEARTBEATS;
use std::time::Duration;

/// The tested versions; newer ones may behave differently.
const OLDEST: (u32, u32) = (3, 10);
const NEWEST: (u32, u32) = (4, 3);
/// From this version on, a queue can lift the acknowledgement timeout, and the broker reports the effective one.
const QUEUES_LIFT_TIMEOUT: (u32, u32) = (3, 12);
/// From this version on, the log of a queue no longer grows behind its oldest message.
const LOG_IS_COMPACTED: (u32, u32) = (4, 3);
/// A message held for longer proves that the default of 30 minutes (checked once a minute) is not in force.
const DEFAULT_TIMEOUT_DISPROVED: Duration = Duration::from_secs(35 * 60);
/// A log that has grown for longer is reported.
const LOG_AGE: Duration = Duration::from_secs(7 * 86_400);

pub(super) fn findings(facts: &Facts) -> Vec<Finding> {
    let Some(server) = &facts.server else { return Vec::new() };
    let version = server.version.as_deref().and_then(numbers);
    let mut findings = Vec::new();
    match &facts.session {
        Ok(session) => findings.extend(of_session(session, server)),
        Err(why) => findings.push(Finding {
            code: "broker-unreachable",
            severity: Severity::Critical,
            subject: server.place.clone(),
            what: format!("this manager has no session with the broker: {why}"),
            why: "services with a session keep running; nothing is published or reported".to_owned(),
            cure: format!(
                "run `rabbitmq-diagnostics check_running` on the host of {}, or correct `[broker] url`",
                server.place
            ),
        }),
    }
    findings.extend(of_version(server, version));
    if let Ok(fleet) = &facts.fleet {
        findings.extend(timed_out(fleet, server));
        findings.extend(log_growth(fleet, facts, version));
        findings.extend(unseen_timeout(fleet, facts, version));
    }
    match &server.management {
        Management::Unset => findings.push(Finding {
            code: "management-unset",
            severity: Severity::Info,
            subject: server.place.clone(),
            what: "policies, alarms, nodes and queue arguments were not checked".to_owned(),
            why: "a policy that limits deliveries, lengths or ages can silently take observers away"
                .to_owned(),
            cure: "set `[broker] management_url = \"http://user:password@host:15672\"` (a user with the tag \
                   `monitoring`) or `management_url_file`, and restart the manager"
                .to_owned(),
        }),
        Management::Silent(why) => findings.push(Finding {
            code: "management-silent",
            severity: Severity::Warning,
            subject: server.place.clone(),
            what: format!("the broker's management API does not answer: {why}"),
            why: "policies, alarms, nodes and queue arguments were not checked".to_owned(),
            cure: "`rabbitmq-plugins enable rabbitmq_management`, or correct `[broker] management_url`"
                .to_owned(),
        }),
        Management::ManagementSnapshot(told) => findings.extend(of_management(told, server, version)),
    }
    findings
}

fn numbers(version: &str) -> Option<(u32, u32)> {
    let mut parts = version.split('.').map(|part| part.parse().ok());
    Some((parts.next()??, parts.next()??))
}

fn of_version(server: &Server, version: Option<(u32, u32)>) -> Option<Finding> {
    let told = server.version.as_deref()?;
    let (severity, what, cure) = match version {
        Some(it) if it < OLDEST => (Severity::Critical, "is not supported", "upgrade it to 3.10 or newer"),
        Some(it) if it <= NEWEST => return None,
        _ => (Severity::Info, "is untested with this version of Everwatch", "upgrade Everwatch if possible"),
    };
    Some(Finding {
        code: "broker-version",
        severity,
        subject: server.place.clone(),
        what: format!("RabbitMQ {told} {what}; supported are 3.10 to 4.3"),
        why: "ownership depends on how the broker redelivers messages, which differs between versions"
            .to_owned(),
        cure: cure.to_owned(),
    })
}

fn of_session(session: &SessionFacts, server: &Server) -> Vec<Finding> {
    let mut findings = Vec::new();
    if session.blocked && !has_alarm(server) {
        findings.push(Finding {
            code: "broker-alarm",
            severity: Severity::Critical,
            subject: server.place.clone(),
            what: "the broker blocks publishers because memory or disk space is low".to_owned(),
            why: "running observers continue, but nothing is created, ended or reported".to_owned(),
            cure: "`rabbitmq-diagnostics alarms` names the node; free memory or disk there".to_owned(),
        });
    }
    if let Some(heartbeat) = session.heartbeat.filter(|heartbeat| *heartbeat != server.heartbeat) {
        let (agreed, configured) = (show(heartbeat), show(server.heartbeat));
        findings.push(Finding {
            code: "heartbeat",
            severity: Severity::Warning,
            subject: server.place.clone(),
            what: format!("the broker uses a heartbeat of {agreed}, `[broker] heartbeat` is {configured}"),
            why:
                "an isolated service stops its observers by the configured value, and the broker redelivers them \
                  by its own: a shorter broker value causes overlaps, a longer one causes gaps"
                    .to_owned(),
            cure: heartbeat_cure(heartbeat, server.heartbeat),
        });
    }
    if server.guest_over_network {
        findings.push(Finding {
            code: "guest-over-network",
            severity: Severity::Warning,
            subject: server.place.clone(),
            what: "the user guest, whose password is public, logs in over the network".to_owned(),
            why: "anyone who can reach the broker can take, read and forge every observer".to_owned(),
            cure:
                "`rabbitmqctl add_user everwatch PASSWORD`, `rabbitmqctl set_permissions everwatch '.*' '.*' \
                   '.*'`, put it into `[broker] url`, then `rabbitmqctl delete_user guest`"
                    .to_owned(),
        });
    }
    let known = |queue: &str| match &server.management {
        Management::ManagementSnapshot(told) => {
            told.queues.iter().any(|it| it.name == queue && !it.differs.is_empty())
        }
        Management::Unset | Management::Silent(_) => false,
    };
    let refused = session.refused.iter().filter(|(queue, _)| !known(queue));
    findings.extend(
        refused
            .map(|(queue, said)| queue::other_arguments(server, queue, &format!("the broker said: {said}"))),
    );
    findings.extend(session.surplus.iter().map(|queue| state_queues::finding(queue, server)));
    findings
}

fn has_alarm(server: &Server) -> bool {
    match &server.management {
        Management::ManagementSnapshot(told) => {
            told.nodes.iter().any(|node| node.memory_alarm || node.disk_alarm)
        }
        Management::Unset | Management::Silent(_) => false,
    }
}

/// The acknowledgement timeout has fired on services that have come back since.
fn timed_out(fleet: &FleetFacts, server: &Server) -> Option<Finding> {
    let (name, cure) = fleet.timed_out.first()?;
    let others = match fleet.timed_out.len() {
        1 => String::new(),
        several => format!(" and {} others", several - 1),
    };
    Some(Finding {
        code: "ack-timeout-fired",
        severity: Severity::Critical,
        subject: server.place.clone(),
        what: format!(
            "the acknowledgement timeout fired: the broker took back the messages of service {name}{others}"
        ),
        why: "each time it fires, a service stops all its observers and they start elsewhere".to_owned(),
        cure: cure.clone(),
    })
}

/// Before 3.12 only the configuration lifts the timeout, and no API reports it.
fn unseen_timeout(fleet: &FleetFacts, facts: &Facts, version: Option<(u32, u32)>) -> Option<Finding> {
    let (server, version) = (facts.server.as_ref()?, version?);
    let held_since =
        fleet.running.iter().filter_map(|row| row.observed.started.as_ref()).map(|it| it.value.at).min();
    let disproved = held_since.is_some_and(|since| facts.now.since(since) > DEFAULT_TIMEOUT_DISPROVED);
    if version >= QUEUES_LIFT_TIMEOUT || disproved || !fleet.timed_out.is_empty() {
        return None;
    }
    Some(Finding {
        code: "ack-timeout-unseen",
        severity: Severity::Info,
        subject: server.place.clone(),
        what: format!(
            "RabbitMQ {} does not report its acknowledgement timeout, which only its configuration can lift, and \
             no message has been held for longer than the default of 30 minutes yet",
            server.version.as_deref().unwrap_or_default()
        ),
        why: "each time it fires, a service stops all its observers and they start elsewhere".to_owned(),
        cure: format!(
            "`rabbitmqctl environment | grep consumer_timeout`; if it prints 1800000, {TIMEOUT_CURE}"
        ),
    })
}

fn log_growth(fleet: &FleetFacts, facts: &Facts, version: Option<(u32, u32)>) -> Option<Finding> {
    let (server, version) = (facts.server.as_ref()?, version?);
    let published = |row: &&crate::record::row::Row| row.published_at;
    let oldest = fleet.running.iter().filter(|row| row.published_at.is_some()).min_by_key(published)?;
    let age = facts.now.since(oldest.published_at?);
    if version >= LOG_IS_COMPACTED || age < LOG_AGE {
        return None;
    }
    let name = &oldest.definition.name;
    Some(Finding {
        code: "log-growth",
        severity: Severity::Info,
        subject: format!("queue of pool {}", oldest.definition.pool),
        what: format!(
            "RabbitMQ before 4.3 keeps everything published to a queue since its oldest message; here that is \
             the message of {name}, {} days old",
            age.as_secs() / 86_400
        ),
        why: "each create and restart adds its size plus 260 bytes to the disk of every node; a full disk blocks \
              all publishers"
            .to_owned(),
        cure: format!(
            "`everwatch observer restart {}` (the oldest first), or upgrade {} to 4.3",
            oldest.definition.arguments(),
            server.place
        ),
    })
}

fn of_management(told: &ManagementSnapshot, server: &Server, version: Option<(u32, u32)>) -> Vec<Finding> {
    let mut findings = Vec::new();
    for node in &told.nodes {
        let mut add = |code, what: &str, why: &str, cure: &str| {
            findings.push(Finding {
                code,
                severity: Severity::Critical,
                subject: format!("node {}", node.name),
                what: what.to_owned(),
                why: why.to_owned(),
                cure: cure.to_owned(),
            });
        };
        let blocks =
            "all publishers are blocked: observers keep running, but nothing is created, ended or reported";
        if node.memory_alarm {
            add(
                "broker-alarm",
                "memory alarm: memory use exceeds the high watermark",
                blocks,
                "give it more memory, or `rabbitmqctl set_vm_memory_high_watermark 0.6`",
            );
        }
        if node.disk_alarm {
            add(
                "broker-alarm",
                "disk alarm: free space is below the limit",
                blocks,
                "free space on the disk, or lower the limit: `rabbitmqctl set_disk_free_limit 50MB`",
            );
        }
        if !node.running {
            add(
                "broker-node-down",
                "the node is not running",
                "the loss of another node may stop the queues",
                "start it, or `rabbitmqctl forget_cluster_node` if it never comes back",
            );
        }
        if !node.partitions.is_empty() {
            add(
                "broker-partition",
                &format!("the node cannot reach {}", node.partitions.join(", ")),
                "observers of services on the smaller side run twice until the fence stops them",
                "repair the network, then restart the nodes of the smaller side",
            );
        }
    }
    let lifts = version.is_none_or(|version| version >= QUEUES_LIFT_TIMEOUT);
    for queue in &told.queues {
        findings.extend(queue::findings(queue, server, lifts));
    }
    findings
}

/// Everwatch does not accept every heartbeat that RabbitMQ accepts.
fn heartbeat_cure(agreed: Duration, configured: Duration) -> String {
    let in_broker =
        format!("set `heartbeat = {}` in rabbitmq.conf and restart RabbitMQ", configured.as_secs());
    if !BROKER_HEARTBEATS.contains(&agreed) {
        return in_broker;
    }
    format!("set `[broker] heartbeat = \"{}\"` for all managers and services, or {in_broker}", show(agreed))
}
