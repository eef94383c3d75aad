//! Findings about observers that fail, and about services that do not come back.

use super::*;
use crate::record::observed::{Settled, Settlement};

#[test]
fn crash_looping_observers_are_named_by_number_of_restarts() {
    let set = |rows: Vec<Row>| move |facts: &mut Facts| fleet(facts).restarting = SomeRows { total: 9, rows };
    assert_eq!(found(set(vec![failing("once", 2)])), NONE, "one restart is no crash loop");
    let all = vec![failing("few", 3), failing("once", 2), failing("often", 40)];
    let findings = diagnosed(set(all));
    assert_eq!(
        (findings.len(), findings[0].code, findings[0].severity),
        (1, "crash-loop", Severity::Warning)
    );
    let Finding { what, why, cure, .. } = &findings[0];
    let expected = "at least 2 observers failed repeatedly: often (39 restarts), few (2 restarts)";
    assert_eq!(what, expected);
    assert!(why.ends_with("no such file") && cure.contains("everwatch observer logs often"), "{why} {cure}");
}

#[test]
fn observers_whose_services_died_are_not_said_to_have_failed() {
    let mut suspect = running("suspect", at(0), now());
    suspect.observed.waited.insert(0);
    let set = |rows: Vec<Row>| move |facts: &mut Facts| fleet(facts).restarting = SomeRows { total: 1, rows };
    let findings = diagnosed(set(vec![suspect.clone()]));
    let [Finding { code: "crash-loop", what, cure, .. }] = &findings[..] else { panic!("{findings:?}") };
    assert_eq!(what, "1 observer lost the service or the broker soon after the start, repeatedly: suspect");
    assert!(cure.contains("everwatch timeline") && cure.contains("observer pause suspect"), "{cure}");
    // With one that fails, its error is the news.
    let findings = diagnosed(set(vec![suspect, failing("often", 40)]));
    assert!(findings[0].what.ends_with("failed repeatedly: often (39 restarts), suspect"), "{findings:?}");
}

#[test]
fn failed_observers_are_counted_and_the_first_five_are_named() {
    let rows: Vec<Row> = (1..=7).map(|number| observer(&format!("o{number}"), "ticker")).collect();
    let findings = diagnosed(|facts| fleet(facts).failed = SomeRows { total: 12, rows });
    assert_eq!((findings.len(), findings[0].code), (1, "failed"));
    assert_eq!(findings[0].what, "12 observers failed: o1, o2, o3, o4, o5 and 7 more");
    assert!(findings[0].why.ends_with("the error of the first one is: not known"), "{findings:?}");
    let mut row = failing("o1", 2);
    let how = Settlement::Failed { error: "its services died".to_owned(), attempts: 2 };
    let key = Key { acquisitions: 0, seq: 2 };
    row.observed.settled = Some(Settled { key, service: ServiceId(Uuid::from_u128(1)), at: now(), how });
    let findings = diagnosed(|facts| fleet(facts).failed = SomeRows { total: 1, rows: vec![row] });
    assert!(findings[0].why.ends_with("the error is: its services died"), "{findings:?}");
}

#[test]
fn services_that_do_not_come_back_are_reported() {
    let lost = |number, name: &str, secs_ago: u64| {
        let mut row = service(number, name, 10);
        assert!(row.on_session_gone(now().minus(Duration::from_secs(secs_ago))));
        row
    };
    let set = |ended| move |facts: &mut Facts| fleet(facts).ended_lately = ended;
    assert_eq!(found(set(vec![lost(7, "a", 10), lost(8, "x", 601)])), NONE, "one is back, one is too old");
    let mut left = service(7, "y", 10);
    assert!(left.on_gone(now()));
    assert_eq!(found(set(vec![left])), NONE, "it unregistered");
    let findings = diagnosed(set(vec![lost(7, "x", 10), lost(8, "x", 20), lost(9, "w", 30)]));
    assert_eq!((findings.len(), findings[0].code), (1, "service-lost"));
    assert_eq!(
        findings[0].what,
        "2 services were lost in the last 10 minutes and have not come back yet: w, x"
    );
    assert!(findings[0].cure.contains("host-of-w"), "{findings:?}");
}

