//! Each problem yields its finding, and a healthy deployment yields none.

#[path = "tests/drains.rs"]
mod drains;
#[path = "tests/examples.rs"]
mod examples;
#[path = "tests/failing.rs"]
mod failing;
#[path = "tests/headroom.rs"]
mod headroom;
#[path = "tests/reference.rs"]
mod reference;
#[path = "tests/single.rs"]
mod single;
#[path = "tests/tls.rs"]
mod tls;

use super::*;
use crate::capacity::maintenance::Drain;
use crate::id::{Kind, Name, ObserverId, ServiceId};
use crate::observer::definition::ObserverDefinition;
use crate::record::observed::{Key, Stamped, Start};
use crate::record::row_policy::RowPolicy;
use crate::wire::heartbeat::{Heartbeat, Intent};
use crate::wire::report::{KindInfo, Predecessor, Registration};
use serde_json::json;
use uuid::Uuid;

const DAY_S: i64 = 86_400;

fn at(seconds: i64) -> Timestamp {
    Timestamp(1_000_000_000 + seconds * 1000)
}
fn now() -> Timestamp {
    at(30 * DAY_S)
}

pub(super) fn service(number: u128, name: &str, capacity: u32) -> ServiceRow {
    let registration = Registration {
        name: Name::new(name).unwrap(),
        pool: Pool::default(),
        capacity,
        kinds: vec![KindInfo {
            name: Kind::new("ticker").unwrap(),
            schema: std::sync::Arc::new(Value::Null),
        }],
        version: "1.0.0".to_owned(),
        weight_max: 1,
        message_version: crate::wire::message::VERSION,
        host: format!("host-of-{name}"),
        labels: BTreeMap::new(),
        pool_single: false,
        predecessor: None,
    };
    let id = ServiceId(Uuid::from_u128(number));
    let mut row = ServiceRow::registered(id, registration, at(0), at(0));
    let (state, sent_at) = (Intent::Active, Some(now()));
    let heartbeat = Heartbeat {
        service: id,
        seq: 1,
        state,
        capacity,
        held: 0,
        loop_lag_ms: 0,
        rss_bytes: 0,
        sent_at,
        stalled: Vec::new(),
    };
    assert!(row.on_heartbeat(&heartbeat, now()));
    row
}

fn observer(name: &str, kind: &str) -> Row {
    let definition = json!({"name": name, "kind": kind});
    let definition = ObserverDefinition::parse(definition, &Name::new(name).unwrap()).unwrap();
    Row::created(ObserverId(Uuid::from_u128(1)), definition, now(), &RowPolicy::default())
}

fn running(name: &str, published_at: Timestamp, started_at: Timestamp) -> Row {
    let mut row = observer(name, "ticker");
    row.published_at = Some(published_at);
    let key = Key { acquisitions: 0, seq: 1 };
    row.observed.started = Some(Stamped { key, value: Start { attempt: 1, at: started_at } });
    row
}

/// A running observer whose code has failed before each of its attempts but the last.
fn failing(name: &str, attempts: u32) -> Row {
    let mut row = running(name, at(0), now());
    row.observed.started.as_mut().unwrap().value.attempt = attempts;
    row.observed.last_error =
        Some(Stamped { key: Key { acquisitions: 0, seq: 1 }, value: "no such file".to_owned() });
    row
}

/// Three services of ten slots each, ten observers, and RabbitMQ 4.3 with its management API.
fn healthy() -> Facts {
    let services = vec![service(1, "a", 10), service(2, "b", 10), service(3, "c", 10)];
    let queue = QueueFacts { name: "everwatch.work.default".to_owned(), ..QueueFacts::default() };
    let node = NodeFacts { name: "rabbit@a".to_owned(), running: true, ..NodeFacts::default() };
    let heartbeat = Duration::from_secs(5);
    Facts {
        now: now(),
        manager: ManagerFacts {
            listen: "127.0.0.1:7700".parse().ok(),
            refused_max: Duration::from_secs(900),
            ..ManagerFacts::default()
        },
        server: Some(Server {
            place: "mq:5672".to_owned(),
            vhost: "/".to_owned(),
            version: Some("4.3.6".to_owned()),
            guest_over_network: false,
            plain_over_network: false,
            heartbeat,
            management: Management::ManagementSnapshot(ManagementSnapshot {
                queues: vec![queue],
                nodes: vec![node],
            }),
        }),
        session: Ok(SessionFacts { heartbeat: Some(heartbeat), ..SessionFacts::default() }),
        schema: Some(Schema { found: 4, known: 4 }),
        fleet: Ok(FleetFacts {
            services,
            needed: [(Pool::default(), 10)].into(),
            running: vec![running("o", at(0), at(0))],
            ..FleetFacts::default()
        }),
    }
}

