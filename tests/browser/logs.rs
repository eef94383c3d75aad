//! The page of an observer shows its output live, even while its service is killed.

use crate::browser::Browser;
use everwatch_api::{Logs, Observer};
use everwatch_core::record::status::Status;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::http::holder;
use serde_json::json;

/// Whether the log has a text that matches.
fn said(pattern: &str) -> String {
    format!("/{pattern}/.test(document.querySelector('.logs').innerText)")
}

#[tokio::test]
async fn lines_come_live_and_go_on_after_a_kill() {
    let mut cluster = Cluster::new("said");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let script = "echo on stderr >&2; n=0; while :; do n=$((n+1)); echo line $n; sleep 0.3; done";
    let spec = json!({"argv": ["/bin/sh", "-c", script]});
    cluster.api.create(json!({"name": "talks", "kind": "exec", "spec": spec})).await;
    let page = Browser::open(&format!("{}/#/observers/talks", cluster.api.url)).await;
    page.until_text(".logs [data-stream=stderr]", "on stderr").await;
    page.until_text(".logs", "line 20").await;
    page.until(
        "the newest line to be in sight",
        "(({ scrollHeight, scrollTop, clientHeight }) => scrollHeight > clientHeight && scrollHeight - scrollTop - clientHeight < 40)(document.querySelector('.logs'))",
    )
    .await;
    cluster.service("b", 10).await;
    cluster.kill("a");
    page.until_text(".logs [data-stream=note]:last-of-type, .logs", "moved to b").await;
    page.until(
        "lines of b after that",
        "document.querySelector('.logs').innerText.split('moved to b')[1]?.includes('line 3')",
    )
    .await;
    page.until_text(".logs", "ended: its service was lost · moved to b (epoch").await;
    page.screenshot("logs").await;
    // The page of another observer shows only that observer's lines.
    cluster.api.create(json!({"name": "ticks", "kind": "ticker"})).await;
    page.view("#/observers/ticks").await;
    page.until_text(".logs", "tick 2").await;
    page.until("no line of the first", "!document.querySelector('.logs').innerText.includes('line')").await;
    let streams =
        "performance.getEntriesByType('resource').filter((it) => it.name.includes('/logs?')).length <= 2";
    page.until("one stream for each", streams).await;
    page.view("#/topology").await;
    page.until_text("[data-key=moves] tbody", "talks").await;
}

#[tokio::test]
async fn loaded_lines_say_where_another_run_began() {
    let mut cluster = Cluster::new("another-run");
    cluster.manager().await;
    cluster.service("a", 10).await;
    cluster.api.create(json!({"name": "ticks", "kind": "ticker", "spec": {"every": "100ms"}})).await;
    let has = |run: &'static str| move |it: &Logs| it.items.iter().any(|line| line.id.starts_with(run));
    let _first: Logs = cluster.api.until_read("/v1/observers/ticks/logs", has("1.0.")).await;
    let (status, answer) = cluster.api.call("POST", "/v1/observers/ticks/restart", None).await;
    assert_eq!(status, 202, "{answer}");
    let _second: Logs = cluster.api.until_read("/v1/observers/ticks/logs", has("2.0.")).await;
    let page = Browser::open(&format!("{}/#/observers/ticks", cluster.api.url)).await;
    page.until_text(".logs [data-stream=note]", "runs again on a (epoch 2.0)").await;
}

