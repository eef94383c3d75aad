//! Rates over HTTP, and their permits for a service played by hand.

use super::*;
use everwatch_api::{Event, Rate};
use everwatch_core::id::RateKey;
use everwatch_core::wire::permits::{PermitAnswers, PermitAsk, PermitRequest, RatesMessage};

const SETTINGS: &str = r#"{"permits": 600, "per": "1m", "burst": 50}"#;

impl Stage {
    async fn set_rate(&self, key: &str, settings: &str) -> Answer {
        self.send("PUT", &format!("/v1/rates/{key}"), Some(settings)).await
    }
}

impl Service {
    /// Asks for permits in turn 1; returns the answer.
    async fn acquire(&mut self, stage: &Stage, number: u64, permits: &[(&str, u32)]) -> PermitAnswers {
        let permits = permits.iter().map(|(key, cost)| (RateKey::new(key).unwrap(), *cost)).collect();
        let asks = vec![PermitAsk { turn: 1, permits, count: 1 }];
        let request = RatesMessage::Acquire(PermitRequest { service: self.id, number, asks });
        let message = Message { body: encode(&request).unwrap().into(), headers: Vec::new() };
        let rates = Target::Queue(stage.manager.link.topology.rates());
        self.session.publish(&rates, message).await.unwrap();
        let listening = async {
            loop {
                let delivery = self.commands.next().await.unwrap();
                self.session.ack(delivery.receipt).await;
                if let Command::Permits(answers) = decode(&delivery.body).unwrap() {
                    return answers;
                }
            }
        };
        tokio::time::timeout(SOON, listening).await.expect("permits are answered")
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rate_is_set_read_listed_and_deleted() {
    let stage = Stage::new().await;
    let rate: Rate = stage.set_rate("openai", SETTINGS).await.read(200);
    assert_eq!((rate.at_once, rate.available, rate.waiting), (30, 30, 0));
    let changed: Rate =
        stage.set_rate("openai", r#"{"permits": 5, "per": "90s", "burst": 7}"#).await.read(200);
    assert_eq!((changed.per.as_str(), changed.at_once, changed.available), ("1m 30s", 6, 6));
    assert_eq!(stage.read::<Rate>("/v1/rates/openai").await.burst, 7);
    for key in ["b", "a"] {
        stage.set_rate(key, SETTINGS).await.read::<Rate>(200);
    }
    let first: Listed<Rate> = stage.read("/v1/rates?limit=2").await;
    assert_eq!((first.items[0].key.as_str(), first.items[1].key.as_str(), first.total), ("a", "b", 3));
    let next = format!("/v1/rates?limit=2&cursor={}", first.next_cursor.unwrap());
    let second: Listed<Rate> = stage.read(&next).await;
    assert_eq!((second.items[0].key.as_str(), second.next_cursor), ("openai", None));
    assert_eq!(stage.send("DELETE", "/v1/rates/a", None).await.status, StatusCode::NO_CONTENT);
    for path in ["/v1/rates/a", "/v1/rates/no%20key"] {
        stage.send("DELETE", path, None).await.refused(404, "not-found");
        stage.get(path).await.refused(404, "not-found");
    }
    let history = |found: &Listed<Event>| found.total == 5;
    let events: Listed<Event> = stage.until_read("/v1/events?type=rate_set,rate_deleted", history).await;
    let told = "openai: 5 permits per 1m 30s, burst 7";
    assert!(events.items.iter().any(|it| it.text == told), "{events:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_rate_is_refused_with_its_member_and_the_cure() {
    let stage = Stage::new().await;
    let small = stage.set_rate("a", r#"{"permits": 600, "per": "1m", "burst": 20}"#).await;
    let problem = small.refused(422, "invalid");
    assert_eq!(problem.errors[0].pointer, "/burst");
    assert_eq!(problem.errors[0].detail, "must be at least 21 = 2s of the rate (20) + 1");
    let problem =
        stage.set_rate("a", r#"{"permits": 1, "per": "1w", "brust": 3}"#).await.refused(422, "invalid");
    let pointers: Vec<&str> = problem.errors.iter().map(|error| error.pointer.as_str()).collect();
    assert_eq!(pointers, ["/per", "/burst", "/brust"]);
    let problem = stage.set_rate("no%20key", SETTINGS).await.refused(422, "invalid");
    assert!(problem.detail.contains("rate `no key` is not valid"), "{problem:?}");
    stage.get("/v1/rates/a").await.refused(404, "not-found");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permits_are_granted_to_services_and_unreadable_requests_dropped() {
    let stage = Stage::new().await;
    let mut service = stage.service(1).await;
    stage.set_rate("a", r#"{"permits": 1, "per": "24h", "burst": 31}"#).await.read::<Rate>(200);
    let rates = Target::Queue(stage.manager.link.topology.rates());
    service.session.publish(&rates, Message { body: "?!".into(), headers: Vec::new() }).await.unwrap();
    let granted = service.acquire(&stage, 1, &[("a", 29)]).await;
    assert_eq!((granted.request, granted.granted[0].count), (1, 1));
    assert_eq!(service.acquire(&stage, 2, &[("a", 2)]).await, PermitAnswers::new(service.id, 2));
    let rate: Rate = stage.read("/v1/rates/a").await;
    assert_eq!((rate.available, rate.waiting), (1, 2));
    let refused = service.acquire(&stage, 3, &[("b", 1)]).await;
    assert!(refused.refused[0].error.contains("there is no rate `b`"), "{refused:?}");
}