fn server(facts: &mut Facts) -> &mut Server {
    facts.server.as_mut().unwrap()
}
fn fleet(facts: &mut Facts) -> &mut FleetFacts {
    facts.fleet.as_mut().unwrap()
}
fn version(facts: &mut Facts, version: &str) {
    server(facts).version = Some(version.to_owned());
}
fn told(facts: &mut Facts) -> &mut ManagementSnapshot {
    let Management::ManagementSnapshot(told) = &mut server(facts).management else {
        unreachable!("the management API answers")
    };
    told
}
fn policy(facts: &mut Facts, definition: &Value) {
    let queue = &mut told(facts).queues[0];
    queue.policy = Some("all".to_owned());
    queue.definition = definition.as_object().unwrap().clone();
}

/// The findings after a change to the healthy deployment, as `severity code subject`.
fn found(change: impl FnOnce(&mut Facts)) -> Vec<String> {
    diagnosed(change).into_iter().map(|it| format!("{:?} {} {}", it.severity, it.code, it.subject)).collect()
}

fn diagnosed(change: impl FnOnce(&mut Facts)) -> Vec<Finding> {
    let mut facts = healthy();
    change(&mut facts);
    let findings = diagnose(&facts);
    for finding in &findings {
        let Finding { what, why, cure, .. } = finding;
        assert!([what, why, cure].iter().all(|text| !text.is_empty()), "{finding:?}");
    }
    findings
}

const NONE: [&str; 0] = [];
const WORK: &str = "queue everwatch.work.default";

#[test]
fn a_healthy_deployment_has_no_finding() {
    assert_eq!(found(|_| {}), NONE);
    assert_eq!(found(|facts| facts.server = None), NONE, "the same with an embedded broker");
    for known in ["3.12.0", "3.13.7", "4.0.5", "4.2.1"] {
        assert_eq!(
            found(|facts| version(facts, known)),
            ["Info log-growth queue of pool default"],
            "{known}"
        );
    }
}

#[test]
fn untested_broker_versions_are_reported() {
    assert_eq!(found(|facts| version(facts, "3.9.29"))[0], "Critical broker-version mq:5672");
    assert_eq!(found(|facts| version(facts, "5.0.0")), ["Info broker-version mq:5672"]);
    assert_eq!(found(|facts| version(facts, "next")), ["Info broker-version mq:5672"]);
}

#[test]
fn an_unknown_acknowledgement_timeout_is_reported_until_disproved() {
    let young = |facts: &mut Facts| {
        version(facts, "3.10.8");
        let started_at = now().minus(Duration::from_secs(60 * 34));
        fleet(facts).running = vec![running("o", started_at, started_at)];
    };
    assert_eq!(found(young), ["Info ack-timeout-unseen mq:5672"]);
    let long_held = |facts: &mut Facts| {
        version(facts, "3.10.8");
        let started_at = now().minus(Duration::from_secs(60 * 36));
        fleet(facts).running = vec![running("o", started_at, started_at)];
    };
    assert_eq!(found(long_held), NONE, "held for longer than the default allows");
    let fired = diagnosed(|facts| {
        young(facts);
        fleet(facts).timed_out = vec![("a".to_owned(), "configure it".to_owned())];
    });
    assert_eq!((fired.len(), fired[0].code, &*fired[0].cure), (1, "ack-timeout-fired", "configure it"));
}

#[test]
fn a_short_acknowledgement_timeout_is_reported_once() {
    let consumers =
        |millis| move |facts: &mut Facts| told(facts).queues[0].consumer_timeout_ms = Some(millis);
    assert_eq!(found(consumers(1_800_000)), [format!("Critical ack-timeout-short {WORK}")]);
    assert_eq!(found(consumers(315_360_000_000)), NONE);
    let by_policy = diagnosed(|facts| {
        policy(facts, &json!({"consumer-timeout": 60_000}));
        told(facts).queues[0].consumer_timeout_ms = Some(60_000);
    });
    assert_eq!(by_policy.len(), 1, "reported once: {by_policy:?}");
    assert!(by_policy[0].cure.contains("rabbitmqctl -p / clear_policy all"), "{by_policy:?}");
}

