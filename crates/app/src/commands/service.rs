//! `everwatch service …`

use super::unknown::{self, Named, hinted};
use super::{fan_out, get, operations};
use crate::answers::Order;
use crate::cli::{Drain, Service, ServiceNames, Watched, WhichServices};
use crate::client::{Client, Failure};
use crate::output::{SERVICES, TerminalStyle, answer, note, print_paragraphs};
use crate::refusals::in_place;
use crate::requests::{described_service, service_path as path};
use everwatch_api as api;
use everwatch_core::clock;
use everwatch_core::record::service::ServiceState;
use everwatch_core::wording::counted;
use reqwest::Method;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Pause between two looks at a drain.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// A service confirms an order at once, or with its next heartbeat: by default, within this time.
const CONFIRMED_WITHIN: Duration = Duration::from_secs(5);
const CONFIRMED_EVERY: Duration = Duration::from_millis(100);

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(server: &str, verb: Service) -> anyhow::Result<()> {
    let client = Client::new(server)?;
    match verb {
        Service::List { which, watched } => list(&client, &which, &watched).await,
        Service::Get { names, watched } => {
            get::run(&client, &SERVICES, (&names.names, path, unknown::SERVICES), &watched).await
        }
        Service::Describe { names: ServiceNames { names }, form } => {
            let instead = format!("everwatch service get {}", names.join(" "));
            form.refuse(&instead).map_err(Failure::Usage)?;
            let (client, paper) = (&client, TerminalStyle::stdout());
            let one =
                |name| hinted(client, (unknown::SERVICES, name), described_service(client, name, paper));
            let (told, failed) = fan_out::read(&names, one).await;
            print_paragraphs(&told);
            failed
        }
        Service::Cordon(names) => ordered(&client, &names.names, ("cordon", Order::Cordon)).await,
        Service::Uncordon(names) => ordered(&client, &names.names, ("uncordon", Order::Uncordon)).await,
        Service::Drain(asked) => drain(&client, &asked).await,
        Service::Capacity { name, slots } => {
            let capacity = match slots.as_str() {
                "default" => Value::Null,
                number => number.parse::<u32>().map(Value::from).map_err(|_| {
                    Failure::Usage(format!(
                        "`{number}` is not a number of slots: write a number, or `default`"
                    ))
                })?,
            };
            let services = "/v1/services?state=active,standby,cordoned,draining&limit=1000";
            // If the manager does not answer, the order tells why.
            let before: Option<api::Listed<api::Service>> = client.read(services).await.ok();
            let (path, body) = (path(&name), json!({ "capacity": capacity }));
            let sent = client.send(Method::PATCH, &path, Some(&body));
            let it: api::Service = hinted(&client, (unknown::SERVICES, &name), sent)
                .await
                .map_err(|error| in_place(error, |word| (word == "/capacity").then(|| "SLOTS".to_owned())))?;
            let slots = it.capacity_set;
            answer(&Order::Capacity.told(&confirmed(&client, it).await));
            if let Some(told) = before.zip(slots).and_then(|(all, slots)| homeless(&all.items, &name, slots))
            {
                note(&told);
            }
            Ok(())
        }
    }
}

async fn ordered(client: &Client, names: &[String], (verb, order): (&str, Order)) -> anyhow::Result<()> {
    fan_out::each(names, "done", |name| async move {
        // If the manager does not answer, the order tells why.
        let before: Option<api::Service> = client.read(&path(name)).await.ok();
        let it = confirmed(client, self::order(client, name, verb, None).await?).await;
        let Some(before) = before else { return Ok(order.told(&it)) };
        if order.changes_nothing(&before) {
            return Ok(order.again(&it));
        }
        let ends_drain = order == Order::Uncordon && before.drain.is_some();
        let told = order.told(&it);
        Ok(if ends_drain { format!("{told}; its drain is ended") } else { told })
    })
    .await
}

/// The service once it has confirmed its order: the next command finds it in its new state. If it does not confirm the order in time,
/// as it is then.
async fn confirmed(client: &Client, it: api::Service) -> api::Service {
    confirmed_within(client, it, CONFIRMED_WITHIN).await
}

/// The same for a caller who waits for this time.
async fn confirmed_within(client: &Client, mut it: api::Service, most: Duration) -> api::Service {
    let begun = Instant::now();
    while it.unconfirmed.is_some() && begun.elapsed() < most {
        tokio::time::sleep(CONFIRMED_EVERY).await;
        let Ok(now) = client.read(&path(&it.name)).await else { break };
        it = now;
    }
    it
}

