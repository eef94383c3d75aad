//! A large fleet in the console: how long the list takes to appear and to be filtered, and whether the page
//! stays responsive while many observers change; then how long the overview with the last 24 hours takes. Prints the measured values. EVERWATCH_CONSOLE_OBSERVERS: the
//! number of observers (default 1,000); EVERWATCH_CONSOLE_CHANGES: how many restart each second (default 20).

use crate::browser::Browser;
use everwatch_api::Stats;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::http::Api;
use everwatch_tests::wait::wait_within;
use serde_json::{Value, json};
use std::time::{Duration, Instant};

/// How many observers one batch creates.
const BATCH: usize = 5000;
/// How many seconds observers are restarted for.
const CHANGING: usize = 10;
const LOOKS: usize = 10;
/// How long the whole fleet may take to run.
const STARTING: Duration = Duration::from_secs(300);

fn number(variable: &str, default: usize) -> usize {
    std::env::var(variable).map_or(default, |text| text.parse().unwrap())
}

fn name(number: usize) -> String {
    format!("o-{number:05}")
}

async fn made(api: &Api, count: usize) {
    let wish = |number: usize| {
        let observer = json!({"name": name(number), "kind": "ticker", "spec": {"every": "1h"}});
        json!({"op": "create", "observer": observer})
    };
    for first in (0..count).step_by(BATCH) {
        let wishes: Vec<Value> = (first..count.min(first + BATCH)).map(wish).collect();
        let (status, answer) = api.call("POST", "/v1/observers:batch", Some(wishes.into())).await;
        assert_eq!(status, 200, "{answer}");
    }
}

async fn all_run(api: &Api, count: usize) {
    wait_within(STARTING, "all to run", || async {
        let running = api.read::<Stats>("/v1/stats").await.observers["Processing"];
        if running == count as u64 { Ok(()) } else { Err(format!("{running} of {count} run")) }
    })
    .await;
}

/// Types into the name filter. Returns after how many ms the list shows only the one observer that matches.
const FILTER: &str = r#"
    const [text, done] = arguments, begun = performance.now(), field = document.querySelector('#search');
    field.value = text;
    field.dispatchEvent(new Event('input', { bubbles: true }));
    const look = () => {
      const rows = document.querySelectorAll('tbody tr');
      if (rows.length === 1 && rows[0].innerText.includes(text)) done(performance.now() - begun);
      else requestAnimationFrame(look);
    };
    look();"#;

/// Records the longest time between two frames from now on.
const WATCH: &str = r"
    let last = performance.now();
    window.longestFrame = 0;
    const frame = (now) => { window.longestFrame = Math.max(window.longestFrame, now - last); last = now; requestAnimationFrame(frame); };
    requestAnimationFrame(frame);";

/// Restarts this many observers each second. Returns the rate that was achieved.
async fn changing(api: &Api, count: usize, changes: usize) -> f64 {
    let begun = Instant::now();
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    for round in 0..CHANGING {
        ticks.tick().await;
        let wish = |at: usize| json!({"op": "restart", "id": name((round * changes + at) % count)});
        let wishes: Vec<Value> = (0..changes).map(wish).collect();
        let (status, answer) = api.call("POST", "/v1/observers:batch", Some(wishes.into())).await;
        assert_eq!(status, 200, "{answer}");
    }
    let all = u32::try_from(CHANGING * changes).unwrap();
    f64::from(all) / begun.elapsed().as_secs_f64()
}

/// A user filters for one observer after another.
async fn used(page: &Browser, count: usize) -> Vec<f64> {
    let mut all = Vec::new();
    for at in 0..LOOKS {
        all.push(page.ask(FILTER, &name(at * count / LOOKS)).await);
    }
    all
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "the figures are the point")]
async fn a_large_fleet_is_seen_and_filtered_while_it_changes() {
    let count = number("EVERWATCH_CONSOLE_OBSERVERS", 1000);
    let changes = number("EVERWATCH_CONSOLE_CHANGES", 20);
    let mut cluster = Cluster::new("many");
    cluster.manager().await;
    for name in ["a", "b"] {
        cluster.service(name, u32::try_from(count * 3 / 5).unwrap()).await;
    }
    made(&cluster.api, count).await;
    all_run(&cluster.api, count).await;
    let page = Browser::open(&format!("{}/#/observers", cluster.api.url)).await;
    page.until("the first page", "document.querySelectorAll('tbody tr').length === 100").await;
    // Measures a reload, because the browser itself is warm now.
    let seen = page.reopened("document.querySelectorAll('tbody tr').length === 100").await;
    let filtered = page.ask(FILTER, &name(count - 1)).await;
    page.view("#/topology").await;
    page.until("the topology", "document.querySelectorAll('.box .cell').length >= 1000").await;
    page.view("#/observers").await;
    page.until("the list again", "document.querySelectorAll('tbody tr').length === 100").await;

    page.run(WATCH).await;
    let (rate, while_changing) = tokio::join!(changing(&cluster.api, count, changes), used(&page, count));
    let frame = page.run("return window.longestFrame").await.as_f64().unwrap();
    println!(
        "MEASURED {count} observers: the list is seen after {seen:.0} ms, filtered after {filtered:.0} ms; \
         while {rate:.0} a second begin anew, filtered after {while_changing:.0?} ms, longest frame {frame:.0} ms"
    );
    all_run(&cluster.api, count).await;
    page.screenshot("many").await;

    // All restarts, and a service whose observers all move, are in the last 24 hours.
    cluster.kill("b");
    cluster.service("c", u32::try_from(count * 3 / 5).unwrap()).await;
    all_run(&cluster.api, count).await;
    page.view("#/?span=24h").await;
    page.until("the incident", "document.querySelector('.incident-list')?.innerText.includes('b lost')")
        .await;
    let drawn = page.reopened("document.querySelectorAll('.chart .lane-name').length === 3").await;
    println!(
        "MEASURED {count} observers: the overview with the timeline of 24 h is seen after {drawn:.0} ms"
    );
    page.screenshot("many-timeline").await;
}
