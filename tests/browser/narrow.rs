//! The console on a narrow screen.

use crate::browser::Browser;
use everwatch_tests::cluster::Cluster;
use serde_json::{Value, json};

#[tokio::test]
async fn long_names_are_cut_and_events_name_their_service() {
    let mut cluster = Cluster::new("long-names");
    cluster.manager().await;
    cluster.service("a", 10).await;
    cluster.api.create(json!({"name": "long-name-".repeat(12), "kind": "ticker"})).await;
    let page = Browser::open(&format!("{}/#/topology", cluster.api.url)).await;
    page.narrow().await;
    page.until_text(".cell.named", "long-name-").await;
    page.until("a page that is not wider", "document.documentElement.scrollWidth <= innerWidth").await;
    page.view("#/events?type=service_registered").await;
    page.until_text("td .under a", "a").await;
    page.view("#/events?type=started").await;
    page.until_text("td.name", "long-name-").await;
    page.until(
        "a table that is not wider than the page",
        "(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth)(document.querySelector('.table'))",
    )
    .await;
    page.view(&format!("#/observers/{}", "long-name-".repeat(12))).await;
    page.until(
        "all tabs in sight",
        "(({ scrollWidth, clientWidth }) => scrollWidth <= clientWidth)(document.querySelector('.tabs'))",
    )
    .await;
}

#[tokio::test]
async fn a_row_has_one_button_and_the_reason_below_its_name() {
    let mut cluster = Cluster::new("narrow");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let api = cluster.api.clone();
    let _created: Value = api.done("PUT", "/v1/namespaces/team-a", Some(json!({})), 201).await;
    let spec = json!({"argv": ["/bin/sh", "-c", "exit 3"]});
    let retry = json!({"kind": "intervals", "delays": []});
    api.create(json!({"name": "bad", "kind": "exec", "spec": spec, "retry": retry})).await;
    api.until_status("bad", "Failed").await;
    let page = Browser::open(&format!("{}/#/parked", api.url)).await;
    page.narrow().await;
    // The cause is no column here.
    page.until_text("td.name .under", "exited with code 3").await;
    page.until("no column", "document.querySelector('th.text').getClientRects().length === 0").await;
    page.press("…").await;
    page.until_text("#dialog h2", "bad").await;
    page.press("Retry").await;
    page.until_text("#dialog h2", "Retry bad?").await;
    page.press("Cancel").await;
    page.view("#/namespaces").await;
    page.until_text("h1", "Namespaces").await;
    page.until("a button in each row", "document.querySelectorAll('td.acts .button').length === 2").await;
    page.until("low rows", "[...document.querySelectorAll('tbody tr')].every((it) => it.offsetHeight < 60)")
        .await;
}
