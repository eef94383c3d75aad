//! All services together use no more permits of a rate than it allows, whatever is killed, and use it nearly completely
//! otherwise. A server of the test counts the requests.

use crate::conformance::program;
use axum::Router;
use axum::routing::get;
use everwatch_api::{Listed, ObserverResult, Rate};
use everwatch_core::record::service::ServiceState;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::wait::{wait_for, wait_within};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

const OBSERVERS: usize = 45;
/// Permits per second.
const RATE: f64 = 10.0;
const BURST: f64 = 60.0;
/// How long a request may take from the use of its permit to its arrival on a busy machine: the request is sent in the
/// same step in which the permit is taken, perhaps on a new connection, and then waits for the threads of both processes.
const TRANSPORT: f64 = 0.5;

/// Counts requests.
struct Counter {
    url: String,
    arrivals: Arc<Mutex<Vec<Instant>>>,
    _server: JoinSet<()>,
}

impl Counter {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let arrivals = Arc::<Mutex<Vec<Instant>>>::default();
        let noted = Arc::clone(&arrivals);
        let answer = move || {
            noted.lock().unwrap().push(Instant::now());
            std::future::ready("ok")
        };
        let mut server = JoinSet::new();
        server.spawn(
            async move { axum::serve(listener, Router::new().route("/", get(answer))).await.unwrap() },
        );
        Self { url, arrivals, _server: server }
    }

    fn arrived(&self) -> usize {
        self.arrivals.lock().unwrap().len()
    }

    /// Waits for this many further requests.
    async fn more(&self, what: &str, count: usize) {
        let before = self.arrived();
        wait_within(Duration::from_secs(90), &format!("{count} requests {what}"), || async {
            let more = self.arrived() - before;
            if more >= count { Ok(()) } else { Err(format!("{more}")) }
        })
        .await;
    }

    /// No window between two arrivals, of any length, has more requests than the rate allows.
    fn judge(&self) {
        let arrivals = self.arrivals.lock().unwrap();
        let mut nearest = f64::MAX;
        for (first, from) in arrivals.iter().enumerate() {
            for (count, to) in (1_u32..).zip(&arrivals[first..]) {
                let most = BURST + RATE * (to.duration_since(*from).as_secs_f64() + TRANSPORT);
                nearest = nearest.min(most - f64::from(count));
                assert!(f64::from(count) <= most, "{count} requests within {:?}", to.duration_since(*from));
            }
        }
        eprintln!("{} requests; the fullest window has room for {nearest:.1} more", arrivals.len());
    }
}

fn poller(number: usize, url: &str) -> Value {
    let spec = json!({"url": url, "every": "100ms", "rate": "shared"});
    json!({"name": format!("poller-{number}"), "kind": "http", "spec": spec})
}

