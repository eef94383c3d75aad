//! Simulates the shipped programs: many histories, each in a separate process, and some histories twice.
//! `EVERWATCH_SIM_SEEDS=N` plays more of them; `EVERWATCH_SIM_FROM=S` starts at another seed.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a program that does not start is a failed test")]

mod mistakes;

use std::process::Command;

/// Histories of an ordinary run.
const SEEDS: u64 = 500;
/// Seeds that once revealed a fault, with its description.
const FOUND: [(u64, &str); 22] = [
    (439, "a delete was taken for saved when a pause that shared its transaction was"),
    (2_002_376, "a welcome that came late was dropped, and with it the order to cordon"),
    (2_002_700, "a publish whose lease had exactly its margin left was tried without a pause"),
    (
        2_003_252,
        "a restart never came after its message was lost, because all services were full or cordoned",
    ),
    (2_012_158, "a restart never came after its message was lost, because the queue was never empty"),
    (
        2_020_935,
        "a delete never finished after its message was lost, because all services were full or cordoned",
    ),
    (2_022_117, "the next generation ran beside a redelivered run that may not overlap"),
    (3_003_234, "a restart did not wait for the end of a run to which the message had moved on"),
    (
        3_004_685,
        "an observer was quarantined for crashes of its neighbor, whose reports were lost with the services",
    ),
    (
        10_000_549,
        "an observer that ended 80 services was not failed, because those that waited beside it had not started",
    ),
    (10_005_979, "a service whose slots were reduced during a rebalance took more than fitted"),
    (
        10_007_287,
        "the same of two suspects always started first, and was started again so often that both were blamed",
    ),
    (10_007_774, "a service that was given more slots during a rebalance left them unused"),
    (
        20_004_854,
        "a service that was born after a restart took the message of the ended run, which its service had not acknowledged",
    ),
    (
        30_400_460,
        "an observer was quarantined for deaths of another one, because its check had waited in safe mode",
    ),
    (
        40_204_488,
        "an observer that a rebalance had moved waited for a slow one, because its new service was cordoned meanwhile",
    ),
    (60_003_567, "suspects waited a minute each after the cause of the deaths had been found"),
    (
        70_005_465,
        "an observer was quarantined for the deaths of its neighbor, which a user had deleted and created again",
    ),
    (
        70_026_145,
        "an observer was quarantined for deaths that only it had reported, of a crash loop in safe mode",
    ),
    (70_029_886, "the same, when another suspect gave up"),
    (70_010_965, "a sweep acknowledged a message that a restored broker counted lower, and settled nothing"),
    (50_201_416, "a service that had fenced itself took another observer before its session ended"),
];
/// Histories that are played twice.
const TWICE: u64 = 20;

fn simulation() -> Command {
    Command::new(env!("CARGO_BIN_EXE_everwatch-sim"))
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().unwrap())
}

/// Runs a command; answers whether it succeeded, and what it printed.
fn printed(command: &mut Command) -> (bool, String) {
    let output = command.output().unwrap();
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8_lossy(&text).into_owned())
}

#[test]
fn every_rule_holds_in_every_history() {
    let (from, seeds) = (number("EVERWATCH_SIM_FROM"), number("EVERWATCH_SIM_SEEDS"));
    let mut run = simulation();
    run.args(["run", "--from", &from.unwrap_or(0).to_string()]);
    run.args(["--seeds", &seeds.unwrap_or(SEEDS).to_string()]);
    if let Some(minutes) = number("EVERWATCH_SIM_MINUTES") {
        run.args(["--minutes", &minutes.to_string()]);
    }
    let (held, table) = printed(&mut run);
    println!("{table}");
    if held {
        return;
    }
    let failing = table.lines().find_map(|line| line.strip_prefix("seed ")?.split(' ').next());
    let (_, story) = failing.map(|seed| printed(simulation().args(["shrink", seed]))).unwrap_or_default();
    panic!("{story}\n{table}");
}

#[test]
fn every_rule_holds_in_what_has_found_faults() {
    for (seed, fault) in FOUND {
        let (held, outcome) = printed(simulation().args(["play", &seed.to_string()]));
        assert!(held, "{seed} ({fault}): {outcome}");
    }
}

#[test]
fn a_history_is_the_same_in_every_process() {
    for seed in 0..TWICE {
        let play = || printed(simulation().args(["play", &seed.to_string()])).1;
        let first = play();
        assert!(first.contains("\"digest\""), "{first}");
        assert_eq!(first, play(), "seed {seed}");
    }
}

/// The arithmetic of docs/scaling.md: what a deployment sends grows with its observers only when they start or move,
/// and otherwise with its services only.
#[test]
fn a_deployment_sends_as_many_messages_as_the_documentation_says() {
    for (observers, services) in [(100, 4), (300, 12)] {
        let mut count = simulation();
        count.args(["count", "--observers", &observers.to_string(), "--services", &services.to_string()]);
        let (counted, text) = printed(&mut count);
        assert!(counted, "{text}");
        let counts: serde_json::Value = serde_json::from_str(&text).unwrap();
        let sent = |when: &str, what: &str| counts[when][what].as_u64().unwrap_or(0);
        assert_eq!(
            (sent("create", "work"), sent("create", "reports of runs")),
            (observers, observers),
            "{text}"
        );
        let held = counts["held"].as_u64().unwrap();
        assert!(held > 0, "{text}");
        assert_eq!(sent("failover", "reports of runs"), held, "one for each observer that moved: {text}");
        // Two idle minutes.
        for what in ["work", "reports of runs", "inventories"] {
            assert_eq!(sent("idle", what), 0, "{what}: {text}");
        }
        assert_eq!(sent("idle", "commands"), 2, "the manager announces the time once a minute: {text}");
        for (what, a_minute) in [("heartbeats", 12), ("probes", 60), ("digests", 1)] {
            assert_eq!(sent("idle", what), 2 * a_minute * services, "{what}: {text}");
        }
    }
}
