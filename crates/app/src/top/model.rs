//! The state of the screen. Each input changes the state and returns effects. Independent of terminal, HTTP
//! and clock.

use super::body::Body;
use super::feed::{FeedPart, Subject};
use super::incident::{RecentIncidents, has_changed};
use super::misplaced::{Place, nothing_selected};
use super::query::Query;
use super::seen::{Seen, Service, place_of};
use super::target::{Focus, Room, Target};
use super::timeline::Span;
use crate::live;
use crate::output::{TonedLine, time_of_day};
use crossterm::event::KeyEvent;
use everwatch_api::{Finding, Incident};
use everwatch_core::clock::Timestamp;
use std::time::Duration;

/// How many actions of the user may be in progress at once.
const DOING_MAX: usize = 8;
/// How long a message about a success, and one about a failure, stays on the screen if no key is pressed.
const WELL_FOR: Duration = Duration::from_secs(5);
const BADLY_FOR: Duration = Duration::from_secs(15);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Verb {
    Delete,
    Pause,
    Resume,
    Restart,
    Move,
    Retry,
    Cordon,
    Uncordon,
    Drain,
}

impl Verb {
    /// The verb in the path of the request.
    pub(super) fn word(self) -> &'static str {
        match self {
            Self::Delete => "delete",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Restart => "restart",
            Self::Move => "move",
            Self::Retry => "retry",
            Self::Cordon => "cordon",
            Self::Uncordon => "uncordon",
            Self::Drain => "drain",
        }
    }
}

/// An action that the user requests.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) target: Target,
    pub(super) verb: Verb,
    /// The service to which to move.
    pub(super) to: Option<String>,
}

/// An effect that the loop must perform.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    Load(Query),
    Describe(Target),
    Do(Wish),
    /// Read and follow a log or events; ends what was followed before.
    Follow(Subject),
    /// End what is followed.
    Unfollow,
    Timeline(Span),
    /// Read the incidents of the last minutes.
    Incidents,
    Quit,
}

/// Why a request failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// No manager answers.
    Unreachable(String),
    /// The manager refuses the request.
    Refused(String),
}

#[derive(Debug)]
pub(super) enum Input {
    Key(KeyEvent),
    /// The number of observer rows that fit the screen has changed.
    Rows(usize),
    /// The columns and lines that fit a view in place of the lists.
    Room(usize, usize),
    /// An event arrived, or the reload interval has passed.
    Changed,
    Tick(Timestamp),
    Loaded(Query, Result<Box<Seen>, Trouble>),
    Described(Target, Result<String, Trouble>),
    Done(Wish, Result<String, Trouble>),
    Fed(Subject, FeedPart),
    Timeline(Span, Result<Vec<TonedLine>, Trouble>),
    /// `None`: the request failed.
    Incidents(Option<Vec<Incident>>),
    /// Findings of the doctor, the worst first.
    Problems(Vec<Finding>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    Browse,
    /// The user types a filter.
    Typing(String),
    /// The screen asks the user to confirm an action.
    /// The user must confirm it, or choose the service to which to move.
    Asking(Wish, Vec<Room>),
    /// The details of one object are open, scrolled to this line.
    Details {
        target: Target,
        text: String,
        from: usize,
    },
    Help,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Link {
    Connecting,
    Up,
    Lost { since: Timestamp, why: String },
}

/// A message to the user about a success or a failure.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    Well(String),
    Badly(String),
}

impl Said {
    fn stays(&self) -> Duration {
        match self {
            Self::Well(_) => WELL_FOR,
            Self::Badly(_) => BADLY_FOR,
        }
    }
}

#[derive(Debug)]
pub(super) struct Model {
    pub(super) server: String,
    pub(super) now: Timestamp,
    pub(super) link: Link,
    pub(super) seen: Option<Seen>,
    pub(super) query: Query,
    pub(super) focus: Focus,
    /// The selected rows.
    pub(super) service: usize,
    pub(super) observer: usize,
    pub(super) body: Body,
    pub(super) mode: Mode,
    /// The columns and lines that fit a view in place of the lists.
    pub(super) room: (usize, usize),
    pub(super) said: Option<Said>,
    /// What was loaded, and is shown once the incidents are read.
    arrived: Option<(Query, Box<Seen>)>,
    pub(super) incidents: RecentIncidents,
    /// The warnings and critical findings of the doctor, the worst first.
    pub(super) problems: Vec<Finding>,
    said_at: Timestamp,
    /// The query that the shown observers belong to.
    shown: Query,
    loading: bool,
    load_again: bool,
    describing: bool,
    doing: usize,
}

impl Model {
    pub(super) fn new(server: &str, now: Timestamp) -> Self {
        Self {
            server: server.to_owned(),
            now,
            link: Link::Connecting,
            seen: None,
            query: Query { rows: 1, ..Query::default() },
            focus: Focus::Observers,
            service: 0,
            observer: 0,
            body: Body::Lists,
            mode: Mode::Browse,
            room: (1, 1),
            said: None,
            arrived: None,
            incidents: RecentIncidents::default(),
            problems: Vec::new(),
            said_at: now,
            shown: Query::default(),
            loading: false,
            load_again: false,
            describing: false,
            doing: 0,
        }
    }

