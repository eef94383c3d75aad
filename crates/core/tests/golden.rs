//! Every wire message in the files of `golden/v1`: this version must read and write it. Files are only added; a file
//! that has to change means a new message version.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a failing test says so by panicking")]

use everwatch_core::clock::Timestamp;
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{
    BatchId, Kind, ManagerId, Name, Namespace, ObserverId, Pool, RateKey, RepliesId, ServiceId,
};
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::wire::batch::{BatchCompleted, BatchMessage};
use everwatch_core::wire::checkpoint::{
    Checkpoint, CheckpointAnswers, CheckpointRestored, CheckpointStored, CheckpointWanted, SavedCheckpoint,
};
use everwatch_core::wire::command::{
    Cause, Command, HandOver, Revocation, RevocationCause, ServiceDirectives, Welcome,
};
use everwatch_core::wire::heartbeat::{Heartbeat, HeartbeatMessage, Intent, StalledObserver, Watermark};
use everwatch_core::wire::logs::{Answer, AskLogs, Line, Lines, LogCursor, LogsAnswer, Stream};
use everwatch_core::wire::message::{decode, encode};
use everwatch_core::wire::permits::{
    PermitAnswers, PermitAsk, PermitRequest, PermitsGranted, PermitsRefused, RatesMessage,
};
use everwatch_core::wire::report::{
    HeldMessages, HeldWork, InventoryChunk, InventoryDigest, InventoryRange, KindInfo, Predecessor,
    RefusedMessages, Registration, Report, Reports, RunEvent, RunReport, SequencedReport, StateMessage,
};
use everwatch_core::wire::trace::TraceContext;
use everwatch_core::wire::work::{DecodedWork, Work};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::path::PathBuf;
use std::time::Duration;
use uuid::Uuid;

fn golden(name: &str, written: &[u8]) -> Vec<u8> {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/golden/v1").join(format!("{name}.json"));
    if !path.exists() && std::env::var_os("GOLDEN_ADD").is_some() {
        std::fs::write(&path, [written, b"\n"].concat()).unwrap();
    }
    std::fs::read(&path).unwrap_or_else(|error| panic!("{name}: {error}; GOLDEN_ADD=1 adds what is missing"))
}

#[track_caller]
fn both_ways<T: Serialize + DeserializeOwned + PartialEq + Debug>(name: &str, message: &T) {
    let written = encode(message).unwrap();
    let kept = golden(name, &written);
    assert_eq!(&decode::<T>(&kept).unwrap(), message, "{name} is read otherwise now");
    let written: Value = serde_json::from_slice(&written).unwrap();
    assert_eq!(written, serde_json::from_slice::<Value>(&kept).unwrap(), "{name} is written otherwise now");
}

fn service() -> ServiceId {
    ServiceId(Uuid::from_u128(0xa))
}
fn observer() -> ObserverId {
    ObserverId(Uuid::from_u128(0xb))
}
fn at(millis: i64) -> Timestamp {
    Timestamp(1_700_000_000_000 + millis)
}

fn registration() -> Registration {
    Registration {
        name: Name::new("s1").unwrap(),
        pool: Pool::default(),
        capacity: 10,
        kinds: vec![KindInfo {
            name: Kind::new("ticker").unwrap(),
            schema: std::sync::Arc::new(json!({"type": "object"})),
        }],
        version: "0.1.0".to_owned(),
        weight_max: 1,
        message_version: everwatch_core::wire::message::VERSION,
        host: "h".to_owned(),
        labels: [("zone".to_owned(), "a".to_owned())].into(),
        pool_single: false,
        predecessor: Some(Predecessor {
            service: ServiceId(Uuid::from_u128(0xc)),
            ended: "fenced".to_owned(),
        }),
    }
}