#[test]
fn policies_that_limit_a_queue_are_reported() {
    let critical = [format!("Critical policy {WORK}")];
    let warning = [format!("Warning policy {WORK}")];
    for (definition, expected) in [
        (json!({"delivery-limit": 20}), &critical[..]),
        (json!({"message-ttl": 60_000}), &critical),
        (json!({"expires": 60_000}), &critical),
        (json!({"max-length": 10, "overflow": "drop-head"}), &critical),
        (json!({"max-length": 10}), &warning),
        (json!({"max-length-bytes": 10, "overflow": "reject-publish"}), &warning),
        (json!({"delayed-retry-type": "all"}), &warning),
        (json!({"delivery-limit": 1_000_000_000, "delayed-retry-type": "disabled", "queue-version": 2}), &[]),
    ] {
        assert_eq!(found(|facts| policy(facts, &definition)), expected, "{definition}");
    }
    let operator = diagnosed(|facts| {
        policy(facts, &json!({"delivery-limit": 20}));
        (told(facts).queues[0].policy, told(facts).queues[0].operator_policy) =
            (None, Some("ops".to_owned()));
    });
    assert!(operator[0].cure.contains("clear_operator_policy ops"), "{operator:?}");
}

#[test]
fn queues_with_other_arguments_are_reported() {
    let refuse = |facts: &mut Facts| {
        let said = "PRECONDITION_FAILED - inequivalent arg 'x-overflow'".to_owned();
        facts.session.as_mut().unwrap().refused = vec![("everwatch.work.default".to_owned(), said)];
    };
    let by_word = diagnosed(refuse);
    assert!(
        by_word[0].what.contains("x-overflow") && by_word[0].cure.contains("delete_queue"),
        "{by_word:?}"
    );
    let both = diagnosed(|facts| {
        refuse(facts);
        let (argument, ours, theirs) = ("x-overflow".to_owned(), json!("reject-publish"), Value::Null);
        told(facts).queues[0].differs = vec![Difference { argument, ours, theirs }];
    });
    assert_eq!(both.len(), 1, "reported once: {both:?}");
    assert!(both[0].what.contains("x-overflow is not set instead of \"reject-publish\""), "{both:?}");
}

#[test]
fn alarms_down_nodes_and_partitions_are_reported() {
    let blocked = |facts: &mut Facts| facts.session.as_mut().unwrap().blocked = true;
    assert_eq!(found(blocked), ["Critical broker-alarm mq:5672"]);
    let named = |facts: &mut Facts| {
        blocked(facts);
        told(facts).nodes[0].memory_alarm = true;
    };
    assert_eq!(found(named), ["Critical broker-alarm node rabbit@a"]);
    assert_eq!(
        found(|facts| told(facts).nodes[0].disk_alarm = true),
        ["Critical broker-alarm node rabbit@a"]
    );
    let down = |facts: &mut Facts| told(facts).nodes[0].running = false;
    assert_eq!(found(down), ["Critical broker-node-down node rabbit@a"]);
    let partition = |facts: &mut Facts| told(facts).nodes[0].partitions = vec!["rabbit@b".to_owned()];
    assert_eq!(found(partition), ["Critical broker-partition node rabbit@a"]);
}

#[test]
fn unreachable_components_are_reported() {
    let nothing = found(|facts| {
        facts.session = Err("connection refused".to_owned());
        facts.fleet = Err("the database cannot be reached".to_owned());
        server(facts).version = None;
        server(facts).management = Management::Silent("401".to_owned());
    });
    let expected = [
        "Critical broker-unreachable mq:5672",
        "Critical database-unreachable database",
        "Warning management-silent mq:5672",
    ];
    assert_eq!(nothing, expected);
    let unset = |facts: &mut Facts| server(facts).management = Management::Unset;
    assert_eq!(found(unset), ["Info management-unset mq:5672"]);
}

