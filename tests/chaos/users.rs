//! The requests of users during faults.

use crate::world::World;
use rand::Rng as _;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// The observers that may stop or move because of requests of users.
#[derive(Debug, Default)]
pub(crate) struct Touched {
    pub(crate) names: BTreeSet<String>,
    /// Whether this applies to all observers, because a service was drained or a pool rebalanced.
    pub(crate) all: bool,
}

impl Touched {
    pub(crate) fn has(&self, name: &str) -> bool {
        self.all || self.names.contains(name)
    }
}

/// The requests that undo changes once everything runs again.
pub(crate) type Undo = Vec<(&'static str, String, Option<Value>)>;

impl World {
    /// Deletes one observer and creates one, through either manager, during any fault. In half of the cases,
    /// users also make one more request.
    pub(crate) async fn users_act(&mut self, dice: &mut StdRng) -> (Touched, Undo) {
        let name = self.live.swap_remove(dice.random_range(0..self.live.len()));
        self.insist("DELETE", &format!("/v1/observers/{name}?wait=30s"), None, &[200]).await;
        self.deleted.insert(name, crate::world::now());
        self.create().await;
        let mut touched = Touched::default();
        let mut undo = Undo::new();
        if dice.random_bool(0.5) {
            let name = self.live.choose(dice).unwrap().clone();
            let service = self.services().choose(dice).copied().unwrap();
            match dice.random_range(0..7) {
                0 => {
                    self.insist("POST", &format!("/v1/observers/{name}/pause"), None, &[200, 202]).await;
                    self.insist("POST", &format!("/v1/observers/{name}/resume"), None, &[200, 202]).await;
                    touched.names.insert(name);
                }
                1 => {
                    let body = json!({"grace": format!("{}s", dice.random_range(5..15))});
                    self.insist("PATCH", &format!("/v1/observers/{name}"), Some(body), &[200, 202]).await;
                    touched.names.insert(name);
                }
                2 => {
                    self.insist("POST", &format!("/v1/observers/{name}/restart"), None, &[200, 202]).await;
                    touched.names.insert(name);
                }
                3 => {
                    let body = Some(json!({"force": true}));
                    self.insist("POST", &format!("/v1/observers/{name}/move"), body, &[200, 202]).await;
                    // The service of the observer takes no messages for a moment, so others may move too.
                    touched.all = true;
                }
                4 => {
                    self.insist("POST", &format!("/v1/services/{service}/drain"), None, &[202]).await;
                    undo.push(("POST", format!("/v1/services/{service}/uncordon"), None));
                    touched.all = true;
                }
                5 => {
                    let capacity = |slots: Value| Some(json!({"capacity": slots}));
                    let path = format!("/v1/services/{service}");
                    self.insist("PATCH", &path, capacity(json!(8)), &[200, 202]).await;
                    undo.push(("PATCH", path, capacity(Value::Null)));
                    touched.all = true;
                }
                _ => {
                    self.insist("POST", "/v1/rebalance:apply", None, &[200, 202, 503]).await;
                    touched.all = true;
                }
            }
        }
        (touched, undo)
    }

    pub(crate) async fn take_back(&self, undo: Undo) {
        for (method, path, body) in undo {
            self.insist(method, &path, body, &[200, 202]).await;
        }
    }
}