#[test]
fn work() {
    let definition = json!({"name": "o", "kind": "http", "spec": {"url": "http://x/"}, "labels": {"app": "x"},
        "retry": {"kind": "intervals", "delays": ["1m", "4m"]}, "overlap": "forbid", "grace": "3s"});
    let definition = ObserverDefinition::parse(definition, &Name::new("o").unwrap()).unwrap();
    let work = Work::of(observer(), 3, &definition).unwrap();
    let written = serde_json::to_vec(&work).unwrap();
    let kept = golden("work", &written);
    let DecodedWork::Ours(read) = Work::read(&kept).unwrap() else { panic!("foreign") };
    assert_eq!(format!("{read:?}"), format!("{work:?}"));
    let written: Value = serde_json::from_slice(&written).unwrap();
    assert_eq!(written, serde_json::from_slice::<Value>(&kept).unwrap());
    let (attempt_timeout, finish_at) = (Some(Duration::from_secs(1800)), Some(at(9)));
    let open = json!([{"days": "mon-fri", "from": "09:30", "to": "16:00"}]);
    let windows = json!({"time_zone": "America/New_York", "open": open, "except": ["2026-12-25"]});
    let windows = serde_json::from_value(windows).unwrap();
    let windowed = Work { closes_at: Some(at(9)), windows, ..work.clone() };
    let schedule = json!({"cron": "0 3 * * *", "time_zone": "Europe/Berlin"});
    let schedule = serde_json::from_value(schedule).unwrap();
    let scheduled = Work { scheduled_for: Some(at(9)), schedule, ..work.clone() };
    let heavy = ObserverDefinition { weight: 4, ..definition.clone() };
    let heavy = Work::of(observer(), 3, &heavy).unwrap();
    let team = ObserverDefinition { namespace: Namespace::new("team-a").unwrap(), ..definition.clone() };
    let team = Work::of(observer(), 3, &team).unwrap();
    let finite = Work { attempt_timeout, finish_at, ..work };
    let all = [
        ("work-times", finite),
        ("work-windows", windowed),
        ("work-schedule", scheduled),
        ("work-weight", heavy),
        ("work-namespace", team),
    ];
    for (name, work) in all {
        let kept = golden(name, &serde_json::to_vec(&work).unwrap());
        let DecodedWork::Ours(read) = Work::read(&kept).unwrap() else { panic!("foreign") };
        assert_eq!(format!("{read:?}"), format!("{work:?}"));
    }
}

#[test]
fn reports_of_one_run() {
    for (name, event) in [
        ("handed_over_for", RunEvent::HandedOverFor { cause: Cause::Drain }),
        ("released", RunEvent::Released),
    ] {
        let report = Report::Run(RunReport { id: observer(), epoch: Epoch::new(3, 2), event });
        let entries = vec![SequencedReport::new(1, at(0), report)];
        both_ways(name, &StateMessage::Reports(Reports { service: service(), entries }));
    }
}

#[test]
fn registrations_of_single_pools_and_of_services_that_take_weights() {
    let report = |registration| {
        let report = Report::ServiceRegistered(Box::new(registration));
        let entries = vec![SequencedReport::new(1, at(0), report)];
        StateMessage::Reports(Reports { service: service(), entries })
    };
    both_ways("registration-single", &report(Registration { pool_single: true, ..registration() }));
    both_ways("registration-weight", &report(Registration { weight_max: 4, ..registration() }));
}

#[test]
fn refused_messages() {
    let report = Report::MessagesRefused(RefusedMessages {
        queue: "everwatch.work.default".to_owned(),
        reason: "altered".to_owned(),
        count: 3,
        detail: "its signature does not fit".to_owned(),
        observer: Some(observer()),
    });
    let entries = vec![SequencedReport::new(1, at(0), report)];
    both_ways("messages-refused", &StateMessage::Reports(Reports { service: service(), entries }));
}

