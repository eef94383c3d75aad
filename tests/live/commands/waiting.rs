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
        ("runs", json!({"argv": ["/bin/sleep", "600"]}), 0, "runs Processing (running)"),
        ("ends", json!({"argv": ["/bin/false"]}), 5, "not running"),
        ("waits", never_ready, 5, "waits is Processing (waiting) after 3s, not running"),
        ("completes", json!({"argv": ["/bin/true"]}), 0, "completes Completed"),
        ("missing", json!({"argv": ["/no/such/program"]}), 5, "missing is Processing (restarting) after 3s"),
        ("fails", json!({"argv": ["/bin/false"], "exit_codes": {"1": "failed"}}), 1, "fails is Failed"),
    ] {
        let (ended, said, beside) = create(&dev, name, &spec, "--wait 3s").await;
        assert!(
            ended == Some(code) && format!("{said}{beside}").contains(told),
            "{name}: {ended:?} {said}{beside}"
        );
    }
    assert_eq!(
        dev.run("observer wait runs --for health=running"),
        (Some(0), "runs Processing (running)\n".to_owned(), String::new())
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
    assert!(
        code == Some(4)
            && beside.contains("pool nopool has no services")
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
