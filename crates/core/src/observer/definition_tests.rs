use super::*;
use serde_json::json;

fn parse(body: Value) -> Result<ObserverDefinition, Vec<FieldError>> {
    ObserverDefinition::parse(body, &Name::new("made-up").unwrap())
}
fn pointers(body: Value) -> Vec<String> {
    parse(body).unwrap_err().into_iter().map(|error| error.pointer).collect()
}

#[test]
fn defaults_fill_missing_members() {
    let definition = parse(json!({"kind": "ticker"})).unwrap();
    assert_eq!(definition.name.as_str(), "made-up");
    assert_eq!((definition.pool.as_str(), definition.overlap), ("default", Overlap::Allow));
    assert_eq!(definition.grace, Duration::from_secs(10));
}

#[test]
fn all_errors_are_reported_at_once_with_their_location() {
    let body = json!({"name": ".x", "spek": 1, "grace": "soon", "retry": {"kind": "fixed"}});
    assert_eq!(pointers(body), ["/name", "/kind", "/retry", "/grace", "/spek"]);
    let body = json!({"kind": "k", "labels": {"team": false, "n": 3, "o": [], "a b": "x"}, "grace": "2h", "overlap": "maybe", "spek": 1, "zzz": 1});
    let all: Vec<String> =
        parse(body).unwrap_err().into_iter().map(|it| format!("{} {}", it.pointer, it.detail)).collect();
    let unknown = format!("/zzz is an unknown field; known: {}, desired", MEMBERS.join(", "));
    assert_eq!(
        all,
        [
            "/labels/n is 3: write a string, such as \"3\"",
            "/labels/o is []: write a string",
            "/labels/team is false: write a string, such as \"false\"",
            "/overlap is maybe: write allow or forbid",
            "/spek is an unknown field; did you mean `spec`?",
            &*unknown,
            "/grace is 2h: write at most 1h",
            "/labels/a b a label's key is 1 to 128 of A-Z a-z 0-9 . _ - /",
        ]
    );
    assert_eq!(pointers(json!([])), [""]);
    assert_eq!(pointers(json!({"kind": 7})), ["/kind"]);
}

#[test]
fn a_value_of_another_type_is_refused_with_its_place_and_an_example() {
    let refused = |body: Value| {
        let all = parse(body).unwrap_err();
        assert_eq!(all.len(), 1, "{all:?}");
        all[0].to_string()
    };
    let mut with_example = 0;
    for member in MEMBERS {
        let Some(example) = example(member) else { continue };
        let told = refused(json!({"kind": "k", member: 5}));
        assert!(told.starts_with(&format!("/{member} is 5: write a")), "{told}");
        assert!(told.ends_with(&format!(", such as {example}{}", alternative(member))), "{told}");
        let example: Value = serde_json::from_str(example).unwrap();
        parse(json!({"kind": "k", member: example})).unwrap();
        if let Some(other) = alternative(member).strip_prefix(", or ").and_then(|it| it.rsplit_once(" to ")) {
            let other: Value = serde_json::from_str(other.0).unwrap();
            parse(json!({"kind": "k", member: other})).unwrap();
        }
        with_example += 1;
    }
    assert_eq!(with_example, 5);
    let windows = json!({"time_zone": "UTC", "open": "x"});
    assert_eq!(refused(json!({"kind": "k", "windows": windows})), "/windows/open is \"x\": write a list");
    let windows = json!({"time_zone": "UTC", "open": [{"from": 9, "to": "16:00"}]});
    assert_eq!(
        refused(json!({"kind": "k", "windows": windows})),
        "/windows/open/0/from is 9: write a string"
    );
}

