//! The broker: what of its version, settings and policies takes observers away from their services.

use super::{Facts, Finding, FleetFacts, Management, Server, SessionFacts, Severity, Told, queue};
use crate::clock::show;
use std::time::Duration;

/// Those that were tried; what is newer may differ.
const OLDEST: (u32, u32) = (3, 10);
const NEWEST: (u32, u32) = (4, 3);
/// From here on a queue can lift the acknowledgement time-out itself, and the broker tells what is in force.
const QUEUES_LIFT_TIMEOUT: (u32, u32) = (3, 12);
/// From here on the log of a queue no longer grows behind its oldest message.
const LOG_IS_COMPACTED: (u32, u32) = (4, 3);
/// Held for longer than this, the default of 30 minutes (evaluated each minute) is not in force.
const DEFAULT_TIMEOUT_DISPROVED: Duration = Duration::from_secs(35 * 60);
/// A log that grows for longer is worth a word.
const LOG_AGE: Duration = Duration::from_secs(7 * 86_400);
/// The line for `rabbitmq.conf` that every version takes.
pub(super) const TIMEOUT_CURE: &str =
    "set `consumer_timeout = 315360000000` in rabbitmq.conf and restart the broker";

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
            why: "services that still have one go on; nothing new is published and nothing is reported".to_owned(),
            cure: format!(
                "`rabbitmq-diagnostics check_running` on the host of {}; correct `[broker] url` if it is elsewhere",
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
            what: "policies, alarms, nodes and the arguments of queues could not be looked at".to_owned(),
            why: "a policy that limits deliveries, lengths or ages takes observers away without a word"
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
            why: "policies, alarms, nodes and the arguments of queues could not be looked at".to_owned(),
            cure: "`rabbitmq-plugins enable rabbitmq_management`, or correct `[broker] management_url`"
                .to_owned(),
        }),
        Management::Told(told) => findings.extend(of_management(told, server, version)),
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
        _ => (Severity::Info, "was never tried with this version of Everwatch", "look for a newer Everwatch"),
    };
    Some(Finding {
        code: "broker-version",
        severity,
        subject: server.place.clone(),
        what: format!("RabbitMQ {told} {what}; known are 3.10 to 4.3"),
        why: "ownership rests on how the broker gives messages away, which differs between versions"
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
            what: "the broker blocks publishers: memory or disk runs low".to_owned(),
            why: "what runs goes on, but nothing is created, ended or reported".to_owned(),
            cure: "`rabbitmq-diagnostics alarms` names the node; free memory or disk there".to_owned(),
        });
    }
    if let Some(heartbeat) = session.heartbeat.filter(|heartbeat| *heartbeat != server.heartbeat) {
        let (agreed, wanted) = (show(heartbeat), show(server.heartbeat));
        findings.push(Finding {
            code: "heartbeat",
            severity: Severity::Warning,
            subject: server.place.clone(),
            what: format!("the broker wants a heartbeat of {agreed}, `[broker] heartbeat` is {wanted}"),
            why:
                "services that are cut off end their observers by the configured one, the broker gives them \
                  away by its own: too early means twice at once, too late means a longer gap"
                    .to_owned(),
            cure: format!(
                "set `[broker] heartbeat = \"{agreed}\"` everywhere, or `heartbeat = {}` in rabbitmq.conf",
                server.heartbeat.as_secs()
            ),
        });
    }
    if server.guest_over_network {
        findings.push(Finding {
            code: "guest-over-network",
            severity: Severity::Warning,
            subject: server.place.clone(),
            what: "the user guest, whose password everybody knows, logs in over the network".to_owned(),
            why: "whoever reaches the broker can take, read and forge every observer".to_owned(),
            cure:
                "`rabbitmqctl add_user everwatch PASSWORD`, `rabbitmqctl set_permissions everwatch '.*' '.*' \
                   '.*'`, put it into `[broker] url`, then `rabbitmqctl delete_user guest`"
                    .to_owned(),
        });
    }
    let known = |queue: &str| match &server.management {
        Management::Told(told) => told.queues.iter().any(|it| it.name == queue && !it.differs.is_empty()),
        Management::Unset | Management::Silent(_) => false,
    };
    let refused = session.refused.iter().filter(|(queue, _)| !known(queue));
    findings.extend(
        refused
            .map(|(queue, said)| queue::other_arguments(server, queue, &format!("the broker says: {said}"))),
    );
    findings
}

