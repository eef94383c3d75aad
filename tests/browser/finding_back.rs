//! A user finds back: by the address of an observer, to the place on a page, by keyboard, and by the counts of the
//! navigation.

use crate::browser::Browser;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::http::holder;
use fantoccini::Locator;
use serde_json::{Value, json};

#[tokio::test]
async fn the_address_of_an_observer_has_its_name_until_it_is_deleted() {
    let mut cluster = Cluster::new("addresses");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let api = cluster.api.clone();
    let _created: Value = api.done("PUT", "/v1/namespaces/team-a", Some(json!({})), 201).await;
    api.create(json!({"name": "clock", "kind": "ticker", "namespace": "team-a"})).await;
    let page = Browser::open(&format!("{}/#/observers", api.url)).await;
    page.press("team-a/clock").await;
    page.until_text("h1", "clock").await;
    page.until("its address", "location.hash === '#/observers/team-a/clock'").await;
    page.until("its title", "document.title.startsWith('clock · ')").await;
    let id = api.until_observer("clock?namespace=team-a", |it| it.namespace == "team-a").await.id;
    // An id leads to the same page, and the address keeps the rest.
    page.view(&format!("#/observers/{id}?tab=runs")).await;
    page.until("the better address", "location.hash === '#/observers/team-a/clock?tab=runs'").await;
    page.press("Delete").await;
    page.confirm().await;
    page.until_text(".head .status", "Deleted").await;
    page.until("the address of a deleted one", &format!("location.hash.startsWith('#/observers/{id}')"))
        .await;
    page.view("#/observers/team-a/nothing").await;
    page.until_text("main", "Find observers like nothing").await;
}

#[tokio::test]
async fn going_back_restores_the_place_and_the_form_takes_the_keys() {
    let mut cluster = Cluster::new("places");
    cluster.manager().await;
    cluster.service("a", 60).await;
    for number in 0..50 {
        cluster.api.create(json!({"name": format!("o-{number:02}"), "kind": "ticker"})).await;
    }
    let page = Browser::open(&format!("{}/#/observers", cluster.api.url)).await;
    page.until("fifty rows", "document.querySelectorAll('tbody tr').length === 50").await;
    page.run("scrollTo(0, 700)").await;
    page.press("o-30").await;
    page.until_text("h1", "o-30").await;
    page.until("the start of its page", "scrollY === 0").await;
    page.run("history.back()").await;
    page.until_text("h1", "Observers").await;
    page.until("the place in the list", "Math.abs(scrollY - 700) < 20").await;
    page.until("the row that was opened", "document.activeElement.textContent === 'o-30'").await;
    // The field of a filter follows the address, also while it has the focus.
    page.write("#search", "o-1").await;
    page.until("the filtered list", "location.hash.includes('q=o-1')").await;
    page.view("#/observers?kind=ticker").await;
    page.until("an empty field", "document.querySelector('#search').value === ''").await;
    page.until("all rows", "document.querySelectorAll('tbody tr').length === 50").await;
    page.write("body", "c").await;
    page.until("the focus in the form", "document.activeElement.id === 'new-name'").await;
    page.write("#new-name", "gs").await;
    page.until("the same page", "location.hash === '#/create'").await;
    // The draft waits for the user, also after a reload.
    page.view("#/topology").await;
    page.until_text("h1", "Topology").await;
    page.view("#/create").await;
    page.reopened("document.querySelector('#new-name')?.value === 'gs'").await;
    page.press("Discard the draft").await;
    page.until("an empty form", "document.querySelector('#new-name').value === ''").await;
}

#[tokio::test]
async fn handovers_are_listed_and_only_losses_are_counted() {
    let mut cluster = Cluster::new("counted");
    cluster.manager().await;
    for name in ["amber", "birch"] {
        cluster.service(name, 10).await;
        // A move needs a service whose heartbeat says that it has room.
        cluster.api.until_service(name, |it| it.loop_lag_ms.is_some()).await;
    }
    cluster.api.create(json!({"name": "one", "kind": "ticker"})).await;
    cluster.api.until_status("one", "Processing").await;
    let page = Browser::open(&format!("{}/#/observers/one", cluster.api.url)).await;
    page.press("Move").await;
    page.confirm().await;
    page.view("#/incidents?show=handovers").await;
    page.until_text(".incident-list", "handed over (move) · 1 observer moved").await;
    let count = "(document.querySelector('#nav a[href=\"#/incidents\"] b')?.textContent ?? '0') === document.querySelector('.head .total').textContent";
    page.until(
        "no incident",
        &format!("{count} && document.querySelector('.head .total').textContent === '0'"),
    )
    .await;
    page.view("#/topology").await;
    page.until("its cell", "document.querySelector('a.cell[tabindex=\"0\"]')").await;
    let one = cluster.api.observer("one").await;
    cluster.kill(holder(&one).unwrap());
    page.view("#/incidents").await;
    page.until_text(".incident-list", "lost").await;
    page.until("the same count", count).await;
}

