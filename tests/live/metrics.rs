//! The Prometheus and Grafana files in `deploy`, tested on a real Prometheus that scrapes real processes.

use everwatch_tests::cluster::{Cluster, free_address};
use everwatch_tests::http::{Api, holder};
use everwatch_tests::wait::wait_for;
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A private Prometheus, killed on drop.
struct Prometheus {
    child: Child,
    api: Api,
}

impl Prometheus {
    fn start(folder: &Path, jobs: &[(&str, Vec<String>)]) -> Self {
        let configs = jobs.iter().map(|(job, targets)| {
            json!({"job_name": job, "scrape_interval": "1s", "static_configs": [{"targets": targets}]})
        });
        let rules = deploy().join("prometheus/alerts.yml");
        let config = json!({"scrape_configs": configs.collect::<Vec<_>>(), "rule_files": [rules]});
        let file = folder.join("prometheus.yml");
        std::fs::write(&file, config.to_string()).unwrap();
        let listen = free_address();
        let child = Command::new("prometheus")
            .arg(format!("--config.file={}", file.display()))
            .arg(format!("--storage.tsdb.path={}", folder.join("prometheus").display()))
            .arg(format!("--web.listen-address={listen}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        Self { child, api: Api::new(format!("http://{listen}")) }
    }

    async fn query(&self, expression: &str) -> Result<Vec<Value>, String> {
        let query = utf8_percent_encode(expression, NON_ALPHANUMERIC);
        match self.api.try_call("GET", &format!("/api/v1/query?query={query}"), None).await {
            Ok((200, answer)) => Ok(answer["data"]["result"].as_array().unwrap().clone()),
            other => Err(format!("{expression}: {other:?}")),
        }
    }
}

impl Drop for Prometheus {
    fn drop(&mut self) {
        let _gone = self.child.kill();
        let _reaped = self.child.wait();
    }
}

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

/// Every expression of the dashboard with Grafana's variables filled in, and the name of its panel.
fn dashboard() -> Vec<(String, String)> {
    let text = std::fs::read_to_string(deploy().join("grafana/everwatch.json")).unwrap();
    let dashboard: Value = serde_json::from_str(&text).unwrap();
    let mut all = Vec::new();
    for panel in dashboard["panels"].as_array().unwrap() {
        for target in panel["targets"].as_array().into_iter().flatten() {
            let expression = target["expr"].as_str().unwrap();
            let filled = expression.replace("$pool", ".*").replace("$__rate_interval", "1m");
            all.push((panel["title"].as_str().unwrap().to_owned(), filled));
        }
    }
    assert!(all.len() > 20, "{all:?}");
    all
}

fn names(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    words.filter(|word| word.starts_with("everwatch_")).map(str::to_owned).collect()
}

fn promtool(arguments: &[&str]) {
    let folder = deploy().join("prometheus");
    let done = Command::new("promtool").args(arguments).current_dir(folder).output().unwrap();
    assert!(done.status.success(), "promtool {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
}

#[test]
fn every_alert_fires_when_it_is_to_and_only_then() {
    promtool(&["check", "config", "prometheus.yml"]);
    promtool(&["test", "rules", "alerts_test.yml"]);
    let read = |file: &str| std::fs::read_to_string(deploy().join("prometheus").join(file)).unwrap();
    let tests = read("alerts_test.yml");
    let alerts = read("alerts.yml");
    let mut count = 0;
    for alert in alerts.lines().filter_map(|line| line.trim().strip_prefix("- alert: ")) {
        for what in ["fires", "is silent"] {
            assert!(tests.contains(&format!("name: {alert} {what}\n")), "no test that {alert} {what}");
        }
        count += 1;
    }
    assert!(count > 10, "{count} alerts were found");
}

#[tokio::test]
async fn what_dashboard_and_alerts_ask_for_is_there_on_running_processes() {
    let mut cluster = Cluster::new("metrics");
    cluster.manager().await;
    cluster.service("a", 4).await;
    cluster.service("b", 4).await;
    for number in 0..3 {
        let body = json!({"name": format!("o{number}"), "kind": "ticker"});
        cluster.api.create(body).await;
        cluster.api.until_status(&format!("o{number}"), "Processing").await;
    }
    let folder = cluster.folder("prometheus");
    let services = ["a", "b"].map(|name| cluster.health_address(name)).to_vec();
    let manager = vec![cluster.api.url.trim_start_matches("http://").to_owned()];
    let prometheus =
        Prometheus::start(&folder, &[("everwatch-manager", manager), ("everwatch-service", services)]);
    wait_for("all to be scraped", || async {
        match prometheus.query("sum(up)").await {
            Ok(up) if up.first().is_some_and(|it| it["value"][1] == "3") => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    // A failover, so that there is a gap to show.
    cluster.kill("a");
    wait_for("the observers to run on b", || async {
        let all = cluster.api.processing().await;
        let on_b = all.iter().filter(|it| holder(it) == Some("b")).count();
        if on_b == 3 { Ok(()) } else { Err(format!("{all:?}")) }
    })
    .await;
    assert_eq!(cluster.api.call("DELETE", "/v1/observers/o0?wait=20s", None).await.0, 200);

    let alerts = std::fs::read_to_string(deploy().join("prometheus/alerts.yml")).unwrap();
    let asked: BTreeSet<String> = dashboard()
        .iter()
        .map(|(_, expression)| names(expression))
        .chain([names(&alerts)])
        .flatten()
        .collect();
    wait_for("all that is asked for to be scraped", || async {
        let known = prometheus.query("{__name__=~\"everwatch_.+\"}").await?;
        let known: BTreeSet<String> =
            known.iter().map(|it| it["metric"]["__name__"].as_str().unwrap().to_owned()).collect();
        let missing: Vec<_> = asked.difference(&known).collect();
        if missing.is_empty() { Ok(()) } else { Err(format!("nobody exports {missing:?}")) }
    })
    .await;

    for (panel, expression) in dashboard() {
        wait_for(&format!("panel {panel} to show something"), || async {
            match prometheus.query(&expression).await {
                Ok(result) if !result.is_empty() => Ok(()),
                other => Err(format!("{expression}: {other:?}")),
            }
        })
        .await;
    }
    for url in [cluster.api.url.clone(), format!("http://{}", cluster.health_address("b"))] {
        let text = reqwest::get(format!("{url}/metrics")).await.unwrap().text().await.unwrap();
        lint(&folder.join("metrics"), &text);
    }
}

/// Runs Prometheus's own linter on names, units and help texts.
fn lint(file: &Path, text: &str) {
    std::fs::write(file, text).unwrap();
    let done = Command::new("promtool")
        .args(["check", "metrics"])
        .stdin(std::fs::File::open(file).unwrap())
        .output()
        .unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
}