fn has_alarm(server: &Server) -> bool {
    match &server.management {
        Management::Told(told) => told.nodes.iter().any(|node| node.memory_alarm || node.disk_alarm),
        Management::Unset | Management::Silent(_) => false,
    }
}

/// The acknowledgement time-out has fired on services that live again.
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
            "the broker took back what service {name}{others} held: its acknowledgement time-out fired"
        ),
        why: "all observers of a service are stopped and run elsewhere, again and again".to_owned(),
        cure: cure.clone(),
    })
}

/// Before 3.12 only the configuration lifts the time-out, and nobody can ask for it from outside.
fn unseen_timeout(fleet: &FleetFacts, facts: &Facts, version: Option<(u32, u32)>) -> Option<Finding> {
    let (server, version) = (facts.server.as_ref()?, version?);
    let held_since =
        fleet.running.iter().filter_map(|row| row.seen.started.as_ref()).map(|it| it.value.at).min();
    let disproved = held_since.is_some_and(|since| facts.now.since(since) > DEFAULT_TIMEOUT_DISPROVED);
    if version >= QUEUES_LIFT_TIMEOUT || disproved || !fleet.timed_out.is_empty() {
        return None;
    }
    Some(Finding {
        code: "ack-timeout-unseen",
        severity: Severity::Info,
        subject: server.place.clone(),
        what: format!(
            "RabbitMQ {} does not tell its acknowledgement time-out, which only its configuration can lift, and \
             nothing was held for longer than the default of 30 minutes yet",
            server.version.as_deref().unwrap_or_default()
        ),
        why: "each time it fires, all observers of a service are stopped and run elsewhere".to_owned(),
        cure: format!(
            "`rabbitmqctl environment | grep consumer_timeout`; if it says 1800000, {TIMEOUT_CURE}"
        ),
    })
}

fn log_growth(fleet: &FleetFacts, facts: &Facts, version: Option<(u32, u32)>) -> Option<Finding> {
    let (server, version) = (facts.server.as_ref()?, version?);
    let published = |row: &&crate::row::Row| row.published_at;
    let oldest = fleet.running.iter().filter(|row| row.published_at.is_some()).min_by_key(published)?;
    let age = facts.now.since(oldest.published_at?);
    if version >= LOG_IS_COMPACTED || age < LOG_AGE {
        return None;
    }
    let name = &oldest.wanted.name;
    Some(Finding {
        code: "log-growth",
        severity: Severity::Info,
        subject: format!("queue of pool {}", oldest.wanted.pool),
        what: format!(
            "before 4.3 RabbitMQ keeps all that was published to a queue since its oldest message, here that of \
             {name}, {} days old",
            age.as_secs() / 86_400
        ),
        why: "each create and restart adds its size and 260 bytes to the disk of every node; a full disk blocks \
              all publishers"
            .to_owned(),
        cure: format!("`everwatch observer restart {name}` (the oldest first), or upgrade {} to 4.3", server.place),
    })
}

fn of_management(told: &Told, server: &Server, version: Option<(u32, u32)>) -> Vec<Finding> {
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
            "all publishers are blocked: what runs goes on, but nothing is created, ended or reported";
        if node.memory_alarm {
            add(
                "broker-alarm",
                "memory alarm: it uses more than its high watermark",
                blocks,
                "give it more memory, or `rabbitmqctl set_vm_memory_high_watermark 0.6`",
            );
        }
        if node.disk_alarm {
            add(
                "broker-alarm",
                "disk alarm: less is free than its limit",
                blocks,
                "free space on its disk, or lower the limit: `rabbitmqctl set_disk_free_limit 50MB`",
            );
        }
        if !node.running {
            add(
                "broker-node-down",
                "it does not run",
                "the loss of one more node may stop the queues",
                "start it, or `rabbitmqctl forget_cluster_node` if it never comes back",
            );
        }
        if !node.partitions.is_empty() {
            add(
                "broker-partition",
                &format!("it does not see {}", node.partitions.join(", ")),
                "observers of services on the smaller side run twice until the fence falls",
                "mend the network, then restart the nodes of the smaller side",
            );
        }
    }
    let lifts = version.is_none_or(|version| version >= QUEUES_LIFT_TIMEOUT);
    for queue in &told.queues {
        findings.extend(queue::findings(queue, server, lifts));
    }
    findings
}