#[tokio::test]
async fn a_handover_to_nowhere_becomes_an_incident() {
    let mut cluster = Cluster::new("to-nowhere");
    cluster.manager().await;
    cluster.service("amber", 10).await;
    cluster.api.create(json!({"name": "one", "kind": "ticker", "on_full": "queue"})).await;
    cluster.api.until_status("one", "Processing").await;
    let page = Browser::open(&format!("{}/#/incidents?show=handovers", cluster.api.url)).await;
    page.until_text(".empty", "No handovers").await;
    assert_eq!(cluster.terminate("amber"), Some(0));
    page.until_text(".incident-list", "amber").await;
    page.view("#/incidents").await;
    page.until_text(".empty", "No incidents").await;
    page.until_text(".incident-list", "1 runs nowhere yet").await;
    page.click(Locator::Css(".incident-list a.title")).await;
    page.until_text("[data-key=moves] h3", "1 runs nowhere yet").await;
    page.until_text("[data-key=moves] p a", "one").await;
    page.until_text("[data-key=flow]", "No service has started any of them yet.").await;
}

#[tokio::test]
async fn a_young_deployment_fills_the_timeline_of_a_day() {
    let mut cluster = Cluster::new("young");
    cluster.manager().await;
    cluster.service("a", 10).await;
    cluster.api.create(json!({"name": "one", "kind": "ticker"})).await;
    cluster.api.until_status("one", "Processing").await;
    let page = Browser::open(&format!("{}/#/?span=24h", cluster.api.url)).await;
    page.until(
        "the words at the start",
        "document.querySelector('svg.chart')?.textContent.includes('since start')",
    )
    .await;
    // The mark of its start is far from the end of the lane, and within the drawing.
    let far = "(() => { const chart = document.querySelector('svg.chart')?.getBoundingClientRect(), mark = document.querySelector('.chart .glyph')?.getBoundingClientRect();
        return mark && mark.left > chart.left && mark.right < chart.left + chart.width * 0.95; })()";
    page.until("the mark at the start", far).await;
    page.until(
        "requests for the part that is stored",
        "performance.getEntriesByType('resource').some((it) => /timeline\\?since=20\\d\\d-/.test(it.name))",
    )
    .await;
}

#[tokio::test]
async fn dragging_over_the_timeline_shows_a_part_of_it() {
    let mut cluster = Cluster::new("dragging");
    cluster.manager().await;
    cluster.service("a", 10).await;
    cluster.api.create(json!({"name": "one", "kind": "ticker"})).await;
    let page = Browser::open(&cluster.api.url).await;
    page.until("the lane", "document.querySelector('.chart .held')").await;
    let points = |steps: &str| {
        format!(
            "const it = document.querySelector('svg.chart'), box = it.getBoundingClientRect();
             for (const [type, share] of {steps})
               it.dispatchEvent(new PointerEvent(type, {{ clientX: box.left + box.width * share, clientY: box.top + 20, button: 0, bubbles: true }}))"
        )
    };
    page.run(&points("[['pointermove', 0.9]]")).await;
    page.until("the card of the lane", "document.querySelector('.lane-card')").await;
    page.run(&points("[['pointerdown', 0.4], ['pointermove', 0.6], ['pointerup', 0.6]]")).await;
    page.until("the span in the address", "/since=.*&until=/.test(location.hash)").await;
    page.until_text("[aria-label='Span of time'] [aria-pressed=true]", "Range").await;
    page.until("no card", "!document.querySelector('.lane-card')").await;
}

#[tokio::test]
async fn a_filter_that_was_typed_before_the_user_left_changes_no_other_page() {
    let mut cluster = Cluster::new("leaving");
    cluster.manager().await;
    let page = Browser::open(&cluster.api.url).await;
    for (left, field) in [("#/observers", "q"), ("#/observers", "label"), ("#/events", "observer")] {
        page.view(left).await;
        page.until("the filter", &format!("document.querySelector('main [name={field}]')")).await;
        // Half a second is longer than any page waits for the next letter.
        page.run(&format!(
            "const it = document.querySelector('main [name={field}]');
             it.value = 'a=b'; it.dispatchEvent(new Event('input', {{ bubbles: true }}));
             location.hash = '#/kinds'; window.later = performance.now() + 500"
        ))
        .await;
        page.until_text("h1", "Kinds").await;
        page.until("the time to have passed", "performance.now() > window.later").await;
        let hash = page.run("return location.hash").await;
        assert_eq!(hash, "#/kinds", "{left} {field}");
    }
}
