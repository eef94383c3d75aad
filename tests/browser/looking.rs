//! A user looks: the failover timeline, an incident, the palette, keys, the switch between UTC and local time.

use crate::browser::Browser;
use everwatch_core::record::health::Health;
use everwatch_tests::cluster::Cluster;
use fantoccini::Locator;
use serde_json::{Value, json};

/// The palette finds nothing in fields of the page, thus the test presses keys on the page itself.
fn key(key: &str, control: bool) -> String {
    format!(
        "document.body.dispatchEvent(new KeyboardEvent('keydown', {{ key: '{key}', ctrlKey: {control}, bubbles: true, cancelable: true }}))"
    )
}

/// Types a text into the palette, waits until it selects an entry with this title, and opens it.
async fn open_from_palette(page: &Browser, text: &str, title: &str) {
    page.run(&key("k", true)).await;
    page.write("#palette input", text).await;
    page.until_text("#found li[aria-selected=true]", title).await;
    page.write("#palette input", "\u{e007}").await;
}

#[tokio::test]
async fn the_timeline_shows_a_kill_and_leads_to_its_incident() {
    let mut cluster = Cluster::new("lanes");
    cluster.manager().await;
    // Each holds four observers, and has room for those of the other one afterward.
    for name in ["amber", "birch"] {
        cluster.service(name, 4).await;
    }
    for number in 0..8 {
        let body = json!({"name": format!("o{number}"), "kind": "ticker", "spec": {"every": "1s"}});
        cluster.api.create(body).await;
        cluster.api.until_status(&format!("o{number}"), "Processing").await;
    }
    for name in ["amber", "birch"] {
        let larger = json!({"capacity": 20});
        cluster.api.done::<Value>("PATCH", &format!("/v1/services/{name}"), Some(larger), 202).await;
    }
    let page = Browser::open(&cluster.api.url).await;
    page.until_text("h1", "All 8 observers run").await;
    page.until_text(".hero", "any service may fail and every observer keeps a slot").await;
    page.until("both lanes", "document.querySelectorAll('.chart .lane-name').length === 2").await;
    page.until("what they hold", "document.querySelectorAll('.chart .held').length >= 2").await;
    cluster.kill("amber");
    // The picture follows without a reload.
    page.until("the incident in the picture", "document.querySelector('.chart a[href*=incidents]')").await;
    page.until("the arc to the other lane", "document.querySelector('.chart .arc')").await;
    page.until_text(".incident-list", "amber lost").await;
    page.until_text("h1", "All 8 observers run").await;
    page.run("document.querySelector('.chart a[href*=incidents]').focus()").await;
    page.until("its gaps", "/gap (median|≤)/.test(document.querySelector('.lane-card').innerText)").await;
    // After a death, a gap is an upper bound.
    page.until("its bound", "/(gap|longest) ≤/.test(document.querySelector('.lane-card').innerText)").await;
    page.until_text(".lane-card", "last sign of life").await;
    page.screenshot("timeline").await;
    // Who sees no drawing reads a table.
    page.run("document.querySelector('.lanes details').open = true").await;
    page.until_text(".lanes details", "service lost").await;
    page.click(Locator::Css(".incident-list a.title")).await;
    page.until_text("h1", "amber lost").await;
    page.until("its bound", "/(gap|longest) ≤/.test(document.querySelector('.incident-line').innerText)")
        .await;
    page.until(
        "what the sign means",
        "document.querySelector('.facts.big .hinted')?.title.startsWith('upper bound')",
    )
    .await;
    page.until_text(".flow", "birch").await;
    page.until("who moved", "document.querySelectorAll('.panels tbody tr').length > 0").await;
    // An address that was copied while the incident was open has another fraction of the second.
    page.run(
        "window.copied = location.hash.replace(/[^/]+$/, (since) => \
        encodeURIComponent(new Date(Math.floor(Date.parse(decodeURIComponent(since)) / 1000) * 1000).toISOString()))",
    )
    .await;
    page.view("#/incidents").await;
    page.until_text(".incident-list", "amber lost").await;
    page.run("location.hash = window.copied").await;
    page.until_text("h1", "amber lost").await;
    page.view("#/events?type=started").await;
    page.until("its gaps", "document.querySelectorAll('tbody td.n .hinted').length === 4").await;
    page.view("#/incidents").await;
    page.until_text(".incident-list", "amber lost").await;
    page.run(&key("j", false)).await;
    page.until("the incident to have the focus", "document.activeElement.closest('.incident-list > li')")
        .await;
    page.view("#/").await;
    page.click(Locator::Css(".legend a[data-status=running]")).await;
    page.until("the list of those", "location.hash === '#/observers?health=running'").await;
    page.until("its rows", "document.querySelectorAll('tbody tr').length === 8").await;
}

/// Two observers on one service, and the overview that counts them.
async fn orders(test: &str) -> (Cluster, Browser) {
    let mut cluster = Cluster::new(test);
    cluster.manager().await;
    cluster.service("a", 10).await;
    for name in ["orders-1", "orders-2"] {
        cluster.api.create(json!({"name": name, "kind": "ticker"})).await;
    }
    let page = Browser::open(&cluster.api.url).await;
    page.until("the counts", "document.querySelector('#nav a[href=\"#/observers\"] b')?.textContent === '2'")
        .await;
    (cluster, page)
}

