//! The console while services and managers fail.

use crate::browser::Browser;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::http::holder;
use fantoccini::Locator;
use nix::sys::signal::Signal;
use serde_json::json;

const OBSERVERS: usize = 48;

fn cells(service: &str) -> String {
    format!(
        "document.querySelectorAll('.box[data-name={service}]:not([data-state=lost]):not([data-state=gone]) .cell').length"
    )
}

#[tokio::test]
async fn the_cells_of_a_killed_service_move_to_the_others() {
    let mut cluster = Cluster::new("cells");
    cluster.manager().await;
    for name in ["amber", "birch", "cedar"] {
        cluster.service(name, 40).await;
    }
    let teams = ["risk", "ops"];
    for number in 0..OBSERVERS {
        let name = format!("{}-{:02}", ["prices", "orders", "weather", "ledger"][number % 4], number / 4 + 1);
        let labels = json!({"team": teams[number % 2]});
        cluster.api.create(json!({"name": name, "kind": "ticker", "labels": labels})).await;
    }
    let page = Browser::open(&cluster.api.url).await;
    page.until_text("h1", &format!("All {OBSERVERS} observers run")).await;
    page.view("#/topology").await;
    let [amber, birch, cedar] = ["amber", "birch", "cedar"].map(cells);
    page.until("all cells", &format!("{amber} > 0 && {amber} + {birch} + {cedar} === {OBSERVERS}")).await;
    let api = &cluster.api;
    let moved = api.observers().await.into_iter().find(|it| holder(it) == Some("amber")).unwrap();
    page.run(
        "window.flights = 0; const fly = Element.prototype.animate; \
        Element.prototype.animate = function (...it) { window.flights += 1; return fly.apply(this, it); }",
    )
    .await;
    page.run("window.before = Date.now() - 2000").await;
    cluster.kill("amber");
    page.until("all cells elsewhere", &format!("{birch} + {cedar} === {OBSERVERS}")).await;
    page.until("cells in flight", "window.flights > 0").await;
    page.until(
        "the box of the dead one to say so",
        "document.querySelector('.box[data-name=amber]:is([data-state=suspect], [data-state=lost])')",
    )
    .await;
    page.until("all to have landed", "document.getAnimations().length === 0").await;
    page.screenshot("topology").await;
    page.view(&format!("#/observers/{}?tab=runs", moved.id)).await;
    page.until("the run that was lost", "document.querySelector('.timeline li[data-lost]')").await;
    page.until_text(".timeline li[data-now]", "runs now").await;
    page.until_text(".timeline li[data-now]", "after a gap of ≤").await;
    page.click(Locator::Css("#tab-logs")).await;
    page.until_text(".logs", "tick").await;
    page.screenshot("observer").await;
    // The seconds around the failure, so that the picture shows it in detail.
    page.run("location.hash = `#/?since=${new Date(Date.now() - 20000).toISOString()}&until=${new Date().toISOString()}`").await;
    page.until("the incident in the picture", "document.querySelector('.chart a[href*=incidents]')").await;
    page.until("its gaps", "/gap (median|≤)/.test(document.querySelector('main').innerText)").await;
    page.until_text("main", "Service amber").await;
    page.until_text("main", "lost, and has not come back").await;
    page.screenshot("overview").await;
    page.until("its lane to say so", "document.querySelector('.chart').textContent.includes('lost')").await;
    // A span before the failure shows what the service held then.
    let span = "`#/?since=${new Date(window.before - 10000).toISOString()}&until=${new Date(window.before).toISOString()}`";
    page.run(&format!("location.hash = {span}")).await;
    let held = "/amber[1-9]\\d* at \\d/.test(document.querySelector('.chart').textContent)";
    page.until("the number of that time", held).await;
    page.view("#/observers").await;
    page.until("rows", &format!("document.querySelectorAll('tbody tr').length === {OBSERVERS}")).await;
    page.screenshot("observers").await;
}

