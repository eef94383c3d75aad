//! Tests the rules themselves: each of many deliberate mistakes in the shipped crates must break a rule in
//! some history.

mod copy;
mod list;
mod playing;

use list::{MISTAKES, Mistake};
use playing::{Breach, Player};

/// How many seeds are searched if the recorded seed no longer reveals a mistake.
const SEARCHED: u64 = 1500;

#[test]
fn every_deliberate_mistake_is_found() {
    let player = Player::new(copy::built());
    let remembered = playing::at_once(MISTAKES.iter(), |it| (it, player.shows(it.name, it.seed)));
    let mut not_found = Vec::new();
    for (mistake, found) in remembered {
        match found.or_else(|| player.search(mistake.name, 0..SEARCHED)) {
            Some(breach) => println!("{}", sentence(mistake, &breach)),
            None => not_found.push(mistake.name),
        }
    }
    assert!(not_found.is_empty(), "not found in {SEARCHED} histories: {not_found:#?}");
}

#[test]
fn a_failing_history_is_made_small_and_tells_its_story() {
    let mut shrink = std::process::Command::new(copy::built());
    shrink.args(["shrink", "0"]).env(copy::CHOICE, "ignore-revocations");
    let output = shrink.output().unwrap();
    let (account, story) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(!output.status.success() && account.contains("seed 0 breaks revocations"), "{account}");
    let line = account.lines().find_map(|line| line.strip_suffix(" actions are needed; everything again:"));
    let (needed, all) = line.and_then(|line| line.split_once(" of ")).unwrap();
    assert!(needed.parse::<usize>().unwrap() < all.parse().unwrap(), "{needed} of {all}");
    // What the world saw, and what the shipped programs logged.
    assert!(story.contains("hears Revoke") && story.contains("INFO observer created"), "{story}");
}

#[test]
fn no_mistake_is_listed_twice() {
    let mut names: Vec<&str> = MISTAKES.iter().map(|it| it.name).collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count);
}

fn sentence(mistake: &Mistake, breach: &Breach) -> String {
    let Breach { seed, rule, text } = breach;
    let said = format!("{}: seed {seed} breaks {rule}: {text}", mistake.name);
    if (*seed, rule.as_str()) == (mistake.seed, mistake.rule) {
        return said;
    }
    format!(
        "{said}\n    UPDATE tests/mistakes/list.rs: seed: {seed}, rule: \"{rule}\" (it says seed: {}, rule: \"{}\")",
        mistake.seed, mistake.rule
    )
}
