//! The reference of the metrics and alerts, generated from what managers and services describe and from the rules for Prometheus.

use super::reference::dev;
use super::{keep, root};
use everwatch_core::record::service::ServiceState;
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

fn table(metrics: &[[String; 5]]) -> String {
    let mut table = "| metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n".to_owned();
    for [name, kind, unit, labels, meaning] in metrics {
        let unit = if unit == "count" { "–" } else { unit };
        let labels = if labels.is_empty() { "–" } else { labels };
        writeln!(table, "| `{name}` | {kind} | {unit} | {labels} | {meaning} |").unwrap();
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
    write!(page, "\n## Manager metrics\n\n{}\n## Service metrics\n\n{}", table(&managers), table(&services))
        .unwrap();
    write!(
        page,
        "\n## Alerts\n\nThe rules in `deploy/prometheus/alerts.yml`, which `promtool test rules` tests:\n\n{}",
        alerts()
    )
    .unwrap();
    keep("docs/metrics.md", &page);
}

#[tokio::test]
async fn every_exported_sample_has_the_labels_of_the_table() {
    let (_dev, api) = dev();
    api.until_service("service-1", |it| it.state == ServiceState::Active).await;
    let text = reqwest::get(format!("{}/metrics", api.url)).await.unwrap().text().await.unwrap();
    let described: Vec<_> =
        everwatch_manager::described_metrics().into_iter().chain(everwatch::described_metrics()).collect();
    let mut labelled = 0;
    for sample in text.lines().filter(|line| !line.starts_with('#') && !line.is_empty()) {
        let (series, _) = sample.rsplit_once(' ').unwrap();
        let (name, labels) = series.trim_end_matches('}').split_once('{').unwrap_or((series, ""));
        let mut keys: Vec<_> =
            labels.split("\",").filter_map(|label| Some(label.split_once('=')?.0)).collect();
        keys.retain(|key| *key != "le");
        labelled += usize::from(!keys.is_empty());
        let is_of = |metric: &str| {
            let rest = name.strip_prefix(metric);
            rest.is_some_and(|rest| ["", "_bucket", "_sum", "_count"].contains(&rest))
        };
        let Some([_, _, _, expected, _]) = described.iter().find(|[metric, ..]| is_of(metric)) else {
            panic!("the table lacks {name}")
        };
        assert_eq!(keys.join(", "), *expected, "{sample}");
    }
    assert!(labelled > 5, "{text}");
}
