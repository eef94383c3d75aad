//! The broker of a campaign: a node that the campaign starts, or nodes that the caller names.

use everwatch_tests::rabbitmq::Node;
use std::path::Path;
use std::process::Command;

const MOVE_LEADERS: &str = "[rabbit_quorum_queue:transfer_leadership(Q, hd([N || N <- [node() | nodes()], \
    N =/= element(2, amqqueue:get_pid(Q))])) || Q <- rabbit_amqqueue:list(), \
    amqqueue:get_type(Q) =:= rabbit_quorum_queue].";

pub(crate) struct Broker {
    /// The URL of each node.
    pub(crate) urls: Vec<String>,
    /// The node that the campaign started; it may be killed and reconfigured freely.
    pub(crate) own: Option<Node>,
    /// A shell command that controls the nodes of a given cluster. Its arguments are `kill K`, `start K` or
    /// `eval K ERLANG`.
    pub(crate) command: Option<String>,
}

impl Broker {
    pub(crate) fn from_environment(scratch: &Path) -> Self {
        if let Ok(urls) = std::env::var("EVERWATCH_CHAOS_BROKER") {
            let urls = urls.split(',').map(str::to_owned).collect();
            return Self { urls, own: None, command: std::env::var("EVERWATCH_CHAOS_NODE").ok() };
        }
        // The server runs as another user, who must be able to read the folder.
        std::fs::set_permissions(scratch, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let node = Node::start(&scratch.join("node"), &["consumer_timeout=315360000000"]);
        Self { urls: vec![node.url.clone()], own: Some(node), command: None }
    }

    pub(crate) fn own(&self) -> &Node {
        self.own.as_ref().expect("such faults are not chosen for a broker that was given")
    }

    /// Kills or starts a node of a cluster, counted from 1.
    pub(crate) fn node(&self, verb: &str, number: usize) {
        self.run(&[verb, &number.to_string()]);
    }

    /// Moves the leader of every quorum queue to another node.
    pub(crate) fn move_leaders(&self) {
        let said = self.run(&["eval", "1", MOVE_LEADERS]);
        // RabbitMQ 4.3 reports `ok`, older versions `migrated`.
        assert!(said.contains("{ok,") || said.contains("{migrated,"), "no leader moved: {said}");
    }

    /// Partitions a node from the next one by removing each other's cookie, so that they refuse to connect.
    pub(crate) fn part(&self, number: usize) {
        let (one, next) = (self.name_of(number), self.name_of(self.after(number)));
        let forget =
            |other: &str| format!("erlang:set_cookie({other}, apart), erlang:disconnect_node({other}).");
        self.run(&["eval", &number.to_string(), &forget(&next)]);
        self.run(&["eval", &self.after(number).to_string(), &forget(&one)]);
    }

    pub(crate) fn join(&self, number: usize) {
        let (one, next) = (self.name_of(number), self.name_of(self.after(number)));
        let remember = |other: &str| {
            format!("erlang:set_cookie({other}, erlang:get_cookie()), net_kernel:connect_node({other}).")
        };
        self.run(&["eval", &number.to_string(), &remember(&next)]);
        self.run(&["eval", &self.after(number).to_string(), &remember(&one)]);
    }

    fn after(&self, number: usize) -> usize {
        number % self.urls.len() + 1
    }

    fn name_of(&self, number: usize) -> String {
        self.run(&["eval", &number.to_string(), "node()."]).trim().to_owned()
    }

    fn run(&self, arguments: &[&str]) -> String {
        let command = self.command.as_ref().expect("such faults are chosen only where a command is given");
        let given = format!("{command} \"$@\"");
        let done = Command::new("sh").args(["-c", &given, "node"]).args(arguments).output().unwrap();
        let said = String::from_utf8_lossy(&[done.stdout, done.stderr].concat()).into_owned();
        assert!(done.status.success(), "{command} {arguments:?}: {said}");
        said
    }
}
