//! What every page owes to those who read by contrast, by name or by keyboard, in both themes: the rules of axe-core,
//! and checks that axe-core does not make.

use crate::browser::Browser;
use everwatch_api::{Batch, Limit, Rollout};
use everwatch_tests::cluster::{Cluster, from_environment};
use serde_json::{Value, json};

/// Contrast below drawings and on unusual backgrounds, one heading of the first level, and actions that only a pointer reaches.
const CHECK: &str = include_str!("accessible.js");

/// Runs axe-core. Calls back with a line for each element that violates a rule.
const AXE: &str = r"
    const done = arguments[arguments.length - 1];
    const values = ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'best-practice'];
    const lines = ({ violations }) => violations.flatMap((rule) => rule.nodes.map((it) =>
      `${rule.id} (${rule.help}): ${it.target.join(' ')} ${it.html.slice(0, 120)}: ${it.any.concat(it.all, it.none).map((one) => one.message).join('; ')}`));
    axe.run(document, { runOnly: { type: 'tag', values }, resultTypes: ['violations'] })
      .then((found) => done(lines(found)), (error) => done([`axe-core failed: ${error}`]));";

const VIEWS: [&str; 34] = [
    "#/",
    "#/?group=pool",
    "#/observers",
    "#/observers?q=nothing-has-this-name",
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
    "#/incidents?show=handovers",
    "#/events",
    "#/events?observer=stead&span=1h",
    "#/pools",
    "#/pools/default",
    "#/kinds",
    "#/kinds/exec",
    "#/limits",
    "#/limits/places",
    "#/rates",
    "#/batches/jobs",
    "#/rollouts/slower",
    "#/rollouts",
    "#/namespaces",
    "#/doctor",
    "#/safe-mode",
    "#/parked",
    "#/tokens",
    "#/roles",
    "#/audit",
];

/// What opens over a page: how, and the element that then shows.
const OVERLAYS: [(&str, &str); 3] = [
    ("document.getElementById('find').click()", "#found [role=option]"),
    ("document.getElementById('help').click()", "#dialog .keys"),
    (
        "[...document.querySelectorAll('main button')].find((it) => it.textContent === 'Save view').click()",
        "#dialog input",
    ),
];

/// A fleet that gives each page something to show.
async fn fleet(cluster: &mut Cluster) {
    cluster.manager().await;
    cluster.service("a", 10).await;
    let api = &cluster.api;
    api.create(json!({"name": "steady", "kind": "ticker", "labels": {"team": "a"}})).await;
    let spec = json!({"argv": ["/bin/sh", "-c", "echo out; echo error: bad >&2; sleep 0.3; exit 3"]});
    let retry = json!({"kind": "fixed", "every": "300ms"});
    api.create(json!({"name": "loops", "kind": "exec", "spec": spec, "retry": retry})).await;
    api.create(json!({"name": "rests", "kind": "ticker", "desired": "paused"})).await;
    api.done::<Limit>("PUT", "/v1/limits/places", Some(json!({"max": 1})), 201).await;
    api.create(json!({"name": "limited", "kind": "ticker", "limits": ["places"]})).await;
    let jobs = json!({"name": "jobs", "observers": [{"kind": "ticker"}]});
    api.done::<Batch>("POST", "/v1/batches", Some(jobs), 201).await;
    let slower = json!({"name": "slower", "selector": {"kind": "ticker"}, "patch": {"spec": {"every": "2s"}},
        "max_parallel": 2, "healthy_for": "10m", "timeout": "1h"});
    api.done::<Rollout>("POST", "/v1/rollouts", Some(slower), 201).await;
}

/// A line for each violation of axe-core's rules in the page as it is.
async fn violations(page: &Browser, place: &str) -> Vec<String> {
    let Value::Array(found) = page.run_async(AXE).await else { panic!("{place}: axe-core gave no list") };
    found.iter().map(|it| format!("{place}: {}", it.as_str().unwrap())).collect()
}

#[tokio::test]
async fn every_page_is_accessible_in_both_themes() {
    let path = from_environment("EVERWATCH_TEST_AXE");
    let axe =
        std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("EVERWATCH_TEST_AXE={path}: {error}"));
    let mut cluster = Cluster::new("accessible");
    fleet(&mut cluster).await;
    let page = Browser::open(&cluster.api.url).await;
    // The page's policy concerns scripts of the page, not those of the driver.
    page.run(&axe).await;
    let mut found = Vec::new();
    for theme in ["light", "dark"] {
        page.run(&format!("document.documentElement.dataset.theme = '{theme}'")).await;
        for view in VIEWS {
            page.view(view).await;
            page.until(&format!("{view} to be drawn"), "document.querySelector('main h1')").await;
            let place = format!("{view}, {theme}");
            for line in page.run(CHECK).await.as_array().unwrap() {
                found.push(format!("{place}: {}", line.as_str().unwrap()));
            }
            found.extend(violations(&page, &place).await);
        }
        page.view("#/observers?q=steady").await;
        page.until("one row", "document.querySelectorAll('tbody tr').length === 1").await;
        for (open, shown) in OVERLAYS {
            page.run(open).await;
            page.until(shown, &format!("document.querySelector('{shown}')")).await;
            found.extend(violations(&page, &format!("{shown}, {theme}")).await);
            page.run("document.querySelector('dialog[open]').close()").await;
        }
        page.view("#/rollouts").await;
        page.press("New rollout").await;
        page.until("its fields", "document.querySelector('#asked-patch')").await;
        found.extend(violations(&page, &format!("#asked-patch, {theme}")).await);
        page.run("document.querySelector('dialog[open]').close()").await;
    }
    assert!(found.is_empty(), "{} violations:\n{}", found.len(), found.join("\n"));
}