#[tokio::test]
async fn a_pause_and_a_run_without_lines_are_told_as_they_were() {
    let mut cluster = Cluster::new("silent-run");
    cluster.manager().await;
    cluster.service("a", 10).await;
    // The second run writes nothing.
    let mark = cluster.folder("marks").join("second");
    let script = format!(
        "if [ -e {0}.1 ] && ! [ -e {0}.2 ]; then touch {0}.2; exec sleep 600; fi; touch {0}.1; n=0; while :; do n=$((n+1)); echo line $n; sleep 0.2; done",
        mark.display()
    );
    let spec = json!({"argv": ["/bin/sh", "-c", script]});
    cluster.api.create(json!({"name": "talks", "kind": "exec", "spec": spec})).await;
    let page = Browser::open(&format!("{}/#/observers/talks", cluster.api.url)).await;
    page.until_text(".logs", "line 2").await;
    cluster.service("b", 10).await;
    cluster.kill("a");
    let on = |it: &Observer, service| it.status == Status::Processing && holder(it) == Some(service);
    cluster.api.until_observer("talks", |it| on(it, "b")).await;
    page.until("the second run", "document.querySelector('select[aria-label=Run]')").await;
    let (status, answer) = cluster.api.call("POST", "/v1/observers/talks/pause", None).await;
    assert_eq!(status, 202, "{answer}");
    page.until_text(".logs", "paused").await;
    cluster.service("a", 10).await;
    assert_eq!(cluster.terminate("b"), Some(0));
    let (status, answer) = cluster.api.call("POST", "/v1/observers/talks/resume", None).await;
    assert_eq!(status, 202, "{answer}");
    // The broker may have offered the message to a dying service in between: then the second run is 1.2.
    let first = r"run 1\.0 ended: its service was lost · moved to b \(epoch 1\.[1-9]\)";
    page.until("the end of the first run", &said(first)).await;
    page.until("the pause", &said(r"run 1\.[1-9] ended: stopped · started on a \(epoch 2\.0\)")).await;
    page.until("no standing note", "!document.querySelector('.logs').innerText.includes('is paused')").await;
}

#[tokio::test]
async fn an_earlier_run_is_chosen_and_read_from_the_service_that_ran_it() {
    let mut cluster = Cluster::new("chosen-run");
    cluster.manager().await;
    // On hosts of their own, services share no folder.
    let folders = ["lines-a", "lines-b"].map(|name| cluster.folder(name).display().to_string());
    let keeps_lines_in = |cluster: &mut Cluster, folder: &String| {
        cluster.extra = vec![("EVERWATCH_SERVICE__LOG_DIR".to_owned(), folder.clone())];
    };
    keeps_lines_in(&mut cluster, &folders[0]);
    cluster.service("a", 10).await;
    let spec = json!({"argv": ["/bin/sh", "-c", "echo \"begun as $$\"; exec sleep 600"]});
    cluster.api.create(json!({"name": "talks", "kind": "exec", "spec": spec})).await;
    let has_begun = |it: &Logs| !it.items.is_empty();
    let logs = cluster.api.until_read("/v1/observers/talks/logs", has_begun).await;
    let first = logs.items[0].text.clone();
    keeps_lines_in(&mut cluster, &folders[1]);
    cluster.service("b", 10).await;
    cluster.kill("a");
    cluster
        .api
        .until_observer("talks", |it| it.status == Status::Processing && holder(it) == Some("b"))
        .await;
    let page = Browser::open(&format!("{}/#/observers/talks", cluster.api.url)).await;
    page.until_text(".logs", "begun as").await;
    let lacks = format!("!document.querySelector('.logs').innerText.includes('{first}')");
    page.until("only lines of the second run", &lacks).await;
    let choose = |run: &str| {
        format!(
            "const it = document.querySelector('select[aria-label=Run]'); it.value = '{run}'; \
             it.dispatchEvent(new Event('change', {{ bubbles: true }}))"
        )
    };
    page.until("the choice of a run", "document.querySelector('select[aria-label=Run]')").await;
    page.run(&choose("1.0")).await;
    page.until_text(".logs", "no lines of run 1.0 on service a are left").await;
    // The next process of the service has the lines that its former process has kept.
    keeps_lines_in(&mut cluster, &folders[0]);
    cluster.service("a", 10).await;
    page.run(&choose("")).await;
    page.until_text(".logs", "begun as").await;
    // The manager learns of the process a moment later, and the page reads the lines once for each choice.
    let _kept: Logs = cluster.api.until_read("/v1/observers/talks/logs?run=1.0", has_begun).await;
    page.run(&choose("1.0")).await;
    page.until_text(".logs", &first).await;
    page.screenshot("earlier-run").await;
}
