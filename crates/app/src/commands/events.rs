//! `everwatch events` and `everwatch observer events`: prints past events and follows new ones.

use super::unknown::{self, Named, hinted};
use crate::cli::{EventPart as Asked, Events, OutputArgs};
use crate::client::{Client, Failure};
use crate::item::Item;
use crate::live::events::{self, EventFollower, EventPart, EventQuery};
use crate::output::{self, EVENTS, Lines, Output, Root, TerminalStyle, note, print};
use crate::requests::{path as observer_path, service_path};
use everwatch_api::{Event, Listed, Observer, Service};
use everwatch_core::clock::{self, Timestamp};
use everwatch_core::wording::counted;
use futures::{StreamExt as _, TryStreamExt as _};
use std::collections::HashSet;

/// The number of past events to show if the user names none: without a time, and with one.
const LIMIT: u32 = 20;
const LIMIT_SINCE: u32 = 1000;
/// The most observers that a selector may select.
const SELECTED_MAX: u64 = 100;
/// The most processes of a service whose events are shown, the newest ones.
const PROCESSES_MAX: usize = 100;
/// Requests under way at once.
const AT_ONCE: usize = 16;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn everywhere(server: &str, asked: &Events) -> anyhow::Result<()> {
    let client = Client::new(server)?;
    let path = match (&asked.observer, &asked.service) {
        (Some(name), _) => {
            let path = format!("{}/events", observer_path(name));
            return hinted(&client, (unknown::OBSERVERS, name), run(&client, &path, &asked.part)).await;
        }
        (None, Some(name)) => {
            let path = service_path(name);
            let it: Service = hinted(&client, (unknown::SERVICES, name), client.read(&path)).await?;
            if it.name == *name {
                return of_service(&client, name, &asked.part).await;
            }
            format!("/v1/events?service={}", it.id)
        }
        (None, None) if !asked.selectors.is_empty() => return selected(&client, asked).await,
        (None, None) => format!("/v1/events?details={}", asked.details),
    };
    run(&client, &path, &asked.part).await
}

/// The events of the observers that match a selector now.
async fn selected(client: &Client, asked: &Events) -> anyhow::Result<()> {
    let selector = asked.selectors.join(",");
    let query = format!("/v1/observers?limit={SELECTED_MAX}&sort=name&selector={}", Client::part(&selector));
    let found: Listed<Observer> = client.read(&query).await?;
    if found.total > SELECTED_MAX {
        let total = found.total;
        let text = format!(
            "{total} observers match `{selector}`, and the limit is {SELECTED_MAX}: narrow the selector"
        );
        return Err(Failure::Usage(text).into());
    }
    if found.items.is_empty() {
        note("no observers");
        return Ok(unknown::check(client, Named::default()).await?);
    }
    let ids: Vec<String> = found.items.iter().map(|it| it.id.to_string()).collect();
    show(client, Scope::Observers(&ids), &asked.part).await
}

/// The events of the service, also of its former processes.
async fn of_service(client: &Client, name: &str, asked: &Asked) -> anyhow::Result<()> {
    let path = format!("/v1/services?name={}&limit=1000", Client::part(name));
    let mut all = client.read::<Listed<Service>>(&path).await?.items;
    all.sort_by_key(|it| std::cmp::Reverse(it.created_at));
    all.truncate(PROCESSES_MAX);
    let ids: Vec<String> = all.iter().map(|it| it.id.to_string()).collect();
    show(client, Scope::Service { name, ids: &ids }, asked).await
}

/// The events below `path`.
pub(super) async fn run(client: &Client, path: &str, asked: &Asked) -> anyhow::Result<()> {
    show(client, Scope::Path(path), asked).await
}

/// Whose events are shown.
#[derive(Clone, Copy)]
enum Scope<'a> {
    Path(&'a str),
    /// Of the observers with these ids.
    Observers(&'a [String]),
    /// Of the processes of this service: those with these ids, and those that register later.
    Service {
        name: &'a str,
        ids: &'a [String],
    },
}

impl Scope<'_> {
    fn has(self, event: &Event) -> bool {
        match self {
            Self::Path(_) => true,
            Self::Observers(ids) => {
                event.observer.as_ref().is_some_and(|it| ids.contains(&it.id.to_string()))
            }
            Self::Service { name, .. } => event.service.as_ref().is_some_and(|it| it.name == name),
        }
    }
}

