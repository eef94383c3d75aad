//! The forms of answers that users define, and commands that read several objects.

use super::Going;
use everwatch_api::Observer;
use everwatch_tests::dev::Dev;
use serde_json::json;

async fn two_observers() -> Dev {
    let dev = Dev::start(1, 5).await;
    for name in ["one", "two"] {
        dev.api.create(json!({"name": name, "kind": "ticker", "labels": {"my-app": name}})).await;
        dev.api.until_status(name, "Processing").await;
    }
    dev
}

#[tokio::test]
async fn users_choose_values_and_columns() {
    let dev = two_observers().await;
    let good = |words: &str| {
        let (code, said, beside) = dev.run(words);
        assert_eq!((code, beside.as_str()), (Some(0), ""), "{words}");
        said
    };
    assert_eq!(good("observer get one -o jsonpath={.status}"), "Processing\n");
    assert_eq!(good("observer get one -o jsonpath=$.labels['my-app']"), "one\n");
    for path in ["{.items[*].name}", "$.items[*].name"] {
        assert_eq!(good(&format!("observer list -o jsonpath={path}")), "one\ntwo\n");
    }
    let columns = "custom-columns=NAME:.name,SERVICE:.service.name,NONE:.last_error,APP:.labels.my-app";
    assert_eq!(
        good(&format!("observer list -o {columns}")),
        "NAME  SERVICE    NONE    APP\none   service-1  <none>  one\ntwo   service-1  <none>  two\n"
    );
    assert_eq!(good(&format!("observer get two --no-headers -o {columns}")), "two  service-1  <none>  two\n");
    assert_eq!(good("observer list --no-headers").lines().count(), 2);
    for (words, told) in [
        ("service get service-1 -o jsonpath={.capacity}", "5\n"),
        ("pool describe default -o jsonpath={.capacity}", "5\n"),
        ("pool list -o jsonpath={.items[0].capacity}", "5\n"),
        ("kind describe ticker -o jsonpath={.services}", "1\n"),
        ("status -o jsonpath={.stats.capacity}", "5\n"),
        ("timeline -o jsonpath={.lanes[*].service}", "service-1\n"),
        ("events --type service_registered -o jsonpath={.service.name}", "service-1\n"),
        ("events --type service_registered --no-headers -o custom-columns=S:.service.name", "service-1\n"),
        ("rebalance plan -o custom-columns=S:.service.name,P:.pool --no-headers", ""),
    ] {
        if !told.is_empty() {
            assert_eq!(good(words), told, "{words}");
        }
    }
    let (code, said, beside) = dev.run("observer get one -o jsonpath={.absent}");
    assert_eq!((code, said.as_str()), (Some(0), ""));
    assert!(beside.starts_with("{.absent} selects nothing"), "{beside}");
    for words in ["observer list", "observer get one", "pool describe default", "events"] {
        let (code, said, beside) = dev.run(&format!("{words} --no-headers -o custom-columns=N:.nmae,I:.id"));
        assert!(code == Some(0) && said.starts_with("<none>  "), "{words}: {said}");
        assert!(beside.starts_with("N:.nmae selects nothing in any row"), "{words}: {beside}");
    }
    let (code, _, beside) = dev.run("observer list -o jsonpath={.items[*}");
    assert!(code == Some(2) && beside.contains("`{.items[*}` is not a JSONPath"), "{beside}");
}

#[tokio::test]
async fn chosen_values_are_watched() {
    let dev = two_observers().await;
    let columns = "custom-columns=NAME:.name,DESIRED:.desired,STATUS:.status";
    let table = Going::start(&dev, &["observer", "list", "--watch", "-o", columns]);
    let values = Going::start(&dev, &["observer", "get", "two", "--watch", "-o", "jsonpath={.status}"]);
    table.until("both observers", |said| said.lines().count() == 3).await;
    values.until("the status", |said| said == "Processing\n").await;
    assert_eq!(dev.run("observer pause two").0, Some(0));
    table.until("the pause", |said| said.ends_with("two   paused   Paused\n")).await;
    values.until("the pause", |said| said.ends_with("Paused\n")).await;
}

#[tokio::test]
async fn several_objects_are_read_by_their_names() {
    let dev = two_observers().await;
    let (code, table, _) = dev.run("observer get two one");
    let lines: Vec<&str> = table.lines().collect();
    assert!(code == Some(0) && lines.len() == 3 && lines[1].starts_with("two "), "{table}");
    let both: Vec<Observer> = serde_json::from_str(&dev.run("observer get one two -o json").1).unwrap();
    assert_eq!(both.len(), 2);
    assert_eq!(dev.run("observer get one two -o jsonpath={.items[*].name}").1, "one\ntwo\n");

    let (code, said, beside) = dev.run("observer get absent one gone");
    assert!(code == Some(3) && said.lines().count() == 2 && said.contains("one "), "{said}");
    assert!(
        beside.contains("gone: ") && beside.contains("everwatch: ") && beside.contains("absent"),
        "{beside}"
    );
    assert_eq!(beside.lines().count(), 2, "{beside}");
    let (code, said, beside) = dev.run("observer describe one absent two");
    let names = said.lines().filter(|line| line.starts_with("Name:")).count();
    assert!(code == Some(3) && names == 2 && beside.contains("absent"), "{said}{beside}");

    let (code, said, beside) = dev.run("service get service-1 service-9");
    assert!(code == Some(3) && said.contains("service-1") && beside.contains("service-9"), "{said}{beside}");
    let (code, said, _) = dev.run("service describe service-1 service-1");
    assert_eq!((code, said.matches("Last heartbeat:").count()), (Some(0), 2), "{said}");
    assert_eq!(dev.run("observer get absent gone --watch").0, Some(3));
}

#[tokio::test]
async fn descriptions_have_forms_or_name_the_command_that_has_them() {
    let dev = two_observers().await;
    for words in
        ["rate set openai --permits 10 --burst 30", "rollout start slower --kind ticker --set spec.every=2s"]
    {
        let (code, _, beside) = dev.run(words);
        assert_eq!(code, Some(0), "{words}: {beside}");
    }
    for (words, told) in [
        ("rate describe openai -o jsonpath={.permits}", "10\n"),
        ("rollout describe slower -o jsonpath={.members}", "2\n"),
        ("role get viewer -o jsonpath={.name}", "viewer\n"),
    ] {
        let (code, said, beside) = dev.run(words);
        assert_eq!((code, said.as_str()), (Some(0), told), "{words}: {beside}");
    }
    for (words, cure) in [
        ("observer describe one two -o json", "use `everwatch observer get one two -o json`"),
        ("service describe service-1 -o yaml", "use `everwatch service get service-1 -o yaml`"),
        ("status -o name", "use -o table, json or yaml"),
        ("status --no-headers", "remove --no-headers"),
        ("timeline -o name", "use -o table, json or yaml"),
        ("timeline --since 25h", "--since is "),
        ("timeline --until 30h", "--until is "),
        (
            "rollout start other --kind ticker --set spec.every=2s --healthy-for 1h --timeout 1m",
            "--timeout is 1m: it must be longer than --healthy-for, 1h",
        ),
        ("rollout start other --kind http --set spec.every=2s", "selection: no observer matches"),
        ("rollout start other --kind ticker --set grace=never", "--set grace "),
    ] {
        let (code, said, beside) = dev.run(words);
        assert!(code == Some(2) && said.is_empty() && beside.contains(cure), "{words}: {code:?} {beside}");
    }
}