#[tokio::test]
async fn a_lost_manager_is_told_and_its_return_goes_on_by_itself() {
    let mut cluster = Cluster::new("lost");
    cluster.manager().await;
    cluster.service("a", 10).await;
    cluster.api.create(json!({"name": "before", "kind": "ticker"})).await;
    let page = Browser::open(&format!("{}/#/observers", cluster.api.url)).await;
    page.until_text("tbody", "before").await;
    page.until_text("#pulse", "Live").await;
    cluster.kill("manager");
    page.until("the bar", "!document.querySelector('#lost').hidden").await;
    page.until_text("#lost", "Connection to the manager lost").await;
    page.screenshot("lost").await;
    cluster.manager().await;
    page.until("the bar to be gone", "document.querySelector('#lost').hidden").await;
    page.until_text("#pulse", "Live").await;
    cluster.api.create(json!({"name": "after", "kind": "ticker"})).await;
    page.until_text("tbody", "after").await;
}

#[tokio::test]
async fn a_manager_that_stands_still_is_told_and_its_old_answer_is_read_again_at_once() {
    let mut cluster = Cluster::new("still");
    cluster.manager().await;
    let page = Browser::open(&format!("{}/#/observers", cluster.api.url)).await;
    page.until_text("#pulse", "Live").await;
    cluster.signal("manager", Signal::SIGSTOP);
    page.until_text("#lost", "The manager does not answer").await;
    page.until(
        "the age of the data",
        "/([89]|1\\d) s ago/.test(document.querySelector('#lost-for').textContent)",
    )
    .await;
    page.screenshot("still").await;
    cluster.signal("manager", Signal::SIGCONT);
    page.until("the bar to be gone", "document.querySelector('#lost').hidden").await;
    // The pause after the answer that came late, in ms; a slow manager would be left alone for as long as it took.
    page.run(
        "window.pause = () => { const all = performance.getEntriesByType('resource').filter((it) => it.name.includes('/v1/observers?')); \
        const late = all.findLastIndex((it) => it.duration > 3000); \
        return late < 0 || late + 1 >= all.length ? null : all[late + 1].startTime - all[late].responseEnd; }",
    )
    .await;
    page.until("the next request", "window.pause() !== null").await;
    page.until("a short pause before it", "window.pause() < 2500").await;
    page.until_text("#pulse", "Live").await;
}

#[tokio::test]
async fn a_crash_loop_has_its_own_mark_in_every_view() {
    let mut cluster = Cluster::new("looping");
    cluster.manager().await;
    cluster.service("a", 10).await;
    cluster.api.create(json!({"name": "steady", "kind": "ticker"})).await;
    let spec = json!({"argv": ["/bin/sh", "-c", "sleep 0.3; exit 3"]});
    let retry = json!({"kind": "fixed", "every": "200ms"});
    cluster.api.create(json!({"name": "loops", "kind": "exec", "spec": spec, "retry": retry})).await;
    let page = Browser::open(&cluster.api.url).await;
    page.until_text("h1", "1 of 2 observers run").await;
    page.until_text(".hero", "1 restarting").await;
    page.until(
        "its tile",
        "document.querySelector('.legend a[data-status=restarting] strong').textContent === '1'",
    )
    .await;
    page.view("#/observers").await;
    page.until_text(".status[data-status=restarting]", "Restarting").await;
    // The console never shows this observer as running.
    page.run(
        "window.seen = new Set(); setInterval(() => { for (const row of document.querySelectorAll('tbody tr')) \
         if (row.innerText.includes('loops')) window.seen.add(row.querySelector('.status').dataset.status); }, 20)",
    )
    .await;
    let restarts = "document.querySelector('.status[data-status=restarting]')?.innerText.match(/\\d+/)";
    page.until("more than eight restarts", &format!("Number({restarts}) > 8 && window.seen.size > 0")).await;
    assert_eq!(page.run("return [...window.seen].join()").await, "restarting");
    page.click(Locator::Css(".chip[data-status=restarting]")).await;
    page.until(
        "the filter in rows and address",
        "document.querySelectorAll('tbody tr').length === 1 && location.hash.includes('health=restarting')",
    )
    .await;
    page.view("#/observers?reason_code=backing-off,recently-failed").await;
    page.until(
        "the filter by reason",
        "document.querySelectorAll('tbody tr').length === 1 && document.querySelector('select[name=reason_code]').value",
    )
    .await;
    page.view("#/topology").await;
    page.until("its cell", "document.querySelector('.box[data-name=a] .cell[data-status=restarting]')").await;
    page.until_text(".box[data-name=a] header", "2 / 10").await;
    page.screenshot("looping").await;
    page.view("#/doctor").await;
    page.until_text(".finding", "loops").await;
    page.press("Open loops").await;
    page.until_text("h1", "loops").await;
}