async fn until_active(cluster: &Cluster, names: [&str; 3]) {
    wait_for("the services to be active", || async {
        let services = cluster.api.services().await;
        let active = services.iter().filter(|it| it.state == ServiceState::Active);
        let active: BTreeSet<&str> = active.map(|it| it.name.as_str()).collect();
        if names.iter().all(|name| active.contains(name)) { Ok(()) } else { Err(format!("{active:?}")) }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn services_share_a_rate_whatever_is_killed() {
    let mut cluster = Cluster::new("rates").with_postgres();
    cluster.manager().await;
    cluster.another_manager("other").await;
    let names = ["a", "b", "c"];
    for name in names {
        cluster.service(name, 40).await;
    }
    let settings = json!({"permits": 600, "per": "1m", "burst": 60});
    let rate: Rate = cluster.api.done("PUT", "/v1/rates/shared", Some(settings), 200).await;
    assert_eq!((rate.at_once, rate.per.as_str()), (40, "1m"));
    let counter = Counter::start().await;
    for number in 0..OBSERVERS {
        cluster.api.create(poller(number, &counter.url)).await;
    }
    // Once the bucket is empty, and the line is full.
    counter.more("of the burst", 80).await;
    let (begun, before) = (Instant::now(), counter.arrived());
    counter.more("in calm times", 200).await;
    let used =
        f64::from(u32::try_from(counter.arrived() - before).unwrap()) / begun.elapsed().as_secs_f64() / RATE;
    eprintln!("{:.0} % of the rate is used in calm times", used * 100.0);
    assert!(used >= 0.8, "{:.0} % of the rate is used", used * 100.0);

    for name in names {
        cluster.kill(name);
        counter.more("after the death of a service", 40).await;
        cluster.spawn_service(name, 40);
        cluster.kill("other");
        counter.more("with one manager", 40).await;
        cluster.another_manager("other").await;
        cluster.kill("manager");
        counter.more("with the other manager", 40).await;
        cluster.manager().await;
        until_active(&cluster, names).await;
    }
    // Without a manager nothing is granted; the observers wait, and go on afterwards.
    cluster.kill("manager");
    cluster.kill("other");
    let left = counter.arrived();
    cluster.manager().await;
    counter.more("after the managers return", 60).await;
    assert!(counter.arrived() > left);
    counter.judge();
    let all = cluster.api.observers().await;
    let restarts: u32 = all.iter().map(|it| it.restarts).sum();
    assert_eq!(restarts, 0, "an observer that waits for permits has no error");
    assert!(all.iter().all(|it| it.last_error.is_none()));
}

/// A program that acquires permits through its channel, and says what it is answered.
const PROGRAM: &str = r#"echo '{"id": 1, "acquire": {"shared": 2, "other": 1}}' >&$EVERWATCH_FD
read -r answer <&$EVERWATCH_FD; echo "first $answer"
echo '{"id": 2, "acquire": {"shared": 41}}' >&$EVERWATCH_FD
read -r answer <&$EVERWATCH_FD; echo "second $answer"
echo '{"id": 3, "acquire": {"nothing": 1}}' >&$EVERWATCH_FD
read -r answer <&$EVERWATCH_FD; echo "third $answer"; sleep 3600"#;

#[tokio::test]
async fn programs_acquire_permits_and_are_told_what_is_wrong() {
    let mut cluster = Cluster::new("rates-exec");
    cluster.manager().await;
    cluster.service("a", 10).await;
    for key in ["shared", "other"] {
        let settings = json!({"permits": 10, "per": "1s", "burst": 60});
        let _: Rate = cluster.api.done("PUT", &format!("/v1/rates/{key}"), Some(settings), 200).await;
    }
    let spec = json!({"argv": ["/bin/bash", "-c", PROGRAM], "channel": true});
    cluster.api.create(json!({"name": "program", "kind": "exec", "spec": spec})).await;
    let spec = json!({"url": "http://127.0.0.1:9/", "rate": "nothing"});
    let retry = json!({"kind": "fixed", "every": "1s", "attempts": 100});
    cluster.api.create(json!({"name": "unknown", "kind": "http", "spec": spec, "retry": retry})).await;
    let told = |number: &str, text: &str| {
        let (number, text) = (number.to_owned(), text.to_owned());
        let cluster = &cluster;
        async move {
            wait_for(&format!("the {number} answer"), || async {
                let (_, said) = cluster.command(&["observer", "logs", "program"]);
                let line = said.lines().find(|line| line.contains(&*number)).map(str::to_owned);
                line.filter(|line| line.contains(&*text)).ok_or(said)
            })
            .await
        }
    };
    told("first", r#""ok":true"#).await;
    told("second", "41 permits of rate `shared`: at most 40 at once").await;
    told("third", "there is no rate `nothing`: create it with `everwatch rate set nothing --permits N --per TIME --burst N`").await;
    let unknown = cluster.api.until_observer("unknown", |it| it.last_error.is_some()).await;
    assert!(unknown.last_error.unwrap().contains("there is no rate `nothing`"));
    let rates: Listed<Rate> = cluster.api.read("/v1/rates").await;
    let keys: Vec<&str> = rates.items.iter().map(|it| it.key.as_str()).collect();
    assert_eq!((keys, rates.total), (vec!["other", "shared"], 2));
    // The observer that waits for a rate finds it once it exists: then its target is what fails.
    let settings = json!({"permits": 10, "per": "1s", "burst": 60});
    let _: Rate = cluster.api.done("PUT", "/v1/rates/nothing", Some(settings), 200).await;
    let refused = |error: &String| error.contains("127.0.0.1:9");
    cluster.api.until_observer("unknown", |it| it.last_error.as_ref().is_some_and(refused)).await;
    let url = format!("{}/metrics", cluster.api.url);
    let text = reqwest::get(url).await.unwrap().text().await.unwrap();
    for line in [
        r#"everwatch_permits_granted_total{rate="shared"} 2"#,
        r#"everwatch_permits_waiting{rate="shared"} 0"#,
    ] {
        assert!(text.lines().any(|it| it == line), "{line} is not in {text}");
    }
}

#[tokio::test]
async fn a_service_in_python_acquires_permits() {
    let mut cluster = Cluster::new("rates-python");
    cluster.manager().await;
    cluster.service_program = program(cluster.scratch.path(), "tests/live/conformance/acquirer.py");
    cluster.service("python", 10).await;
    let settings = json!({"permits": 1, "per": "24h", "burst": 31});
    let _: Rate = cluster.api.done("PUT", "/v1/rates/shared", Some(settings), 200).await;
    let spec = json!({"rate": "shared", "permits": 21});
    cluster.api.create(json!({"name": "acquirer", "kind": "acquirer", "spec": spec})).await;
    cluster.api.until_status("acquirer", "Completed").await;
    let result: ObserverResult = cluster.api.read("/v1/observers/acquirer/result").await;
    let refused = "there is no rate `nothing`: create it with `everwatch rate set nothing --permits N --per TIME --burst N`";
    assert_eq!(result.value, json!(refused));
    let rate: Rate = cluster.api.read("/v1/rates/shared").await;
    assert_eq!(rate.available, 9, "30 less 21");
}