#[test]
fn a_different_heartbeat_and_the_guest_account_are_reported() {
    let other = |facts: &mut Facts| facts.session.as_mut().unwrap().heartbeat = Some(Duration::from_secs(2));
    assert_eq!(found(other), ["Warning heartbeat mq:5672"]);
    // Everwatch refuses a heartbeat of 2s.
    assert_eq!(diagnosed(other)[0].cure, "set `heartbeat = 5` in rabbitmq.conf and restart RabbitMQ");
    let close = diagnosed(|facts| facts.session.as_mut().unwrap().heartbeat = Some(Duration::from_secs(3)));
    assert!(close[0].cure.starts_with("set `[broker] heartbeat = \"3s\"` for all"), "{close:?}");
    assert_eq!(
        found(|facts| server(facts).guest_over_network = true),
        ["Warning guest-over-network mq:5672"]
    );
}

#[test]
fn clock_skew_is_reported() {
    let sent = |ahead_ms: i64| {
        move |facts: &mut Facts| {
            let heartbeat = fleet(facts).services[0].heartbeat.as_mut().unwrap();
            heartbeat.sent_at = Some(Timestamp(now().0 + ahead_ms));
        }
    };
    assert_eq!(found(sent(2001)), ["Warning clock-skew service a"]);
    assert_eq!(found(sent(-5001)), ["Warning clock-skew service a"]);
    assert_eq!(found(sent(-4000)), NONE, "a heartbeat may have waited");
    assert_eq!(found(|facts| facts.manager.clock_ahead_ms = -2500), ["Warning clock-skew this manager"]);
}

#[test]
fn services_that_repeatedly_lose_sessions_are_reported() {
    let lost = |name: &str, times: u128, ended: &str| {
        let registrations = (0..times).map(|number| {
            let mut it = service(100 + number, name, 10);
            it.registered_at = at(i64::try_from(number).unwrap());
            it.registration.predecessor =
                Some(Predecessor { service: ServiceId(Uuid::from_u128(number)), ended: ended.to_owned() });
            it
        });
        registrations.collect::<Vec<_>>()
    };
    let once = |facts: &mut Facts| {
        fleet(facts).registered_lately =
            [lost("a", 2, "reset"), lost("b", 2, "reset"), vec![service(9, "c", 10)]].concat();
    };
    assert_eq!(found(once), NONE);
    let sick = diagnosed(|facts| {
        once(facts);
        fleet(facts).registered_lately.extend(lost("sick", 4, "the broker has not answered for 5000 ms"));
    });
    assert_eq!((sick.len(), sick[0].code, &*sick[0].subject), (1, "sessions-lost", "service sick"));
    assert!(
        sick[0].what.contains("4 times in 10 minutes") && sick[0].what.contains("for 5000 ms"),
        "{sick:?}"
    );
    assert!(sick[0].cure.contains("host-of-sick") && sick[0].cure.contains("cordon sick"), "{sick:?}");
    let all = diagnosed(|facts| {
        fleet(facts).registered_lately =
            ["a", "b", "c", "d", "e", "f", "g"].map(|name| lost(name, 3, "reset")).concat();
    });
    assert_eq!(all[0].subject, "services a, b, c, d, e and 2 others");
}

#[test]
fn duplicate_names_and_mixed_versions_are_reported() {
    let twins = |facts: &mut Facts| fleet(facts).services.push(service(4, "a", 10));
    assert_eq!(found(twins), ["Warning same-name service a"]);
    let restarted = |facts: &mut Facts| {
        twins(facts);
        fleet(facts).services[0].suspect(now());
    };
    assert_eq!(found(restarted), NONE, "the older one no longer sends heartbeats");
    let mixed = |facts: &mut Facts| "1.1.0".clone_into(&mut fleet(facts).services[0].registration.version);
    assert_eq!(found(mixed), ["Warning versions-differ services"]);
    let under_way = |facts: &mut Facts| {
        mixed(facts);
        fleet(facts).services[0].registered_at = now();
    };
    assert_eq!(found(under_way), ["Info versions-differ services"]);
}

#[test]
fn safe_mode_and_parked_messages_are_reported() {
    let safe_mode = |facts: &mut Facts| fleet(facts).safe_mode = Some("storm".to_owned());
    assert_eq!(found(safe_mode), ["Warning safe-mode-on safe mode"]);
    assert_eq!(found(|facts| fleet(facts).parked = 2), ["Warning parked parked messages"]);
}