/// The newest events of the scope, the oldest first, and a follower of the later ones.
async fn read<'a>(
    client: &'a Client,
    scope: Scope<'_>,
    (types, since, limit): (String, Option<Timestamp>, u32),
) -> anyhow::Result<(Listed<Item<Event>>, EventFollower<'a>)> {
    let of = |path: String| EventQuery { path, types: types.clone(), since, limit };
    let ids = match scope {
        Scope::Path(path) => return events::read(client, &of(path.to_owned())).await,
        Scope::Observers(ids) | Scope::Service { ids, .. } => ids,
    };
    let history_of = |id: &String| match scope {
        Scope::Service { .. } => format!("/v1/events?service={id}"),
        _ => format!("{}/events", observer_path(id)),
    };
    // The obvious order is the histories first, but then events that arrive meanwhile are in neither. The follower begins
    // before them instead, so its first events may be in the histories too.
    let newest = EventQuery { limit: 1, ..of("/v1/events?details=true".to_owned()) };
    let (_, follower) = events::read(client, &newest).await?;
    let one = |id: &'_ String| {
        let query = of(history_of(id));
        async move { events::history(client, &query).await }
    };
    let pages: Vec<_> = futures::stream::iter(ids).map(one).buffered(AT_ONCE).try_collect().await?;
    let total = pages.iter().map(|page| page.total).sum();
    let mut all: Vec<_> = pages.into_iter().flat_map(|page| page.items).collect();
    all.sort_by_key(|event| (event.at, event.id));
    let items = all.split_off(all.len().saturating_sub(limit as usize));
    Ok((Listed { items, next_cursor: None, total }, follower))
}

async fn show(client: &Client, scope: Scope<'_>, asked: &Asked) -> anyhow::Result<()> {
    let since = asked.since.map(|since| since.of(clock::now()));
    let limit = asked.limit.unwrap_or(if since.is_some() { LIMIT_SINCE } else { LIMIT });
    let (history, mut follower) = read(client, scope, (asked.kinds.join(","), since, limit)).await?;
    let (history, total) = (history.items, history.total);
    let known: HashSet<i64> = history.iter().map(|event| event.id).collect();
    if let Some(text) = left_out(history.len(), total, since, asked) {
        note(&text);
    }
    let mut told =
        EventPrinter { lines: Lines::new(&EVENTS, &asked.shown, TerminalStyle::stdout()), begun: false };
    if history.is_empty() && !asked.follow {
        note("no events");
    }
    told.tell(&history, &asked.shown)?;
    output::warn_of_columns(&history, &asked.shown);
    if let Output::JsonPath(path) = &asked.shown.output
        && !history.is_empty()
        && history.iter().all(|it| output::values(path, it, Root::Object).is_empty())
    {
        note(
            "the path selects nothing; events are printed one by one, so a path begins with a field of an event, as in {.type}",
        );
    }
    if !asked.follow {
        return Ok(());
    }
    loop {
        for part in follower.next().await? {
            match part {
                EventPart::Opened => {}
                EventPart::Lost => note("connection lost; reconnecting"),
                EventPart::Event(event) if !scope.has(&event) || known.contains(&event.id) => {}
                EventPart::Event(event) => told.tell(std::slice::from_ref(&event), &asked.shown)?,
            }
        }
    }
}

/// That older events are not shown. A user who follows or asks for a number of events expects no others.
fn left_out(shown: usize, total: u64, since: Option<Timestamp>, asked: &Asked) -> Option<String> {
    let expects = since.is_none() && (asked.follow || asked.limit.is_some());
    if total <= shown as u64 || expects {
        return None;
    }
    let all = counted(total, "event");
    Some(match since {
        Some(since) => format!("the newest {shown} of {all} since {since} are shown"),
        None => format!("the newest {shown} of {all} are shown; `--limit` shows more"),
    })
}

/// Prints events, and remembers whether it has printed the head of the table.
struct EventPrinter {
    lines: Lines<Event>,
    begun: bool,
}

impl EventPrinter {
    fn tell(&mut self, events: &[Item<Event>], shown: &OutputArgs) -> anyhow::Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let now = clock::now();
        match &shown.output {
            _ if shown.is_table() && !self.begun => print(&self.lines.page(events, now)),
            Output::Table | Output::Wide | Output::Columns(_) => {
                self.lines.rows(events, now).iter().for_each(|row| print(row));
            }
            Output::Json => events.iter().for_each(|it| print(&it.sent().to_string())),
            Output::Yaml => {
                for it in events {
                    print(&format!("---\n{}", output::yaml(it)?));
                }
            }
            Output::Name => events.iter().for_each(|it| print(&it.id.to_string())),
            Output::JsonPath(path) => {
                let values = events.iter().flat_map(|it| output::values(path, it, Root::Object));
                values.for_each(|value| print(&value));
            }
        }
        self.begun = true;
        Ok(())
    }
}
