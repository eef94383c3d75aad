//! A deployment in which each finding is made.

use super::*;
use crate::capacity::maintenance::Orders;
use crate::wire::heartbeat::StalledObserver;

/// A change to the healthy deployment.
pub(super) type Change = fn(&mut Facts);

/// A change for each finding about the broker.
pub(super) const BROKER: [(&str, Change); 17] = [
    ("ack-timeout-fired", |facts| {
        version(facts, "3.10.8");
        let cure = "set `consumer_timeout = 315360000000` in rabbitmq.conf, and restart RabbitMQ".to_owned();
        fleet(facts).timed_out = vec![("amber".to_owned(), cure)];
    }),
    ("ack-timeout-short", |facts| told(facts).queues[0].consumer_timeout_ms = Some(1_800_000)),
    ("ack-timeout-unseen", |facts| {
        version(facts, "3.10.8");
        fleet(facts).running = vec![running("btc-price", now(), now())];
    }),
    ("broker-alarm", |facts| told(facts).nodes[0].memory_alarm = true),
    ("broker-node-down", |facts| told(facts).nodes[0].running = false),
    ("broker-partition", |facts| told(facts).nodes[0].partitions = vec!["rabbit@b".to_owned()]),
    ("broker-plain", |facts| server(facts).plain_over_network = true),
    ("broker-unreachable", |facts| facts.session = Err("connection refused".to_owned())),
    ("broker-version", |facts| version(facts, "3.9.29")),
    ("guest-over-network", |facts| server(facts).guest_over_network = true),
    ("heartbeat", |facts| facts.session.as_mut().unwrap().heartbeat = Some(Duration::from_secs(3))),
    ("log-growth", |facts| version(facts, "4.0.5")),
    ("management-silent", |facts| {
        server(facts).management = Management::Silent("connection refused".to_owned());
    }),
    ("management-unset", |facts| server(facts).management = Management::Unset),
    ("policy", |facts| policy(facts, &json!({"delivery-limit": 20}))),
    ("queue-arguments", |facts| {
        let (argument, ours, theirs) = ("x-overflow".to_owned(), json!("reject-publish"), Value::Null);
        told(facts).queues[0].differs = vec![Difference { argument, ours, theirs }];
    }),
    ("state-queue-surplus", |facts| {
        let name = "everwatch.state.2".to_owned();
        let surplus = SurplusQueue { name, configured: 2, ready: 7, consumers: 0 };
        facts.session.as_mut().unwrap().surplus = vec![surplus];
    }),
];

/// A change for each finding about a manager and the database.
pub(super) const MANAGER: [(&str, Change); 11] = [
    ("api-plain", |facts| facts.manager.listen = "0.0.0.0:7700".parse().ok()),
    ("clock-skew", |facts| facts.manager.clock_ahead_ms = -2500),
    ("database-plain", |facts| {
        facts.manager.database = DatabaseLink::of("postgres://everwatch@db/everwatch", None);
    }),
    ("database-unreachable", |facts| facts.fleet = Err("connection refused".to_owned())),
    ("events-lost", |facts| facts.manager.lost_events = 3),
    ("parked", |facts| fleet(facts).parked = 2),
    ("safe-mode-on", |facts| fleet(facts).safe_mode = Some("network maintenance".to_owned())),
    ("schema-newer", |facts| facts.schema = Some(Schema { found: 5, known: 4 })),
    ("schema-older", |facts| facts.schema = Some(Schema { found: 3, known: 4 })),
    ("state-queue-lag", |facts| facts.manager.state_lag = Duration::from_secs(16)),
    ("unreadable-row", |facts| {
        fleet(facts).unreadable = vec![UnreadableRow {
            table: "observers".to_owned(),
            id: Uuid::from_u128(7),
            why: "unknown variant `later`".to_owned(),
            cure: "update this manager if a newer one has written the row".to_owned(),
        }];
    }),
];

