//! What counts as running where a command waits for it.

use everwatch_tests::dev::Dev;
use serde_json::json;

async fn create(
    dev: &Dev,
    name: &str,
    spec: &serde_json::Value,
    more: &str,
) -> (Option<i32>, String, String) {
    let line = format!("observer create {name} --kind exec --spec {spec} {more}");
    dev.run(&line)
}

#[tokio::test]
async fn a_program_that_ends_or_is_not_ready_does_not_run() {
    let dev = Dev::start(1, 9).await;
    let never_ready = json!({"argv": ["/bin/sleep", "600"], "ready": {"line": "ready"}});
    for (name, spec, code, told) in [
        ("runs", json!({"argv": ["/bin/sleep", "600"]}), 0, "observer runs is Processing (running)"),
        ("ends", json!({"argv": ["/bin/false"]}), 5, "not running"),
        ("waits", never_ready, 5, "waits is Processing (waiting) after 3s, not running"),
        ("completes", json!({"argv": ["/bin/true"]}), 0, "observer completes is Completed"),
        ("missing", json!({"argv": ["/no/such/program"]}), 5, "missing is Processing (restarting) after 3s"),
        ("fails", json!({"argv": ["/bin/false"], "exit_codes": {"1": "failed"}}), 1, "fails is Failed"),
    ] {
        let (ended, said, beside) = create(&dev, name, &spec, "--wait 3s").await;
        assert!(
            ended == Some(code) && format!("{said}{beside}").contains(told),
            "{name}: {ended:?} {said}{beside}"
        );
    }
    let (_, _, beside) = dev.run("observer wait missing --for health=running --timeout 1s");
    assert!(
        beside.contains("/no/such/program could not be started: No such file or directory"),
        "the helper's exit code alone names no cause: {beside}"
    );
    assert_eq!(
        dev.run("observer wait runs --for health=running"),
        (Some(0), "observer runs is Processing (running)\n".to_owned(), String::new())
    );
    let (code, _, beside) = dev.run("observer wait ends --for health=running --timeout 2s");
    assert!(
        code == Some(5) && beside.contains("ends is Processing (restarting) after 2s, not running"),
        "{beside}"
    );
    let (code, _, beside) = dev.run("observer wait runs --for running");
    assert!(code == Some(2) && beside.contains("write status=STATUS or health=HEALTH"), "{beside}");
}

#[tokio::test]
async fn a_move_to_a_pool_without_services_is_refused_and_verbs_alone_name_the_command() {
    let dev = Dev::start(1, 5).await;
    assert_eq!(dev.run("observer create one --kind ticker --wait 20s").0, Some(0));
    let (code, _, beside) = dev.run("observer move one --pool nopool");
    assert!(code == Some(3) && beside.contains("names the pool `nopool`"), "{code:?} {beside}");
    assert_eq!(dev.run("pool create empty").0, Some(0));
    let (code, _, beside) = dev.run("observer move one --pool empty");
    assert!(
        code == Some(4)
            && beside.contains("pool empty has no services")
            && beside.contains("pools with services: default"),
        "{code:?} {beside}"
    );
    assert_eq!(dev.api.observer("one").await.pool, "default");
    for verb in ["list", "logs", "describe", "delete"] {
        let (code, _, beside) = dev.run(verb);
        assert!(code == Some(2) && beside.contains(&format!("observer {verb}")), "{beside}");
    }
    let (code, said, beside) = dev.run("events -o jsonpath={.items[*].type}");
    assert!(code == Some(0) && said.is_empty() && beside.contains("printed one by one"), "{said}{beside}");
}

/// The holder and the epoch of an observer.
async fn run_of(dev: &Dev, name: &str) -> (String, u64) {
    let it = dev.api.observer(name).await;
    (it.service.map(|service| service.name).unwrap_or_default(), it.epoch)
}