#[test]
fn reports() {
    let run = |event| Report::Run(RunReport { id: observer(), epoch: Epoch::new(3, 2), event });
    let all = [
        Report::ServiceRegistered(Box::new(registration())),
        run(RunEvent::Held { reason: "redelivered".to_owned(), refuses: false }),
        run(RunEvent::Started { attempt: 1, started_at: at(1) }),
        run(RunEvent::Errored { attempt: 1, error: "e".to_owned(), next_at: at(2) }),
        run(RunEvent::Progress { text: "37 of 120".to_owned() }),
        run(RunEvent::HandedOver),
        run(RunEvent::Refused { why: "kind".to_owned() }),
        run(RunEvent::Stopped),
        run(RunEvent::Completed),
        run(RunEvent::Failed { error: "e".to_owned(), attempts: 4 }),
        Report::Inventory(InventoryChunk {
            inventory: 1,
            chunk: 0,
            chunks: 1,
            entries: vec![RunReport {
                id: observer(),
                epoch: Epoch::new(3, 2),
                event: RunEvent::Started { attempt: 1, started_at: at(1) },
            }],
            range: None,
        }),
        Report::WorkQueueCreated { pool: Pool::default() },
        Report::ServiceGone,
    ];
    let numbered = (1..).zip(all).map(|(seq, report)| SequencedReport::new(seq, at(0), report));
    let reports = Reports { service: service(), entries: numbered.collect() };
    both_ways("reports", &StateMessage::Reports(reports));
    let work = Work::of(
        observer(),
        3,
        &ObserverDefinition::parse(json!({"kind": "ticker"}), &Name::new("o").unwrap()).unwrap(),
    );
    let run = RunReport {
        id: observer(),
        epoch: Epoch::new(3, 2),
        event: RunEvent::Started { attempt: 1, started_at: at(1) },
    };
    let held = vec![HeldWork { run, work: serde_json::to_string(&work.unwrap()).unwrap() }];
    let report = Report::HeldMessages(HeldMessages { pool: Pool::default(), held });
    let entries = vec![SequencedReport::new(1, at(0), report)];
    both_ways("held-messages", &StateMessage::Reports(Reports { service: service(), entries }));
    let running = RunReport {
        id: observer(),
        epoch: Epoch::new(3, 2),
        event: RunEvent::Started { attempt: 1, started_at: at(1) },
    };
    let digest = Report::InventoryDigest(InventoryDigest::of(2, vec![running]));
    let entries = vec![SequencedReport::new(1, at(0), digest)];
    both_ways("inventory-digest", &StateMessage::Reports(Reports { service: service(), entries }));
    let chunk = InventoryChunk::within(2, &[InventoryRange::ALL], Vec::new()).remove(0);
    let entries = vec![SequencedReport::new(1, at(0), Report::Inventory(chunk))];
    both_ways("inventory-range", &StateMessage::Reports(Reports { service: service(), entries }));
    let report = Report::Run(RunReport { id: observer(), epoch: Epoch::new(3, 2), event: RunEvent::Stopped });
    let trace = TraceContext::read(
        Some("00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        Some("rojo=00f067aa0ba902b7"),
    );
    let entries = vec![SequencedReport { trace, ..SequencedReport::new(7, at(0), report) }];
    both_ways("report-traced", &StateMessage::Reports(Reports { service: service(), entries }));
    both_ways(
        "state-watermark",
        &StateMessage::Watermark(Watermark { manager: ManagerId(Uuid::from_u128(1)), sent_at: at(0) }),
    );
}

#[test]
fn what_code_saves() {
    let run = |event| Report::Run(RunReport { id: observer(), epoch: Epoch::new(3, 2), event });
    let saved = [
        run(RunEvent::Starting { attempt: 1, started_at: at(1) }),
        Report::Checkpoint(Checkpoint {
            id: observer(),
            epoch: Epoch::new(3, 2),
            number: 4,
            value: r#"{"offset":12}"#.to_owned(),
        }),
        Report::CheckpointWanted(CheckpointWanted { id: observer(), epoch: Epoch::new(3, 2) }),
        run(RunEvent::CompletedWith { result: "[1,2]".to_owned() }),
    ];
    let entries = (1..).zip(saved).map(|(seq, report)| SequencedReport::new(seq, at(0), report)).collect();
    both_ways("checkpoints", &StateMessage::Reports(Reports { service: service(), entries }));
}

#[test]
fn an_end_in_time() {
    let event = RunEvent::Finished { at: at(9) };
    let ended = Report::Run(RunReport { id: observer(), epoch: Epoch::new(3, 2), event });
    let entries = vec![SequencedReport::new(1, at(9), ended)];
    both_ways("finished", &StateMessage::Reports(Reports { service: service(), entries }));
}

#[test]
fn heartbeats() {
    let heartbeat = Heartbeat {
        service: service(),
        seq: 7,
        state: Intent::Draining,
        capacity: 10,
        held: 4,
        loop_lag_ms: 2,
        rss_bytes: 1 << 20,
        sent_at: None,
        stalled: Vec::new(),
    };
    both_ways("heartbeat", &HeartbeatMessage::Heartbeat(heartbeat.clone()));
    both_ways(
        "heartbeat-sent-at",
        &HeartbeatMessage::Heartbeat(Heartbeat { sent_at: Some(at(3)), ..heartbeat.clone() }),
    );
    let stalled = vec![StalledObserver { id: observer(), name: Name::new("o").unwrap(), stalled_ms: 61_000 }];
    both_ways(
        "heartbeat-stalled",
        &HeartbeatMessage::Heartbeat(Heartbeat { sent_at: Some(at(3)), stalled, ..heartbeat }),
    );
    both_ways("probe", &HeartbeatMessage::Probe { service: service() });
}

#[test]
fn commands() {
    let revocations = vec![Revocation { id: observer(), below: Epoch::after_generation(3), cause: None }];
    both_ways("revoke", &Command::Revoke(revocations.clone()));
    let cause = Some(RevocationCause::Paused);
    both_ways("revoke-cause", &Command::Revoke(vec![Revocation { cause, ..revocations[0] }]));
    let checkpoint = SavedCheckpoint { epoch: Epoch::new(3, 1), number: 4, value: "12".to_owned() };
    let (id, epoch) = (observer(), Epoch::new(3, 2));
    let answers = CheckpointAnswers {
        service: service(),
        stored: vec![CheckpointStored { id, epoch, number: 4 }],
        restored: vec![
            CheckpointRestored { id, epoch, checkpoint: Some(checkpoint) },
            CheckpointRestored { id, epoch, checkpoint: None },
        ],
    };
    both_ways("checkpoint-answers", &Command::Checkpoints(answers));
    let welcome = Welcome::new(service(), revocations);
    both_ways("welcome", &Command::Welcome(Box::new(welcome.clone())));
    let crash_looping = Welcome { crash_looping: vec![observer()], ..welcome.clone() };
    both_ways("welcome-crash-looping", &Command::Welcome(Box::new(crash_looping)));
    both_ways("time", &Command::Time(at(0)));
    let timed = Welcome { time: Some(at(0)), ..welcome.clone() };
    both_ways("welcome-time", &Command::Welcome(Box::new(timed)));
    let directives = ServiceDirectives { revision: 4, cordoned: true, draining: true, capacity: Some(7) };
    let directed = Welcome { directives: Some(directives), ..welcome };
    both_ways("welcome-directed", &Command::Welcome(Box::new(directed)));
    both_ways("directives", &Command::Directives { service: service(), directives });
    let hand_over = HandOver {
        service: service(),
        ids: vec![observer()],
        down_to: Some(3),
        rest: Duration::from_secs(10),
        cause: Cause::Rebalance,
    };
    both_ways("hand_over", &Command::HandOver(hand_over));
    both_ways("describe", &Command::Describe { service: service(), ids: vec![observer()] });
    let ranges = vec![InventoryRange { after: None, upto: Some(observer()) }, InventoryRange::ALL];
    both_ways("list-held", &Command::ListHeld { service: service(), ranges });
    both_ways("crash-looping", &Command::CrashLooping(vec![observer()]));
    let after = Some(LogCursor { epoch: Epoch::new(3, 2), seq: 57 });
    let logs = AskLogs { number: 7, to: RepliesId(Uuid::from_u128(0xd)), id: observer(), after, most: 100 };
    both_ways("logs", &Command::Logs(logs));
    both_ways("logs-newest", &Command::Logs(AskLogs { after: None, ..logs }));
}

#[test]
fn permits() {
    let key = |text| RateKey::new(text).unwrap();
    let permits = [(key("openai"), 1), (key("tokens"), 800)].into();
    let asks = vec![
        PermitAsk { turn: 3, permits, count: 1 },
        PermitAsk { turn: 4, permits: [(key("openai"), 1)].into(), count: 12 },
    ];
    both_ways("acquire", &RatesMessage::Acquire(PermitRequest { service: service(), number: 7, asks }));
    let granted = vec![PermitsGranted { turn: 3, count: 1 }, PermitsGranted { turn: 4, count: 5 }];
    let refused = vec![PermitsRefused { turn: 5, error: "e".to_owned() }];
    let answers = PermitAnswers { granted, refused, ..PermitAnswers::new(service(), 7) };
    both_ways("permits", &Command::Permits(answers));
    both_ways("permits-none", &Command::Permits(PermitAnswers::new(service(), 7)));
}

#[test]
fn replies() {
    let line = |seq, stream| Line {
        place: LogCursor { epoch: Epoch::new(3, 2), seq },
        at: at(0),
        stream,
        text: "a line".into(),
    };
    let lines = vec![line(60, Stream::Stdout), line(61, Stream::Stderr), line(62, Stream::Log)];
    let lines = Lines { lines, missed: 2, more: true };
    both_ways("reply-logs", &Answer::Logs(LogsAnswer { number: 7, lines }));
    both_ways("reply-logs-none", &Answer::Logs(LogsAnswer { number: 7, lines: Lines::default() }));
    let newer = br#"{"v": 1, "body": {"weather": {"sun": 1}}}"#;
    assert!(matches!(decode::<Answer>(newer), Ok(Answer::Unknown(_))));
}

#[test]
fn additions_of_newer_versions_are_ignored() {
    let command = br#"{"v": 1, "body": {"dance": {"who": "all"}}}"#;
    assert!(matches!(decode::<Command>(command), Ok(Command::Unknown(_))));
    let revocations = br#"{"v": 1, "sent_by": "m", "body": {"revoke": []}}"#;
    assert_eq!(decode::<Command>(revocations).unwrap(), Command::Revoke(Vec::new()));
    assert!(
        decode::<Command>(br#"{"v": 2, "body": {"revoke": []}}"#)
            .unwrap_err()
            .to_string()
            .contains("version 2")
    );
}

#[test]
fn messages_about_batches() {
    let completed = BatchCompleted {
        batch: BatchId(Uuid::from_u128(0xf)),
        name: Name::new("reports").unwrap(),
        namespace: Namespace::default(),
        completion: 2,
        members: 400,
        counts: [("Completed".to_owned(), 397), ("Failed".to_owned(), 3)].into(),
        created_at: at(0),
        completed_at: at(600_000),
    };
    let team = BatchCompleted { namespace: Namespace::new("team-a").unwrap(), ..completed.clone() };
    both_ways("batch-completed", &BatchMessage::Completed(completed));
    both_ways("batch-completed-namespace", &BatchMessage::Completed(team));
}
