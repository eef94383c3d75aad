//! Broker users of a deployment: one for its managers and one for the services of each pool, with the permissions that
//! `everwatch broker permissions` prints.

use crate::rabbitmq::Management;
use everwatch_broker::Permissions;
use everwatch_core::id::Pool;
use serde_json::json;
use std::cell::RefCell;
use std::collections::BTreeSet;

/// The administrator of the brokers of the tests, as URLs name it.
const ADMINISTRATOR: &str = "guest:guest@";
const PASSWORD: &str = "secret";

/// Creates the users of one deployment when the first process needs them.
#[derive(Debug)]
pub struct BrokerUsers {
    /// RabbitMQ's HTTP API; without it, processes have the users that their URLs name.
    management_url: Option<String>,
    created: RefCell<BTreeSet<String>>,
}

impl BrokerUsers {
    /// In the vhost `/`.
    #[must_use]
    pub fn new(management_url: Option<String>) -> Self {
        Self { management_url, created: RefCell::default() }
    }

    /// The URL with the user of the managers of a deployment.
    pub fn url_of_managers(&self, prefix: &str, url: &str) -> String {
        self.with_user(&named(prefix, "manager"), url, || Permissions::of_managers(prefix))
    }

    /// The URL with the user of the services of a pool.
    pub fn url_of_services(&self, prefix: &str, pool: &str, url: &str) -> String {
        let permissions = || Permissions::of_services(prefix, &Pool::new(pool).unwrap());
        self.with_user(&named(prefix, &format!("service-{pool}")), url, permissions)
    }

    /// Replaces the administrator, and no other user.
    fn with_user(&self, user: &str, url: &str, permissions: impl FnOnce() -> Permissions) -> String {
        let Some(management_url) = &self.management_url else { return url.to_owned() };
        if !url.contains(ADMINISTRATOR) {
            return url.to_owned();
        }
        if self.created.borrow_mut().insert(user.to_owned()) {
            create(management_url.clone(), user.to_owned(), permissions());
        }
        url.replace(ADMINISTRATOR, &format!("{user}:{PASSWORD}@"))
    }
}

/// As `everwatch broker permissions` names them.
fn named(prefix: &str, role: &str) -> String {
    format!("{}-{role}", prefix.trim_end_matches('.'))
}

/// Creates a user and waits for it, on a thread of its own, because callers run on a runtime and cannot wait.
fn create(management_url: String, user: String, permissions: Permissions) {
    let create = move || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let management = Management::new(management_url);
            let Permissions { configure, write, read, topic } = permissions;
            let body = json!({"password": PASSWORD, "tags": ""});
            management.expect("PUT", &format!("/api/users/{user}"), body).await;
            let body = json!({"configure": configure, "write": write, "read": read});
            management.expect("PUT", &format!("/api/permissions/%2f/{user}"), body).await;
            if let Some((exchange, keys)) = topic {
                // RabbitMQ 4.3 refuses the permissions of an exchange that does not exist.
                let body = json!({"type": "topic", "durable": true});
                management.expect("PUT", &format!("/api/exchanges/%2f/{exchange}"), body).await;
                let body = json!({"exchange": exchange, "write": keys, "read": "^$"});
                management.expect("PUT", &format!("/api/topic-permissions/%2f/{user}"), body).await;
            }
        });
    };
    std::thread::spawn(create).join().unwrap();
}
