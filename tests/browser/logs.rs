//! The page of an observer shows its output live, even while its service is killed.

use crate::browser::Browser;
use everwatch_tests::cluster::Cluster;
use serde_json::json;

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
    page.until_text(".logs [data-stream=note]:last-of-type, .logs", "moved to service b").await;
    page.until(
        "lines of b after that",
        "document.querySelector('.logs').innerText.split('moved to service b')[1]?.includes('line 3')",
    )
    .await;
    page.screenshot("logs").await;
    // The page of another observer shows only that observer's lines.
    cluster.api.create(json!({"name": "ticks", "kind": "ticker"})).await;
    page.view("#/observers/ticks").await;
    page.until_text(".logs", "tick 2").await;
    page.until("no line of the first", "!document.querySelector('.logs').innerText.includes('line')").await;
    let streams =
        "performance.getEntriesByType('resource').filter((it) => it.name.includes('/logs?')).length <= 2";
    page.until("one stream for each", streams).await;
}
