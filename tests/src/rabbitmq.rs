//! A RabbitMQ node of a test's own, and RabbitMQ's own HTTP API.

use crate::http::Api;
use crate::script;
use crate::wait::wait_for;
use everwatch_broker::{Broker as _, Message, RabbitBroker, Target};
use nix::sys::signal::{Signal, killpg};
use nix::unistd::Pid;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// A node that a test may kill and start again.
pub struct Node {
    folder: PathBuf,
    /// Stays the same when it is started again.
    pub url: String,
    pub management_url: String,
}

impl Node {
    /// With its data in `folder`; `configuration`: lines for `rabbitmq.conf` as `KEY=VALUE`.
    pub fn start(folder: &Path, configuration: &[&str]) -> Self {
        let (url, management_url) = start(folder, configuration);
        Self { folder: folder.to_owned(), url, management_url }
    }
    /// Waits until the node has on disk that a quorum queue exists.
    ///
    /// RabbitMQ stores the queue up to half a second after its declaration. A node that is killed before that
    /// restarts with an empty queue that never gets a leader (3.10.8).
    pub async fn until_kept(&self, queue: &str) {
        wait_for(&format!("the node to keep {queue}"), || async {
            let found = files_named("names.dets", &self.folder.join("data")).into_iter().any(|file| {
                let names = std::fs::read(file).unwrap_or_default();
                names.windows(queue.len()).any(|part| part == queue.as_bytes())
            });
            if found { Ok(()) } else { Err("no file names it".to_owned()) }
        })
        .await;
    }
    /// SIGKILL, at once.
    pub fn kill(&self) {
        let pid = std::fs::read_to_string(self.folder.join("pid")).unwrap_or_default();
        if let Ok(pid) = pid.trim().parse() {
            let _ended_already = killpg(Pid::from_raw(pid), Signal::SIGKILL);
        }
        // It also ends the port mapper of the node.
        run(&[Path::new("kill"), &self.folder]);
    }
    /// `rabbitmqctl`
    pub fn ctl(&self, arguments: &[&str]) {
        let mut all = vec![Path::new("ctl"), &self.folder];
        all.extend(arguments.iter().map(Path::new));
        run(&all);
    }
    /// Starts it again on the data that it left.
    pub fn start_again(&self) {
        assert_eq!(start(&self.folder, &[]), (self.url.clone(), self.management_url.clone()));
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}

fn files_named(name: &str, folder: &Path) -> Vec<PathBuf> {
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let paths = entries.filter_map(|entry| Some(entry.ok()?.path()));
    paths
        .flat_map(|path| {
            if path.is_dir() {
                files_named(name, &path)
            } else if path.ends_with(name) {
                vec![path]
            } else {
                Vec::new()
            }
        })
        .collect()
}

fn start(folder: &Path, configuration: &[&str]) -> (String, String) {
    let mut arguments = vec![Path::new("start"), folder];
    arguments.extend(configuration.iter().map(Path::new));
    let said = run(&arguments);
    let mut lines = said.lines().map(str::to_owned);
    (lines.next().unwrap(), lines.next().unwrap())
}

fn run(arguments: &[&Path]) -> String {
    script("rabbitmq", arguments)
}

/// RabbitMQ's HTTP API, of the vhost `/`.
pub struct Management(Api);

impl Management {
    pub fn new(url: String) -> Self {
        Self(Api::new(url))
    }
    /// Makes a queue that gets everything of a topic exchange.
    pub async fn listen(&self, exchange: &str, queue: &str) {
        let durable = json!({"durable": true, "arguments": {"x-queue-type": "classic"}});
        self.expect("PUT", &format!("/api/queues/%2f/{queue}"), durable).await;
        let everything = json!({"routing_key": "#"});
        self.expect("POST", &format!("/api/bindings/%2f/e/{exchange}/q/{queue}"), everything).await;
    }
    /// Publishes bytes to a queue.
    pub async fn publish(&self, queue: &str, payload: &str, encoding: &str) {
        let body = json!({"properties": {"delivery_mode": 2}, "routing_key": queue, "payload": payload,
            "payload_encoding": encoding});
        let routed = self.expect("POST", "/api/exchanges/%2f/amq.default/publish", body).await;
        assert_eq!(routed["routed"], true, "no queue {queue}");
    }
    /// Takes everything that a queue holds.
    pub async fn take(&self, queue: &str) -> Vec<Value> {
        let body = json!({"count": 100_000, "ackmode": "ack_requeue_false", "encoding": "auto"});
        let taken = self.expect("POST", &format!("/api/queues/%2f/{queue}/get"), body).await;
        taken.as_array().unwrap().clone()
    }
    /// What is at a path.
    pub async fn get(&self, path: &str) -> Value {
        self.0.get(path).await
    }
    /// Any call without a body.
    pub async fn call(&self, method: &str, path: &str) -> (u16, Value) {
        self.0.call(method, path, None).await
    }
    /// Any call that must succeed.
    pub async fn expect(&self, method: &str, path: &str, body: Value) -> Value {
        let (status, answer) = self.0.call(method, path, Some(body)).await;
        assert!((200..300).contains(&status), "{method} {path}: {status} {answer}");
        answer
    }
}

/// Publishes bytes of any size to a queue.
pub async fn publish(broker_url: &str, queue: &str, body: &[u8]) {
    // The prefix of a test contains no dot but at its end.
    let prefix = queue.split_inclusive('.').next().unwrap_or_default();
    let broker = RabbitBroker::new(broker_url, prefix, Duration::from_secs(5)).unwrap();
    let session = broker.connect("a stranger").await.unwrap();
    let message = Message { body: body.to_vec().into(), headers: Vec::new() };
    session.publish(&Target::Queue(queue.to_owned()), message).await.unwrap();
    session.close().await;
}