    pub(super) fn on(&mut self, input: Input) -> Vec<Effect> {
        match input {
            Input::Key(key) => self.on_key(key),
            Input::Rows(rows) if rows == self.query.rows => Vec::new(),
            Input::Rows(rows) => {
                self.query.rows = rows.max(1);
                self.load()
            }
            Input::Room(columns, lines) => {
                self.room = (columns, lines);
                self.body.resize(self.room);
                self.timeline_if_due()
            }
            Input::Changed => self.load(),
            Input::Tick(now) => {
                self.now = now;
                let age = now.since(self.said_at);
                self.said.take_if(|said| age >= said.stays());
                let mut effects = self.timeline_if_due();
                effects.extend(self.incidents_if_due());
                effects
            }
            Input::Loaded(query, outcome) => self.on_loaded(&query, outcome),
            Input::Described(target, outcome) => self.on_described(&target, outcome),
            Input::Done(wish, outcome) => self.on_done(&wish, outcome),
            Input::Fed(subject, part) => {
                self.on_fed(&subject, part);
                Vec::new()
            }
            Input::Timeline(span, outcome) => self.on_timeline(span, outcome),
            Input::Problems(found) => {
                self.problems = found;
                Vec::new()
            }
            Input::Incidents(read) => {
                self.incidents.take(read);
                // The query may have changed since.
                if let Some((query, seen)) = self.arrived.take().filter(|(it, _)| it.starts_like(&self.query))
                {
                    self.show(query, *seen);
                }
                Vec::new()
            }
        }
    }

    /// Starts a load. Only one load is in progress at a time; a request in the meantime causes one more load
    /// afterwards.
    pub(super) fn load(&mut self) -> Vec<Effect> {
        if self.loading {
            self.load_again = true;
            return Vec::new();
        }
        (self.loading, self.load_again) = (true, false);
        vec![Effect::Load(self.query.clone())]
    }

    /// Changes the query and reloads.
    pub(super) fn turn_to(&mut self, query: Query) -> Vec<Effect> {
        self.query = query;
        self.load()
    }

    fn on_loaded(&mut self, query: &Query, outcome: Result<Box<Seen>, Trouble>) -> Vec<Effect> {
        self.loading = false;
        let mut effects = Vec::new();
        match outcome {
            // The query has changed since this request was sent.
            Ok(_) if !query.starts_like(&self.query) => self.link = Link::Up,
            Ok(seen) if seen.observers.items.is_empty() && !self.query.pages.is_empty() => {
                self.query.pages.pop();
                self.load_again = true;
            }
            Ok(seen) => effects.extend(self.on_seen(query.clone(), seen)),
            Err(Trouble::Unreachable(why)) => {
                let since = match &self.link {
                    Link::Lost { since, .. } => *since,
                    Link::Connecting | Link::Up => self.now,
                };
                self.link = Link::Lost { since, why };
            }
            Err(Trouble::Refused(why)) => {
                self.link = Link::Up;
                self.on_refused(query, why);
            }
        }
        if self.load_again {
            effects.extend(self.load());
        }
        effects.extend(self.describe_again());
        effects
    }