/// A change for each finding about services and observers.
pub(super) const FLEET: [(&str, Change); 20] = [
    ("code-stalls", |facts| {
        let (id, name) = (ObserverId(Uuid::from_u128(1)), Name::new("btc-price").unwrap());
        let stalled = StalledObserver { id, name, stalled_ms: 61_900 };
        fleet(facts).services[0].heartbeat.as_mut().unwrap().stalled = vec![stalled];
    }),
    ("crash-loop", |facts| {
        fleet(facts).restarting = SomeRows { total: 1, rows: vec![failing("btc-price", 40)] };
    }),
    ("drain-waits", |facts| {
        let drain = Drain { asked_at: now(), of: 5, per_second: 100, until: None, force: false };
        let orders = Orders { cordoned: true, drain: Some(drain), ..Default::default() };
        fleet(facts).orders.insert("a".to_owned(), orders);
        let services = &mut fleet(facts).services;
        services.truncate(2);
        services[0].heartbeat.as_mut().unwrap().state = Intent::Draining;
        services[0].heartbeat.as_mut().unwrap().held = 5;
        services[1].heartbeat.as_mut().unwrap().held = 10;
    }),
    ("failed", |facts| {
        fleet(facts).failed = SomeRows { total: 1, rows: vec![observer("btc-price", "ticker")] };
    }),
    ("headroom", |facts| fleet(facts).needed = [(Pool::default(), 11)].into()),
    ("no-active-service", |facts| {
        for service in &mut fleet(facts).services {
            service.heartbeat.as_mut().unwrap().state = Intent::Cordoned;
        }
    }),
    ("no-service", |facts| {
        fleet(facts).waiting = vec![observer("btc-price", "ticker")];
        fleet(facts).services.clear();
    }),
    ("no-service-for-kind", |facts| fleet(facts).waiting = vec![observer("gate-7", "camera")]),
    ("pool-full", |facts| fleet(facts).needed = [(Pool::default(), 31)].into()),
    ("pool-paused", |facts| {
        fleet(facts).waiting = vec![observer("btc-price", "ticker").created_waiting()];
        fleet(facts).paused_pools = [Pool::default()].into();
    }),
    ("pool-single", |facts| fleet(facts).services[0].registration.pool_single = true),
    ("refused", |facts| {
        fleet(facts).waiting = vec![observer("btc-price", "ticker")];
        fleet(facts).waiting[0].refused_since = Some(now().minus(Duration::from_secs(60)));
    }),
    ("same-name", |facts| fleet(facts).services.push(service(4, "a", 10))),
    ("service-frozen", |facts| {
        fleet(facts).frozen_by_hand = vec![service(7, "x", 10)];
    }),
    ("service-killed", |facts| {
        let mut killed = service(7, "x", 10);
        assert!(killed.on_session_gone(now().minus(Duration::from_secs(2))));
        fleet(facts).killed_by_hand = vec![killed];
    }),
    ("service-lost", |facts| {
        let mut lost = service(7, "x", 10);
        assert!(lost.on_session_gone(now().minus(Duration::from_secs(20))));
        fleet(facts).ended_lately = vec![lost];
    }),
    ("sessions-lost", |facts| {
        let registrations = (0..4).map(|number| {
            let mut it = service(100 + number, "a", 10);
            let ended = "the broker has not answered for 5000 ms".to_owned();
            it.registration.predecessor =
                Some(Predecessor { service: ServiceId(Uuid::from_u128(number)), ended });
            it
        });
        fleet(facts).registered_lately = registrations.collect();
    }),
    ("too-big-to-lose", |facts| fleet(facts).needed = [(Pool::default(), 21)].into()),
    ("uneven-pool", |facts| {
        for (service, held) in fleet(facts).services.iter_mut().zip([6, 0, 6]) {
            service.set_held(held);
        }
    }),
    ("versions-differ", |facts| {
        "1.1.0".clone_into(&mut fleet(facts).services[0].registration.version);
    }),
];
