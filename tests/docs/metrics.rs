//! The reference of the metrics and alerts, generated from what managers and services describe and from the rules for Prometheus.

use super::{keep, root};
use serde_json::Value;
use std::fmt::Write as _;

const HEAD: &str = "# Metrics and alerts

<!-- Generated from the code and deploy/prometheus/alerts.yml: UPDATE_DOCS=1 tests/run -E 'binary(docs)' -->

Managers export metrics for Prometheus at `/metrics` of their `[manager] listen`, services at that of their `[service] listen`. No label
is the id of an observer. The gauges about observers, services, pools and limits have the numbers of the whole deployment, so count each
value once if several managers run, as in `max by (pool, status) (everwatch_observers)`. Counters and histograms have what the one
process did: add them up, as in `sum(rate(everwatch_reports_total[5m]))`. Histograms have the names of the table with `_bucket`, `_sum`
and `_count`.
";

fn table(metrics: &[[&str; 4]]) -> String {
    let mut table = "| metric | type | unit | meaning |\n|---|---|---|---|\n".to_owned();
    for [name, kind, unit, meaning] in metrics {
        let unit = if *unit == "count" { "–" } else { unit };
        writeln!(table, "| `{name}` | {kind} | {unit} | {meaning} |").unwrap();
    }
    table
}

/// One line for each rule: its name, severity and delay, its condition, and what to do.
fn alerts() -> String {
    let text = std::fs::read_to_string(root().join("deploy/prometheus/alerts.yml")).unwrap();
    let rules: Value = serde_saphyr::from_str(&text).unwrap();
    let mut table =
        "| alert | severity | after | condition | what it means, and what to do |\n|---|---|---|---|---|\n"
            .to_owned();
    for rule in rules["groups"].as_array().unwrap().iter().flat_map(|it| it["rules"].as_array().unwrap()) {
        let word = |it: &Value| it.as_str().unwrap().trim().replace('\n', " ").replace('|', "\\|");
        let [name, severity, delay] = [&rule["alert"], &rule["labels"]["severity"], &rule["for"]].map(word);
        let [condition, about] = [&rule["expr"], &rule["annotations"]["description"]].map(word);
        writeln!(table, "| `{name}` | {severity} | {delay} | `{condition}` | {about} |").unwrap();
    }
    table
}

#[test]
fn the_reference_of_the_metrics_is_as_they_describe_themselves() {
    let (managers, services) = (everwatch_manager::described_metrics(), everwatch::described_metrics());
    let mut page = HEAD.to_owned();
    write!(page, "\n## Of managers\n\n{}\n## Of services\n\n{}", table(&managers), table(&services)).unwrap();
    write!(
        page,
        "\n## Alerts\n\nThe rules in `deploy/prometheus/alerts.yml`, which `promtool test rules` tests:\n\n{}",
        alerts()
    )
    .unwrap();
    keep("docs/metrics.md", &page);
}