#[test]
fn services_that_a_person_killed_or_froze_are_named_until_they_are_back() {
    let lost = |name: &str, secs_ago: u64| {
        let mut row = service(7, name, 10);
        assert!(row.on_session_gone(now().minus(Duration::from_secs(secs_ago))));
        vec![row]
    };
    let killed = |name, secs_ago, needed| {
        move |facts: &mut Facts| {
            fleet(facts).killed_by_hand = lost(name, secs_ago);
            fleet(facts).needed = [(Pool::default(), needed)].into();
        }
    };
    assert_eq!(found(killed("x", 10, 5)), ["Info service-killed service x"]);
    assert_eq!(found(killed("a", 10, 5)), NONE, "it is back");
    let told = diagnosed(killed("x", 10, 33));
    assert_eq!((told.len(), told[0].code, told[0].severity), (1, "service-killed", Severity::Warning));
    assert_eq!(told[0].why, "until then, observers wait: pool default has 3 slots too few");
    let beside_cordoned = |facts: &mut Facts| {
        killed("x", 10, 33)(facts);
        fleet(facts).services[0].heartbeat.as_mut().unwrap().state = Intent::Cordoned;
    };
    let cure = &diagnosed(beside_cordoned)[0].cure;
    assert!(cure.starts_with("`everwatch service uncordon a`, or wait: "), "{cure}");
    let drained_since = |needed| {
        move |facts: &mut Facts| {
            killed("x", 10, needed)(facts);
            let orders = crate::capacity::maintenance::Orders { cordoned: true, ..Default::default() };
            fleet(facts).orders.insert("x".to_owned(), orders);
        }
    };
    let told = diagnosed(drained_since(5));
    let expected = "service x was killed on purpose and starts again in a few seconds; the next process of x is cordoned";
    assert_eq!(told[0].what, expected);
    assert_eq!(told[0].cure, "`everwatch service uncordon x`, so that it takes observers again");
    let codes: Vec<&str> = diagnosed(drained_since(33)).iter().map(|it| it.code).collect();
    assert!(codes.contains(&"pool-full"), "its slots do not come back: {codes:?}");
    let told = diagnosed(killed("x", 20, 33));
    let codes: Vec<&str> = told.iter().map(|it| it.code).collect();
    assert_eq!(codes, ["pool-full", "service-lost"], "it does not come back");
    let frozen = |name, secs_ago| move |facts: &mut Facts| fleet(facts).frozen_by_hand = lost(name, secs_ago);
    assert_eq!(found(frozen("x", 300)), ["Warning service-lost service x"]);
    assert!(diagnosed(frozen("x", 300))[0].cure.starts_with("`everwatch chaos thaw x`"));
    assert_eq!(found(frozen("a", 10)), NONE, "it was thawed");
    let living = diagnosed(|facts| fleet(facts).frozen_by_hand = vec![service(7, "x", 10)]);
    assert_eq!(living[0].what, "service x is frozen on purpose, and the broker has not noticed yet");
    assert_eq!(living.len(), 1);
}

#[test]
fn safe_mode_names_silent_services() {
    let silent = |is_suspect: bool, safe_mode: bool| {
        move |facts: &mut Facts| {
            let silent = &mut fleet(facts).services[0];
            silent.heard_at = now().minus(Duration::from_secs(41));
            silent.heartbeat.as_mut().unwrap().sent_at = Some(silent.heard_at);
            assert!(!is_suspect || silent.suspect(now()));
            fleet(facts).safe_mode = safe_mode.then(String::new);
        }
    };
    let what = |change: &dyn Fn(&mut Facts)| {
        diagnosed(change).into_iter().find(|it| it.code == "safe-mode-on").map(|it| it.what)
    };
    let name = "safe mode is on; services are silent, and their observers may not run: a for 41s";
    assert_eq!(what(&silent(true, true)).as_deref(), Some(name));
    assert_eq!(what(&silent(false, true)).as_deref(), Some("safe mode is on"));
    assert_eq!(what(&silent(true, false)), None, "managers ask the broker about it");
    let killed = |facts: &mut Facts| {
        silent(true, true)(facts);
        fleet(facts).killed_by_hand = vec![fleet(facts).services[0].clone()];
    };
    assert_eq!(what(&killed).as_deref(), Some("safe mode is on; killed on purpose: a"));
    let replaced = |facts: &mut Facts| {
        silent(true, true)(facts);
        let mut newer = fleet(facts).services[1].clone();
        newer.registration.name = fleet(facts).services[0].registration.name.clone();
        newer.registered_at = fleet(facts).services[0].registered_at.plus(Duration::from_secs(1));
        fleet(facts).services.push(newer);
    };
    assert_eq!(what(&replaced).as_deref(), Some("safe mode is on"), "a newer service has its name");
}
