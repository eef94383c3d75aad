//! The permissions of broker users: the narrowest that RabbitMQ can express.
//!
//! A permission is three regular expressions over the names of queues and exchanges: the user may *configure* (declare,
//! delete), *write* (publish to an exchange, bind a queue) and *read* (consume a queue, bind to an exchange) those that
//! match. A passive declaration needs no permission; from RabbitMQ 4.2.6 on, any permission for the queue or exchange.

use crate::topology::Topology;
use everwatch_core::id::Pool;
use everwatch_core::wire::batch::COMPLETED;
use std::fmt;

/// An id in a name.
const ID: &str = "[0-9a-f-]{36}";
/// Any pool in a name.
const POOL: &str = "[a-z0-9-]+";
/// The queues of the reports.
const STATE: &str = r"state(\.[0-9]+)?";

/// What one user may do in one vhost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Permissions {
    pub configure: String,
    pub write: String,
    pub read: String,
    /// A topic exchange, and the routing keys that the user may publish to it.
    pub topic: Option<(String, String)>,
}

impl Permissions {
    /// Of all managers of a deployment.
    #[must_use]
    pub fn of_managers(prefix: &str) -> Self {
        let (prefix, output) = (escaped(prefix), Topology::new(prefix).output());
        // The queues from which they read.
        let queues = format!("heartbeats|parked|rates|{STATE}|store");
        let declared = format!(r"commands(\.{POOL})?|output|reports|work(\.{POOL})?|replies\.{ID}|{queues}");
        Self {
            configure: format!(r"^{prefix}({declared}|probe\.{ID})$"),
            // A user that declares a queue with a dead-letter exchange needs permission to write to that exchange. The work
            // queues and the state queues dead-letter to `parked` through the default exchange.
            // Managers look whether the command queue of a silent service exists.
            write: format!(r"^(amq\.default|{prefix}({declared}|commands\.{POOL}\.{ID}))$"),
            read: format!(r"^{prefix}(reports|work(\.{POOL})?|replies\.{ID}|{queues})$"),
            // Managers publish with no other key.
            topic: Some((output, format!("^{}$", escaped(COMPLETED)))),
        }
    }

    /// Of the services of one pool.
    #[must_use]
    pub fn of_services(prefix: &str, pool: &Pool) -> Self {
        let (prefix, pool) = (escaped(prefix), escaped(pool.as_str()));
        Self {
            configure: format!(r"^{prefix}(commands\.{pool}\.{ID}|probe\.{ID})$"),
            // A service must see whether managers have declared a state queue.
            write: format!(r"^{prefix}(commands\.{pool}\.{ID}|output|reports|{STATE})$"),
            read: format!(r"^{prefix}(commands(\.{pool}(\.{ID})?)?|work\.{pool})$"),
            topic: None,
        }
    }

    /// The commands that create the user and give it these permissions. `add_user` asks for the password. The last one may have
    /// to wait for the first connection of the user: RabbitMQ 4.3 refuses the permissions of a topic exchange that does not
    /// exist (4.0 does not), and managers declare it.
    #[must_use]
    pub fn commands(&self, vhost: &str, user: &str) -> Vec<String> {
        let (vhost, user) = (Quoted(vhost), Quoted(user));
        let (configure, write, read) = (Quoted(&self.configure), Quoted(&self.write), Quoted(&self.read));
        let mut commands = vec![
            format!("rabbitmqctl add_user {user}"),
            format!("rabbitmqctl set_permissions -p {vhost} {user} {configure} {write} {read}"),
        ];
        if let Some((exchange, keys)) = &self.topic {
            let (exchange, keys) = (Quoted(exchange), Quoted(keys));
            commands.push("# RabbitMQ 4.3 and later: once a manager has created the exchange".to_owned());
            commands
                .push(format!("rabbitmqctl set_topic_permissions -p {vhost} {user} {exchange} {keys} '^$'"));
        }
        commands
    }
}

/// A regular expression that matches this text.
fn escaped(text: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || matches!(c, '-' | '_');
    text.chars().flat_map(|c| (!plain(c)).then_some('\\').into_iter().chain([c])).collect()
}

/// A word of a shell command.
struct Quoted<'a>(&'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.' | '/');
        if !self.0.is_empty() && self.0.chars().all(plain) {
            return f.write_str(self.0);
        }
        write!(f, "'{}'", self.0.replace('\'', r"'\''"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_patterns_are_anchored_and_exact() {
        let services = Permissions::of_services("everwatch.", &Pool::new("gpu-1").unwrap());
        assert_eq!(
            services,
            Permissions {
                configure: r"^everwatch\.(commands\.gpu-1\.[0-9a-f-]{36}|probe\.[0-9a-f-]{36})$".to_owned(),
                write: r"^everwatch\.(commands\.gpu-1\.[0-9a-f-]{36}|output|reports|state(\.[0-9]+)?)$"
                    .to_owned(),
                read: r"^everwatch\.(commands(\.gpu-1(\.[0-9a-f-]{36})?)?|work\.gpu-1)$".to_owned(),
                topic: None,
            }
        );
        let managers = Permissions::of_managers("a+b.");
        assert!(managers.write.starts_with(r"^(amq\.default|a\+b\.("), "{}", managers.write);
        assert!(!managers.read.contains("commands"), "{}", managers.read);
        assert_eq!(managers.topic, Some(("a+b.output".to_owned(), r"^batch\.completed$".to_owned())));
    }

    #[test]
    fn the_commands_quote_what_a_shell_would_read() {
        let permissions = Permissions {
            configure: "^a$".to_owned(),
            write: "^it's$".to_owned(),
            read: String::new(),
            topic: None,
        };
        assert_eq!(
            permissions.commands("/", "everwatch-manager"),
            [
                "rabbitmqctl add_user everwatch-manager",
                r"rabbitmqctl set_permissions -p / everwatch-manager '^a$' '^it'\''s$' ''",
            ]
        );
    }
}