async fn order(
    client: &Client,
    name: &str,
    verb: &str,
    body: Option<&Value>,
) -> anyhow::Result<api::Service> {
    let path = format!("{}/{verb}", path(name));
    hinted(client, (unknown::SERVICES, name), client.send(Method::POST, &path, body)).await
}

async fn list(client: &Client, which: &WhichServices, watched: &Watched) -> anyhow::Result<()> {
    let living = ["active", "standby", "cordoned", "draining", "suspect"].map(str::to_owned);
    let states = match which {
        WhichServices { all: true, .. } => String::new(),
        WhichServices { state, .. } if state.is_empty() => living.join(","),
        WhichServices { state, .. } => state.join(","),
    };
    let mut path = "/v1/services?limit=1000".to_owned();
    for (key, value) in [("state", Some(states)), ("pool", which.pool.clone())] {
        if let Some(value) = value.filter(|value| !value.is_empty()) {
            path.push_str(&format!("&{key}={}", Client::part(&value)));
        }
    }
    let found = operations::number_of_listed(client, &path, &SERVICES, watched).await?;
    if !which.all && which.state.is_empty() && !watched.watch && watched.shown.is_table() {
        warn_of_lost(client, which.pool.as_deref()).await;
    }
    if found == 0 {
        unknown::check(client, Named { pool: which.pool.as_deref(), ..Named::default() }).await?;
    }
    Ok(())
}

/// Names the services that were lost lately and are not back: the list of living services has no row for them.
async fn warn_of_lost(client: &Client, pool: Option<&str>) {
    let pool = pool.map_or_else(String::new, |pool| format!("&pool={}", Client::part(pool)));
    let path = format!("/v1/services?missing=true&limit=1000{pool}");
    let Ok(missing) = client.read::<api::Listed<api::Service>>(&path).await else { return };
    let cordoned = |it: &api::Service| if it.cordoned { " (its next process is cordoned)" } else { "" };
    let names = missing.items.iter().map(|it| format!("{}{}", it.name, cordoned(it)));
    let names: Vec<String> = names.collect();
    if !names.is_empty() {
        let (names, have) = (names.join(", "), if names.len() == 1 { "has" } else { "have" });
        note(&format!("lost in the last 10 minutes, and {have} not come back: {names}"));
    }
}

async fn drain(client: &Client, asked: &Drain) -> anyhow::Result<()> {
    let mut body = Map::new();
    if asked.force {
        body.insert("force".to_owned(), json!(true));
    }
    if let Some(per_second) = asked.per_second {
        body.insert("per_second".to_owned(), json!(per_second));
    }
    if let Some(within) = asked.within {
        body.insert("within".to_owned(), json!(clock::show(within)));
    }
    let body = &Value::Object(body);
    let one = |name| drain_one(client, name, (body, asked.wait));
    let done = if asked.wait.is_some() { "drained" } else { "asked to drain" };
    let drained = fan_out::each(&asked.services.names, done, one).await;
    if asked.wait.is_none() {
        warn_of_room(client).await;
    }
    drained
}

/// Names the pools that have too few free slots for the drains in progress.
async fn warn_of_room(client: &Client) {
    let path = "/v1/services?state=active,draining&limit=1000";
    let Ok(all) = client.read::<api::Listed<api::Service>>(path).await else { return };
    for told in lacking(&all.items) {
        note(&told);
    }
}

/// What follows if a service hands over more observers than the other services of its pool have room for, because of its new capacity.
fn homeless(before: &[api::Service], name: &str, slots: u32) -> Option<String> {
    let it = before.iter().find(|it| it.name == name)?;
    let others: Vec<_> = before.iter().filter(|other| other.pool == it.pool && other.id != it.id).collect();
    // A standby takes over everything.
    if others.iter().any(|it| it.state == ServiceState::Standby) {
        return None;
    }
    let free: u32 = others.iter().filter(|it| it.state == ServiceState::Active).map(|it| it.free).sum();
    let surplus = it.held.saturating_sub(slots);
    let homeless = u64::from(surplus.saturating_sub(free));
    let (needed, room) = (counted(u64::from(surplus), "slot"), counted(u64::from(free), "slot"));
    (homeless > 0).then(|| {
        format!(
            "{name} hands over observers that use {needed}, and the other services of pool {} have {room} free: the rest runs \
             nowhere until there are more",
            it.pool
        )
    })
}