    /// After a change, shows what was loaded once the incidents are read, too: the list and the line about the last incident tell
    /// the same. The first screen and another page are shown at once.
    fn on_seen(&mut self, query: Query, seen: Box<Seen>) -> Option<Effect> {
        // Behind a connection that was lost, there may be another manager.
        let is_new = !matches!(self.link, Link::Up);
        if is_new || self.seen.as_ref().is_none_or(|before| has_changed(before, &seen)) {
            self.incidents.watch(self.now);
        }
        let effect = self.incidents.is_due_with_load(self.now).then_some(Effect::Incidents);
        self.link = Link::Up;
        let is_same_page = self.seen.is_some() && query.starts_like(&self.shown);
        if is_same_page && self.incidents.is_loading() {
            self.arrived = Some((query, seen));
        } else {
            self.arrived = None;
            self.show(query, *seen);
        }
        effect
    }

    /// The reload interval while no event arrives. Services tell in heartbeats how much they hold, and these are no
    /// events: so it is shorter while observers may start elsewhere.
    pub(super) fn look_every(&self) -> Duration {
        if self.incidents.has_changed_lately(self.now) { live::LOOK_SOON } else { live::LOOK_EVERY }
    }

    fn incidents_if_due(&mut self) -> Option<Effect> {
        self.incidents.is_due(self.now).then_some(Effect::Incidents)
    }

    /// Shows the refusal. A filter or order that is refused does not replace the one whose observers are shown.
    fn on_refused(&mut self, query: &Query, why: String) {
        let is_new_filter = query.filter != self.shown.filter;
        self.say(Said::Badly(if is_new_filter { format!("filter {}: {why}", query.filter) } else { why }));
        self.query.pages.clear();
        // The user may have chosen another filter meanwhile.
        if (&query.filter, query.sort) == (&self.query.filter, self.query.sort) {
            self.query = Query { rows: self.query.rows, ..self.shown.clone() };
        }
    }

    /// Shows the loaded data. The same object stays selected, even if its row has moved.
    fn show(&mut self, query: Query, seen: Seen) {
        let observer = self.selected(Focus::Observers).map(|it| it.id);
        let service = self.selected_service().cloned();
        let at =
            |found: Option<usize>, old: usize, len: usize| found.unwrap_or(old).min(len.saturating_sub(1));
        let items = &seen.observers.items;
        let found = items.iter().position(|it| Some(&it.id) == observer.as_ref());
        self.observer = at(found, self.observer, items.len());
        let before = self.seen.as_ref().map_or(&[][..], |seen| &seen.services);
        let found = service.and_then(|was| place_of(&was, before, &seen.services));
        self.service = at(found, self.service, seen.services.len());
        (self.seen, self.shown) = (Some(seen), query);
    }

    pub(super) fn say(&mut self, said: Said) {
        (self.said, self.said_at) = (Some(said), self.now);
    }

    /// Whether another page is being loaded.
    pub(super) fn is_turning(&self) -> bool {
        !self.shown.starts_like(&self.query)
    }

    /// The pool of a service, the slots in use, and the free slots of the other services of its pool that take observers.
    pub(super) fn room_for_drain(&self, id: &str) -> Option<(&str, u32, u64)> {
        let services = &self.seen.as_ref()?.services;
        let it = services.iter().find(|it| it.id == id)?;
        let others =
            services.iter().filter(|other| other.id != id && other.pool == it.pool && other.is_able());
        let free = others.map(|other| u64::from(other.capacity.saturating_sub(other.held))).sum();
        Some((&it.pool, it.held, free))
    }

    /// The ids of the services that are seen.
    pub(super) fn services(&self) -> Vec<String> {
        let services = self.seen.iter().flat_map(|seen| &seen.services);
        services.map(|it| it.id.clone()).collect()
    }

    /// How many observers stand before those that are seen.
    pub(super) fn before(&self) -> usize {
        self.shown.pages.last().map_or(0, |(_, before)| *before)
    }

    /// What stands in the selected row.
    pub(super) fn selected(&self, what: Focus) -> Option<Target> {
        let seen = self.seen.as_ref()?;
        let (id, name) = match what {
            Focus::Observers => seen.observers.items.get(self.observer).map(|it| (&it.id, &it.name)),
            Focus::Services => seen.services.get(self.service).map(|it| (&it.id, &it.name)),
        }?;
        Some(Target { what, id: id.clone(), name: name.clone() })
    }