#[tokio::test]
async fn keys_and_the_palette_lead_to_pages_and_things() {
    let (_cluster, page) = orders("keys").await;
    page.run(&key("?", false)).await;
    page.until_text("#dialog", "g o").await;
    page.press("Close").await;
    page.view("#/observers?q=oders").await;
    page.until_text("main", "Did you mean orders-1 or orders-2?").await;
    page.run("document.activeElement.blur()").await;
    page.run(&key("g", false)).await;
    page.run(&key("o", false)).await;
    page.until("the list", "location.hash === '#/observers'").await;
    page.until("two rows", "document.querySelectorAll('tbody tr').length === 2").await;
    page.run(&key("j", false)).await;
    page.run(&key("j", false)).await;
    page.run(&key("x", false)).await;
    page.until_text(".selection", "1 selected").await;
    page.run(&key("o", false)).await;
    page.until_text("h1", "orders-2").await;

    open_from_palette(&page, "orders-1", "orders-1").await;
    page.until_text("h1", "orders-1").await;
    open_from_palette(&page, "safe", "Safe mode").await;
    page.until_text("h1", "Safe mode").await;
    // A letter is missing, two are swapped, and one is too many.
    for (typed, found) in [("oders-2", "orders-2"), ("srevices", "Services"), ("ordderrs-1", "")] {
        page.run(&key("k", true)).await;
        page.write("#palette input", typed).await;
        if found.is_empty() {
            page.until_text("#found", "No results for “ordderrs-1”").await;
            page.run("document.querySelector('#palette').close()").await;
        } else {
            page.until_text("#found li[aria-selected=true]", found).await;
            page.write("#palette input", "\u{e007}").await;
            page.until_text("h1", found).await;
        }
    }
    page.run(&key("k", true)).await;
    page.write("#palette input", "docs").await;
    page.until_text("#found li[aria-selected=true]", "API documentation").await;
    page.run("document.querySelector('#palette').close()").await;
    page.run(&key("k", true)).await;
    page.write("#palette input", "drain").await;
    page.until_text("#found li[aria-selected=true]", "Drain a").await;
    page.run("document.querySelector('#palette').close()").await;
    open_from_palette(&page, "drain, cor", "Drain, cordon").await;
    page.until_text("h1", "Services").await;
}

#[tokio::test]
async fn the_palette_acts_on_a_name_on_what_is_open_and_on_a_service() {
    let (cluster, page) = orders("palette").await;
    open_from_palette(&page, "pause orders-2", "Pause orders-2").await;
    page.press("Pause orders-2").await;
    cluster.api.until_status("orders-2", "Paused").await;
    page.run(&key("k", true)).await;
    page.write("#palette input", "pause orders-2").await;
    page.until_text("#found [aria-disabled=true]", "not possible: it is paused").await;
    page.run("document.querySelector('#palette').close()").await;
    page.view("#/observers/orders-2").await;
    page.until_text("h1", "orders-2").await;
    open_from_palette(&page, "resume", "Resume orders-2").await;
    cluster.api.until_status("orders-2", "Processing").await;
    open_from_palette(&page, "cordon a", "Cordon a").await;
    page.press("Cordon a").await;
    cluster.api.until_service("a", |it| it.cordoned).await;
    open_from_palette(&page, "create ticker", "New observer of kind ticker").await;
    page.until("its form", "document.querySelector('#new-kind')?.value === 'ticker'").await;

    page.view("#/observers/orders-1").await;
    page.until_text("h1", "orders-1").await;
    page.press("UTC").await;
    page.until("times in UTC", "document.querySelector('main time')?.title.endsWith('UTC')").await;
    page.until("a page without old words", "!/Processing|OnDeleting/.test(document.body.innerText)").await;
}

#[tokio::test]
async fn the_list_is_sorted_by_what_needs_attention() {
    let mut cluster = Cluster::new("sorting");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let crash = json!({"argv": ["/bin/sh", "-c", "exit 1"]});
    for (name, kind, spec) in
        [("one", "ticker", json!({})), ("two", "exec", crash), ("three", "ticker", json!({}))]
    {
        cluster.api.create(json!({"name": name, "kind": kind, "spec": spec})).await;
    }
    let (status, answer) = cluster.api.call("POST", "/v1/observers/three/pause", None).await;
    assert_eq!(status, 202, "{answer}");
    cluster.api.until_status("three", "Paused").await;
    cluster.api.until_observer("two", |it| it.health == Some(Health::Restarting)).await;
    let page = Browser::open(&format!("{}/#/observers", cluster.api.url)).await;
    let names = "[...document.querySelectorAll('tbody td.name a')].map((it) => it.textContent).join()";
    page.until("the names in order", &format!("{names} === 'one,three,two'")).await;
    page.click(Locator::Css("[aria-label='Sort by health']")).await;
    page.until("the problem first", &format!("{names} === 'two,one,three'")).await;
    page.click(Locator::Css("[aria-label='Sort by health']")).await;
    page.until("the problem last", &format!("{names} === 'three,one,two'")).await;
    let head = "document.querySelector('th[aria-sort=descending]')?.textContent";
    page.until("a head that says so", &format!("{head} === 'Health ↓'")).await;
    // What has no service stays last in both directions.
    for _ in 0..2 {
        page.click(Locator::Css("[aria-label='Sort by service']")).await;
        page.until("the paused one last", &format!("{names}.endsWith(',three')")).await;
    }
    // A bookmark may name a page that no longer exists.
    page.view("#/observers?sort=health&page=9").await;
    page.until("the last page there is", &format!("{names} === 'two,one,three'")).await;
    page.until_text(".pager", "1–3 of 3").await;
}