/// For each pool whose active services have too few free slots for its drains, how many observers wait.
fn lacking(services: &[api::Service]) -> Vec<String> {
    let mut pools = BTreeMap::<&str, (u64, u64)>::new();
    for it in services {
        let (to_move, free) = pools.entry(&it.pool).or_default();
        match &it.drain {
            Some(drain) => *to_move += u64::from(drain.of.saturating_sub(drain.moved)),
            None if it.state == ServiceState::Active => *free += u64::from(it.free),
            None => {}
        }
    }
    let short = pools.into_iter().filter(|(_, (to_move, free))| to_move > free);
    let told = |(pool, (to_move, free)): (&str, (u64, u64))| {
        let observers = counted(to_move, "observer");
        let (room, those) = match free {
            0 => ("no free slot".to_owned(), "they"),
            free => (counted(free, "free slot"), "the others"),
        };
        format!(
            "pool {pool} has {room} for the {observers} to be handed over; {those} wait: `everwatch doctor` says what helps"
        )
    };
    short.map(told).collect()
}

/// Prints the progress if the user waits; returns the last line.
async fn drain_one(
    client: &Client,
    name: &str,
    (body, wait): (&Value, Option<Duration>),
) -> anyhow::Result<String> {
    let begun = Instant::now();
    let asked = order(client, name, "drain", Some(body)).await?;
    let most = wait.map_or(CONFIRMED_WITHIN, |wait| wait.min(CONFIRMED_WITHIN));
    let mut it = confirmed_within(client, asked, most).await;
    let mut told = String::new();
    loop {
        let now = Order::Drain.told(&it);
        // After the drain, the service says within a second that it is only cordoned.
        let is_over = it.drain.is_none() && it.state != ServiceState::Draining;
        let Some(wait) = wait.filter(|_| !is_over) else { return Ok(now) };
        // The caller prints the end.
        if now != told && it.drain.is_some() {
            answer(&now);
        }
        told = now;
        if begun.elapsed() >= wait {
            let text = format!("not over after {}: {told}; the drain continues", clock::show(wait));
            return Err(Failure::TimedOut(text).into());
        }
        tokio::time::sleep(LOOK_EVERY).await;
        it = client.read(&path(name)).await?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(name: &str, pool: &str, (state, held, drain): (&str, u32, Option<[u32; 2]>)) -> api::Service {
        let drain = drain.map(|[of, moved]| {
            json!({"asked_at": null, "of": of, "moved": moved, "per_second": 10, "until": null, "force": false, "waits": null})
        });
        let at = clock::now();
        serde_json::from_value::<api::Service>(json!({"id": uuid::Uuid::new_v4(), "name": name, "pool": pool, "capacity": 10,
            "held": held, "free": 10 - held, "state": state, "kinds": [], "version": "1", "host": "h", "created_at": at,
            "modified_at": at, "last_heartbeat_at": at, "is_deleted": false, "cordoned": drain.is_some(), "drain": drain}))
        .unwrap()
    }

    #[test]
    fn a_capacity_that_leaves_observers_without_a_slot_is_told() {
        let all = [
            service("a", "default", ("active", 8, None)),
            service("b", "default", ("active", 7, None)),
            service("c", "default", ("cordoned", 0, None)),
            service("d", "gpu", ("active", 0, None)),
        ];
        assert_eq!(homeless(&all, "a", 5), None, "b has room for 3");
        let told = "a hands over observers that use 4 slots, and the other services of pool default have 3 slots free: the rest \
                    runs nowhere until there are more";
        assert_eq!(homeless(&all, "a", 4).as_deref(), Some(told));
        assert_eq!(homeless(&all, "a", 20), None);
    }

    #[test]
    fn drains_that_have_too_few_free_slots_elsewhere_are_told_by_pool() {
        let mut all = vec![
            service("a", "default", ("draining", 8, Some([8, 1]))),
            service("b", "default", ("draining", 5, Some([5, 0]))),
            service("c", "default", ("active", 7, None)),
            service("d", "default", ("cordoned", 0, None)),
            service("a", "gpu", ("draining", 4, Some([4, 0]))),
            service("b", "gpu", ("active", 6, None)),
        ];
        let told = |room, those| {
            format!(
                "pool default has {room} for the 12 observers to be handed over; {those} wait: `everwatch doctor` says what helps"
            )
        };
        assert_eq!(lacking(&all), [told("3 free slots", "the others")]);
        let active = all.remove(2);
        assert_eq!(lacking(&all), [told("no free slot", "they")]);
        all.insert(2, active);
        all.remove(0);
        all.push(service("e", "default", ("active", 8, None)));
        assert_eq!(lacking(&all), [""; 0]);
    }
}
