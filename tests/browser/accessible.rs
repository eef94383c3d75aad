//! What every page owes to those who read by contrast, by name or by keyboard, in both themes.

use crate::browser::Browser;
use everwatch_tests::cluster::Cluster;
use serde_json::json;

const CHECK: &str = include_str!("accessible.js");

const VIEWS: [&str; 22] = [
    "#/",
    "#/observers",
    "#/observers/steady",
    "#/observers/loops?tab=versions",
    "#/observers/steady?tab=definition",
    "#/observers/steady?edit=form",
    "#/create",
    "#/create?as=yaml",
    "#/services",
    "#/services/a",
    "#/topology",
    "#/incidents",
    "#/events",
    "#/pools",
    "#/kinds",
    "#/kinds/exec",
    "#/namespaces",
    "#/doctor",
    "#/safe-mode",
    "#/parked",
    "#/roles",
    "#/audit",
];

#[tokio::test]
async fn every_page_has_contrast_names_and_one_heading_in_both_themes() {
    let mut cluster = Cluster::new("accessible");
    cluster.manager().await;
    cluster.service("a", 10).await;
    cluster.api.create(json!({"name": "steady", "kind": "ticker", "labels": {"team": "a"}})).await;
    let spec = json!({"argv": ["/bin/sh", "-c", "echo out; echo error: bad >&2; sleep 0.3; exit 3"]});
    let retry = json!({"kind": "fixed", "every": "300ms"});
    cluster.api.create(json!({"name": "loops", "kind": "exec", "spec": spec, "retry": retry})).await;
    cluster.api.create(json!({"name": "rests", "kind": "ticker", "desired": "paused"})).await;
    let page = Browser::open(&cluster.api.url).await;
    for theme in ["light", "dark"] {
        page.run(&format!("document.documentElement.dataset.theme = '{theme}'")).await;
        for view in VIEWS {
            page.view(view).await;
            page.until(&format!("{view} to be drawn"), "document.querySelector('main h1')").await;
            assert_eq!(page.run(CHECK).await, json!([]), "{view}, {theme}");
        }
    }
}