    pub(super) fn selected_service(&self) -> Option<&Service> {
        self.seen.as_ref()?.services.get(self.service)
    }

    /// Reloads the open details whenever the lists are reloaded.
    fn describe_again(&mut self) -> Option<Effect> {
        match &self.mode {
            Mode::Details { target, .. } if !self.describing => {
                self.describing = true;
                Some(Effect::Describe(target.clone()))
            }
            _ => None,
        }
    }

    pub(super) fn describe(&mut self, target: Target) -> Vec<Effect> {
        self.mode = Mode::Details { target, text: "…".to_owned(), from: 0 };
        self.describe_again().into_iter().collect()
    }

    fn on_described(&mut self, about: &Target, outcome: Result<String, Trouble>) -> Vec<Effect> {
        self.describing = false;
        let Mode::Details { target, text, from } = &mut self.mode else { return Vec::new() };
        if target != about {
            return self.describe_again().into_iter().collect();
        }
        match outcome {
            Ok(told) => *text = told,
            Err(Trouble::Unreachable(why) | Trouble::Refused(why)) if text == "…" => *text = why,
            Err(_) => {}
        }
        *from = (*from).min(text.lines().count().saturating_sub(1));
        Vec::new()
    }

    /// Performs an action. Asks for confirmation first if an accidental key press would end a run.
    pub(super) fn wish(&mut self, verb: Verb) -> Vec<Effect> {
        let lost = self.selected_service().filter(|it| self.focus == Focus::Services && it.is_lost());
        if let Some(lost) = lost {
            let at = time_of_day(lost.modified_at, self.now);
            let why = format!("{} was lost at {at}: select a living service", lost.name);
            self.say(Said::Badly(why));
            return Vec::new();
        }
        let Some(target) = self.selected(self.focus) else { return self.lacks_selection() };
        let rooms = if verb == Verb::Move { self.rooms_for(&target.id) } else { Vec::new() };
        let wish = Wish { target, verb, to: None };
        match verb {
            Verb::Pause if self.has_ended(&wish.target.id) => {
                self.say(Said::Badly(format!(
                    "{} has ended, so there is nothing to pause",
                    wish.target.name
                )));
                Vec::new()
            }
            Verb::Delete | Verb::Pause | Verb::Restart | Verb::Move | Verb::Drain => {
                self.mode = Mode::Asking(wish, rooms);
                Vec::new()
            }
            Verb::Resume | Verb::Retry | Verb::Cordon | Verb::Uncordon => self.carry_out(wish),
        }
    }

    pub(super) fn carry_out(&mut self, wish: Wish) -> Vec<Effect> {
        self.mode = Mode::Browse;
        if self.doing >= DOING_MAX {
            self.say(Said::Badly(format!("{DOING_MAX} requests are under way: wait until one has finished")));
            return Vec::new();
        }
        self.doing += 1;
        self.say(Said::Well(format!("{} {} …", wish.verb.word(), wish.target.name)));
        vec![Effect::Do(wish)]
    }

    /// The part of the screen that gets the keys, apart from questions and help.
    pub(super) fn place(&self) -> Place {
        match (&self.mode, &self.body, self.focus) {
            (Mode::Details { .. }, ..) => Place::Details,
            (_, Body::Feed(_), _) => Place::Feed,
            (_, Body::Timeline(_), _) => Place::Timeline,
            (_, Body::Lists, Focus::Observers) => Place::Observers,
            (_, Body::Lists, Focus::Services) => Place::Services,
        }
    }

    pub(super) fn lacks_selection(&mut self) -> Vec<Effect> {
        self.say(Said::Badly(nothing_selected(self.place()).to_owned()));
        Vec::new()
    }

    fn on_done(&mut self, wish: &Wish, outcome: Result<String, Trouble>) -> Vec<Effect> {
        self.doing = self.doing.saturating_sub(1);
        let asked = format!("{} {}", wish.verb.word(), wish.target.name);
        self.say(match outcome {
            Ok(told) => Said::Well(told),
            Err(Trouble::Unreachable(why) | Trouble::Refused(why)) => Said::Badly(format!("{asked}: {why}")),
        });
        self.load()
    }
}