#[tokio::test]
async fn a_command_waits_for_its_effect() {
    let dev = Dev::start(2, 9).await;
    for name in ["one", "two"] {
        let line = format!("observer create {name} --kind ticker --label app=x --wait 20s");
        assert_eq!(dev.run(&line).0, Some(0));
    }
    let told = |words: &str| {
        let (code, said, beside) = dev.run(words);
        assert_eq!(code, Some(0), "{words}: {beside}");
        said
    };
    assert!(told("observer resume one").starts_with("observer one runs; it is not paused"));
    assert_eq!(told("observer pause one --wait 20s"), "observer one is Paused\n");
    assert_eq!(dev.api.observer("one").await.status.as_str(), "Paused");
    assert_eq!(told("observer resume one --wait 20s"), "observer one is Processing (running)\n");

    let (_, before) = run_of(&dev, "one").await;
    assert_eq!(told("observer restart one --wait 20s"), "observer one is Processing (running)\n");
    assert!(run_of(&dev, "one").await.1 > before, "another run");
    let before = [run_of(&dev, "one").await.1, run_of(&dev, "two").await.1];
    let said = told("observer restart -l app=x --yes --wait 20s");
    assert_eq!(said.matches(" is Processing (running)\n").count(), 2, "{said}");
    for (name, before) in ["one", "two"].into_iter().zip(before) {
        assert!(run_of(&dev, name).await.1 > before, "another run of {name}");
    }

    let (from, _) = run_of(&dev, "one").await;
    let other = if from == "service-1" { "service-2" } else { "service-1" };
    let expected = format!("observer one is Processing (running) on {other}\n");
    assert_eq!(told("observer move one --wait 20s"), expected);
    assert_eq!(run_of(&dev, "one").await.0, other);
    // It is there already.
    told(&format!("observer move one --to {other} --wait 20s"));
    let expected = format!("observer one is Processing (running) on {from}\n");
    assert_eq!(told(&format!("observer move one --to {from} --wait 20s")), expected);

    // Both observers with the label, wherever they are.
    let said = told(&format!("observer move -l app=x --to {other} --yes --wait 20s"));
    assert_eq!(said.matches(" is Processing (running)").count(), 2, "{said}");
    assert_eq!([run_of(&dev, "one").await.0, run_of(&dev, "two").await.0], [other, other]);
    let (code, _, beside) = dev.run(&format!("observer move -l app=x --to {from} --expect 3"));
    assert_eq!(
        (code, beside.contains("2 observers match, not 3: nothing was done")),
        (Some(4), true),
        "{beside}"
    );
    let (code, _, beside) = dev.run("observer move -l app=x");
    assert_eq!((code, beside.contains("this would move 2 observers")), (Some(2), true), "{beside}");
    let (code, _, beside) = dev.run("observer move -l app=none --yes");
    assert_eq!((code, beside.contains("no observers")), (Some(0), true), "{beside}");

    // Without the flag, the answer says what will happen, and how to look at it.
    let expected = format!("observer one moves to service {from} (");
    let said = told(&format!("observer move one --to {from}"));
    assert!(said.starts_with(&expected) && said.ends_with("; see `everwatch observer get one`\n"), "{said}");
}

#[tokio::test]
async fn a_wait_ends_with_the_code_for_a_time_out() {
    let dev = Dev::start(1, 9).await;
    let spec = json!({"argv": ["/bin/sleep", "600"], "ready": {"line": "ready"}});
    assert_eq!(create(&dev, "never", &spec, "--on-full queue").await.0, Some(0));
    for words in ["observer restart never --wait 2s", "observer resume never --wait 2s"] {
        let (code, _, beside) = dev.run(words);
        assert!(code == Some(5) && beside.contains("after 2s, not running"), "{words}: {code:?} {beside}");
    }
}

#[tokio::test]
async fn several_services_are_cordoned_and_drained_at_once() {
    let dev = Dev::start(3, 9).await;
    for name in ["one", "two", "three"] {
        assert_eq!(dev.run(&format!("observer create {name} --kind ticker --wait 20s")).0, Some(0));
    }
    let (code, said, _) = dev.run("service cordon service-1 service-2");
    assert!(code == Some(0) && said.lines().count() == 2, "{said}");
    assert!(
        said.lines().all(|line| line.starts_with("service service-") && line.contains("cordoned")),
        "{said}"
    );
    let (code, said, beside) = dev.run("service drain service-1 service-2 --wait 30s");
    let done = |name: &str| said.contains(&format!("service {name} is drained and stays cordoned\n"));
    assert!(code == Some(0) && done("service-1") && done("service-2"), "{said} {beside}");
    for name in ["one", "two", "three"] {
        assert_eq!(run_of(&dev, name).await.0, "service-3");
    }
    assert_eq!(dev.run("service uncordon service-1 service-2").0, Some(0));
    let (code, _, beside) = dev.run("service cordon service-1 servcie-2");
    assert!(code == Some(3) && beside.contains("did you mean `service-2`?"), "{code:?} {beside}");
}

#[tokio::test]
async fn a_rebalance_that_has_ended_does_not_block_the_next_one() {
    let dev = Dev::start(2, 20).await;
    assert_eq!(dev.run("service cordon service-2").0, Some(0));
    for number in 0..10 {
        dev.api
            .create(json!({"name": format!("o{number}"), "kind": "ticker", "spec": {"every": "1s"}}))
            .await;
    }
    dev.api.until_total("/v1/observers?health=running", 10).await;
    assert_eq!(dev.run("service uncordon service-2").0, Some(0));
    let (code, said, beside) = dev.run("rebalance apply --moves 2 --wait 9s");
    assert_eq!(code, Some(0), "{said}{beside}");
    // The limits of a plan hold for 10 s, and the next plan waits for 15 s, unless the moves are done before.
    assert!(
        beside.contains(
            "pool default is not even yet, 3 slots should move: `everwatch rebalance apply --pool default`"
        ),
        "{said}{beside}"
    );
    let (code, said, beside) = dev.run("rebalance apply --wait 9s");
    assert_eq!(code, Some(0), "{said}{beside}");
    assert!(beside.contains("pool default is even"), "{said}{beside}");
    for name in ["service-1", "service-2"] {
        dev.api.until_service(name, |it| it.held == 5).await;
    }
    let (code, said, beside) = dev.run("rebalance apply --wait 9s");
    let nothing = "no moves needed: the services are balanced\n";
    assert_eq!((code, beside.as_str()), (Some(0), nothing), "{said}");
}