#[test]
fn observers_that_no_service_takes_are_reported() {
    let wait = |kind: &'static str| move |facts: &mut Facts| fleet(facts).waiting = vec![observer("w", kind)];
    assert_eq!(found(wait("ticker")), NONE);
    assert_eq!(found(wait("camera")), ["Critical no-service-for-kind pool default"]);
    let alone = |facts: &mut Facts| {
        wait("ticker")(facts);
        fleet(facts).services.clear();
    };
    assert_eq!(found(alone), ["Critical no-service pool default"]);
    let cure = "start a service that offers kind ticker with `[service] pool = \"default\"`";
    assert_eq!(diagnosed(alone)[0].cure, cure);
    let limited = |facts: &mut Facts| {
        alone(facts);
        fleet(facts).needed.clear();
    };
    assert_eq!(found(limited), NONE, "it waits for a limit first");
    let refused = |facts: &mut Facts| {
        wait("ticker")(facts);
        fleet(facts).waiting[0].refused_since = Some(at(0));
    };
    assert_eq!(found(refused), ["Warning refused pool default"]);
    let told = &diagnosed(refused)[0];
    assert!(
        told.what.contains("have been refusing it for") && told.why.contains("fail after 15m"),
        "{told:?}"
    );
    // Another pool has what it needs.
    let elsewhere = |facts: &mut Facts| {
        wait("ticker")(facts);
        fleet(facts).waiting[0].definition = {
            let body = json!({"kind": "ticker", "pool": "gpu"});
            ObserverDefinition::parse(body, &Name::new("w").unwrap()).unwrap().into()
        };
        fleet(facts).needed.insert(Pool::new("gpu").unwrap(), 1);
    };
    let told = &diagnosed(elsewhere)[0];
    assert!(told.cure.ends_with("or `everwatch observer move w --pool default`"), "{told:?}");
    assert!(!diagnosed(wait("camera"))[0].cure.contains("observer move"), "no pool runs this kind");
}

#[test]
fn a_paused_pool_is_a_warning_once_observers_wait_for_a_slot_in_it() {
    let paused = |facts: &mut Facts| fleet(facts).paused_pools = [Pool::default()].into();
    assert_eq!(found(paused), ["Info pool-paused pool default"], "nothing waits");
    let published = |facts: &mut Facts| {
        paused(facts);
        fleet(facts).waiting = vec![observer("w", "ticker")];
    };
    assert_eq!(found(published), ["Info pool-paused pool default"], "it has a slot and keeps it");
    let waits = |facts: &mut Facts| {
        published(facts);
        fleet(facts).waiting.push(observer("w", "ticker").created_waiting());
    };
    let told = diagnosed(waits);
    assert_eq!((told.len(), told[0].code, &*told[0].subject), (1, "pool-paused", "pool default"));
    assert_eq!(told[0].what, "admission to pool default is paused, and 1 observer waits for a slot in it");
    let open = |facts: &mut Facts| {
        waits(facts);
        fleet(facts).paused_pools.clear();
    };
    assert_eq!(found(open), NONE);
}

#[test]
fn a_queue_lag_and_lost_events_are_reported() {
    let lag = |facts: &mut Facts| facts.manager.state_lag = Duration::from_secs(16);
    assert_eq!(found(lag), ["Warning state-queue-lag this manager"]);
    assert_eq!(found(|facts| facts.manager.lost_events = 1), ["Warning events-lost this manager"]);
}

#[test]
fn findings_are_sorted_by_severity() {
    let severities: Vec<Severity> = diagnosed(|facts| {
        version(facts, "3.9.0");
        fleet(facts).parked = 1;
        told(facts).nodes[0].disk_alarm = true;
    })
    .into_iter()
    .map(|finding| finding.severity)
    .collect();
    assert!(severities.is_sorted_by(|a, b| a >= b) && severities.len() >= 4, "{severities:?}");
}

#[test]
fn another_schema_version_is_reported() {
    let tables = |found, known| move |facts: &mut Facts| facts.schema = Some(Schema { found, known });
    assert_eq!(found(tables(5, 4)), ["Warning schema-newer database"]);
    assert_eq!(found(tables(3, 4)), ["Critical schema-older database"]);
    assert_eq!(found(tables(0, 4)), ["Critical schema-older database"]);
    assert_eq!(found(|facts| facts.schema = None), NONE, "an unreachable database has its own finding");
    let newer = diagnosed(tables(5, 4)).remove(0);
    assert_eq!(newer.what, "the schema has version 5, but this manager requires version 4");
    assert!(newer.cure.contains("upgrade this manager"), "{newer:?}");
    assert!(diagnosed(tables(3, 4))[0].cure.contains("`everwatch migrate`"));
}
