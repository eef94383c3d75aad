//! Compares the processor time of the frequent operations with a stored baseline, and warns where it has grown.
//!
//! `everwatch-costs [--store]`: runs the examples `moves` and `idle_cost` beside it. The figures are multiples of a
//! yardstick that is measured between the runs, so they depend little on the machine, and each is the lowest of
//! several runs, so they depend little on what else runs there. `--store` writes the baseline anew.

use nix::sys::resource::{UsageWho, getrusage};
use nix::sys::time::TimeValLike as _;
use serde_json::Value;
use std::collections::BTreeMap;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

const RUNS: usize = 5;
/// Growth that is worth a warning, in percent.
const GROWTH_MAX: f64 = 25.0;
/// Observers in one run of an example.
const OBSERVERS: &str = "4000";

/// Costs by operation.
type Costs = BTreeMap<String, f64>;

fn main() -> Result<(), Box<dyn Error>> {
    let baseline = Path::new(env!("CARGO_MANIFEST_DIR")).join("costs.json");
    let examples = examples()?;
    let (mut lowest, mut yardstick) = (Costs::new(), f64::MAX);
    for _ in 0..RUNS {
        yardstick = yardstick.min(measure_yardstick()?);
        for (name, micros) in moves(&examples)?.into_iter().chain(start(&examples)?) {
            let least = lowest.entry(name).or_insert(micros);
            *least = least.min(micros);
        }
    }
    let costs: Costs = lowest.into_iter().map(|(name, micros)| (name, micros / yardstick)).collect();
    if std::env::args().any(|it| it == "--store") {
        let rounded: BTreeMap<_, _> =
            costs.iter().map(|(name, cost)| (name, (cost * 100.0).round() / 100.0)).collect();
        std::fs::write(&baseline, serde_json::to_string_pretty(&rounded)? + "\n")?;
        println!("wrote {}", baseline.display());
        return Ok(());
    }
    let stored: Costs = serde_json::from_str(&std::fs::read_to_string(&baseline)?)?;
    println!("processor time of an operation, in units of {yardstick:.1} µs, and beside the baseline:");
    for (name, cost) in &costs {
        let Some(before) = stored.get(name) else {
            println!("  {name:<28} {cost:>7.2}   not in the baseline");
            continue;
        };
        let growth = (cost / before - 1.0) * 100.0;
        println!("  {name:<28} {cost:>7.2} {growth:>+6.0} %");
        if growth > GROWTH_MAX {
            println!("warning: {name} costs {growth:.0} % more than in the baseline ({before:.2} units)");
        }
    }
    Ok(())
}

fn examples() -> Result<PathBuf, Box<dyn Error>> {
    let own = std::env::current_exe()?;
    Ok(own.parent().ok_or("this program is in no folder")?.join("examples"))
}

/// Microseconds of one yardstick: work of the kind that the operations consist of, without input and output.
fn measure_yardstick() -> Result<f64, Box<dyn Error>> {
    const ROUNDS: u32 = 2000;
    let text = r#"{"id":"0190","epoch":[1,2,3],"spec":{"every":"1h","labels":{"a":"b","c":"d"}},"text":"attempt 1"}"#;
    let before = processor()?;
    let mut length = 0;
    for _ in 0..ROUNDS {
        let value: Value = serde_json::from_str(text)?;
        length += value.to_string().len();
    }
    let took = processor()? - before;
    if length == 0 || took == 0 {
        return Err("the yardstick took no time".into());
    }
    Ok(took as f64 / f64::from(ROUNDS))
}

/// Microseconds of processor time of this process so far.
fn processor() -> Result<i64, Box<dyn Error>> {
    let usage = getrusage(UsageWho::RUSAGE_SELF)?;
    Ok((usage.user_time() + usage.system_time()).num_microseconds())
}

/// What the database client spends on an observer, by the example `moves`.
fn moves(examples: &Path) -> Result<Costs, Box<dyn Error>> {
    let said = run(&examples.join("moves"))?;
    let line = said.lines().last().ok_or("moves said nothing")?;
    let figures = line.split_whitespace().skip(1).map(str::parse).collect::<Result<Vec<f64>, _>>()?;
    let names =
        ["store: create", "store: load for a move", "store: save of a move", "store: event of a move"];
    Ok(names.map(str::to_owned).into_iter().zip(figures).collect())
}

/// What a service spends on the start of an observer, by the example `idle_cost`.
fn start(examples: &Path) -> Result<Costs, Box<dyn Error>> {
    let said = run(&examples.join("idle_cost"))?;
    let before = said.split(" µs").next().and_then(|text| text.rsplit(' ').next());
    let micros = before.ok_or_else(|| format!("idle_cost said {said}"))?.parse()?;
    Ok(Costs::from([("service: start".to_owned(), micros)]))
}

fn run(example: &Path) -> Result<String, Box<dyn Error>> {
    let done = Command::new(example).arg(OBSERVERS).output();
    let done = done.map_err(|error| format!("{} cannot be run: {error}", example.display()))?;
    if !done.status.success() {
        return Err(format!("{}: {}", example.display(), String::from_utf8_lossy(&done.stderr)).into());
    }
    Ok(String::from_utf8(done.stdout)?)
}