#[test]
fn limits_hold_at_and_over() {
    let spec = |bytes: usize| json!({"kind": "k", "spec": "x".repeat(bytes - 2)});
    assert!(parse(spec(SPEC_MAX_BYTES)).is_ok());
    assert_eq!(pointers(spec(SPEC_MAX_BYTES + 1)), ["/spec"]);
    assert_eq!(pointers(json!({"kind": "k", "grace": "61m"})), ["/grace"]);
    for (priority, wrong) in
        [(json!(100), false), (json!(-100), false), (json!(101), true), (json!(1.5), true)]
    {
        assert_eq!(parse(json!({"kind": "k", "priority": priority})).is_err(), wrong, "{priority}");
    }
    for (weight, wrong) in [(json!(1), false), (json!(1000), false), (json!(0), true), (json!(1001), true)] {
        assert_eq!(parse(json!({"kind": "k", "weight": weight})).is_err(), wrong, "{weight}");
    }
    let wrong = parse(json!({"kind": "k", "weight": "4"})).unwrap_err();
    assert_eq!(wrong[0].detail, "is \"4\": a weight is a whole number from 1 to 1000");
    let wrong = parse(json!({"kind": "k", "priority": 1.5})).unwrap_err();
    assert_eq!(wrong[0].detail, "is 1.5: a priority is a whole number from -100 to 100");
    assert_eq!(pointers(json!({"kind": "k", "attempt_timeout": "999ms"})), ["/attempt_timeout"]);
    assert_eq!(pointers(json!({"kind": "k", "start_within": "999ms"})), ["/start_within"]);
    assert_eq!(pointers(json!({"kind": "k", "labels": {"a b": "x"}})), ["/labels/a b"]);
    let none = json!({"kind": "k", "retry": {"kind": "fixed", "every": "1s", "attempts": 0}});
    assert_eq!(pointers(none), ["/retry/attempts"]);
}

#[test]
fn times_are_moments_with_an_offset_and_in_order() {
    let times = |start: Value, finish: Value| json!({"kind": "k", "start_at": start, "finish_at": finish});
    let both = parse(times(json!("2030-01-31T09:30:00+01:00"), json!("2030-01-31T08:30:01Z"))).unwrap();
    assert_eq!(both.finish_at.unwrap().since(both.start_at.unwrap()), Duration::from_secs(1));
    for wrong in [json!("2030-01-31 09:30"), json!("tomorrow"), json!(1_900_000_000)] {
        assert_eq!(pointers(times(wrong.clone(), json!(null))), ["/start_at"], "{wrong}");
    }
    let late = times(json!("2030-01-31T09:30:00Z"), json!("2030-01-31T09:30:00Z"));
    assert_eq!(pointers(late), ["/finish_at"]);
    let finish = both.finish_at.unwrap();
    assert!(both.check_at(finish.minus(Duration::from_millis(1))).is_ok());
    assert_eq!(both.check_at(finish).unwrap_err().pointer, "/finish_at");
}

#[test]
fn a_schedule_has_a_time_before_the_end() {
    let hourly = |finish: &str| {
        parse(json!({"kind": "k", "schedule": {"cron": "0 * * * *"}, "start_at": "2030-01-31T09:30:00Z", "finish_at": finish}))
            .unwrap()
    };
    let now = hourly("2030-01-31T10:00:01Z").start_at.unwrap().minus(Duration::from_secs(7200));
    assert!(hourly("2030-01-31T10:00:01Z").check_at(now).is_ok());
    let never = hourly("2030-01-31T10:00:00Z").check_at(now).unwrap_err();
    assert_eq!(never.pointer, "/schedule/cron");
    assert!(never.detail.contains("2030-01-31T10:00:00.000Z"), "{}", never.detail);
    let open = json!([{"from": "09:30", "to": "16:00"}]);
    let both = json!({"kind": "k", "schedule": {"cron": "0 * * * *"}, "windows": {"time_zone": "UTC", "open": open}});
    assert_eq!(pointers(both), ["/schedule"]);
    assert_eq!(pointers(json!({"kind": "k", "schedule": {"cron": "0 * * *"}})), ["/schedule/cron"]);
}

#[test]
fn a_spec_nested_too_deeply_is_refused() {
    let nested = |levels| (0..levels).fold(json!(1), |inner, _| json!([inner]));
    assert!(parse(json!({"kind": "k", "spec": nested(SPEC_MAX_DEPTH)})).is_ok());
    assert_eq!(pointers(json!({"kind": "k", "spec": nested(SPEC_MAX_DEPTH + 1)})), ["/spec"]);
}

#[test]
fn a_stored_definition_reads_back() {
    let definition =
        parse(json!({"kind": "exec", "spec": {"argv": ["true"]}, "labels": {"a": "b"}})).unwrap();
    let stored = serde_json::to_string(&definition).unwrap();
    assert_eq!(serde_json::from_str::<ObserverDefinition>(&stored).unwrap(), definition);
}
