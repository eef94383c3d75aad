//! What the screen is about: an input makes a new state and effects. Knows no terminal, no HTTP, no clock.

use super::seen::Seen;
use crossterm::event::KeyEvent;
use everwatch_core::clock::Timestamp;
use std::time::Duration;

/// Requests of a person that are under way at once.
const DOING_MAX: usize = 8;
/// How long a line for the person stands.
const SAID_FOR: Duration = Duration::from_secs(10);

/// What is shown of the observers; a page starts after its cursor.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Query {
    pub(super) filter: String,
    pub(super) sort: Sort,
    pub(super) rows: usize,
    /// Where the pages above the first start, each with how many observers stand before it.
    pub(super) pages: Vec<(String, usize)>,
}

impl Query {
    /// Whether the answers begin with the same observer, however many there are.
    fn starts_like(&self, other: &Self) -> bool {
        (&self.filter, self.sort, &self.pages) == (&other.filter, other.sort, &other.pages)
    }
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) enum Sort {
    #[default]
    Name,
    NameDown,
    Oldest,
    Newest,
}

impl Sort {
    pub(super) fn next(self) -> Self {
        match self {
            Self::Name => Self::NameDown,
            Self::NameDown => Self::Newest,
            Self::Newest => Self::Oldest,
            Self::Oldest => Self::Name,
        }
    }
    /// Its id, and its name.
    pub(super) fn words(self) -> (&'static str, &'static str) {
        match self {
            Self::Name => ("name", "by name"),
            Self::NameDown => ("-name", "by name, backwards"),
            Self::Newest => ("-created_at", "newest first"),
            Self::Oldest => ("created_at", "oldest first"),
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Focus {
    Services,
    Observers,
}

/// One thing on the screen.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Target {
    pub(super) what: Focus,
    pub(super) id: String,
    pub(super) name: String,
}

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
    /// As it is asked of the manager.
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

/// What a person wants done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) target: Target,
    pub(super) verb: Verb,
}

/// What the loop is to do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Effect {
    Load(Query),
    Describe(Target),
    Do(Wish),
    Quit,
}

/// Why nothing could be shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Trouble {
    /// No manager answers.
    Unreachable(String),
    /// The manager does not do it.
    Refused(String),
}

#[derive(Debug)]
pub(super) enum Input {
    Key(KeyEvent),
    /// So many observers have room.
    Rows(usize),
    /// Something happened, or it is time to look again.
    Changed,
    Tick(Timestamp),
    Loaded(Query, Result<Box<Seen>, Trouble>),
    Described(Target, Result<String, Trouble>),
    Done(Wish, Result<String, Trouble>),
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Mode {
    Browse,
    /// A filter is typed.
    Typing(String),
    /// Whether it is really meant.
    Asking(Wish),
    /// Everything about one thing, from this line on.
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

/// A line for the person, good or bad.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Said {
    Well(String),
    Badly(String),
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
    pub(super) mode: Mode,
    pub(super) said: Option<Said>,
    said_at: Timestamp,
    /// What the observers that are seen answer.
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
            mode: Mode::Browse,
            said: None,
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
            Input::Changed => self.load(),
            Input::Tick(now) => {
                self.now = now;
                if now.since(self.said_at) > SAID_FOR {
                    self.said = None;
                }
                Vec::new()
            }
            Input::Loaded(query, outcome) => self.on_loaded(&query, outcome),
            Input::Described(target, outcome) => self.on_described(&target, outcome),
            Input::Done(wish, outcome) => self.on_done(&wish, outcome),
        }
    }

    /// One load at a time: what is asked meanwhile is asked after it.
    pub(super) fn load(&mut self) -> Vec<Effect> {
        if self.loading {
            self.load_again = true;
            return Vec::new();
        }
        (self.loading, self.load_again) = (true, false);
        vec![Effect::Load(self.query.clone())]
    }

    /// What is shown is no longer what is wanted.
    pub(super) fn turn_to(&mut self, query: Query) -> Vec<Effect> {
        self.query = query;
        self.load()
    }

    fn on_loaded(&mut self, query: &Query, outcome: Result<Box<Seen>, Trouble>) -> Vec<Effect> {
        self.loading = false;
        match outcome {
            // The selection has changed since this request.
            Ok(_) if !query.starts_like(&self.query) => self.link = Link::Up,
            Ok(seen) if seen.observers.items.is_empty() && !self.query.pages.is_empty() => {
                self.query.pages.pop();
                self.load_again = true;
            }
            Ok(seen) => {
                self.show(*seen);
                self.shown = query.clone();
            }
            Err(Trouble::Unreachable(why)) => {
                let since = match &self.link {
                    Link::Lost { since, .. } => *since,
                    Link::Connecting | Link::Up => self.now,
                };
                self.link = Link::Lost { since, why };
            }
            Err(Trouble::Refused(why)) => {
                self.link = Link::Up;
                self.say(Said::Badly(why));
                self.query.pages.clear();
            }
        }
        let mut effects = if self.load_again { self.load() } else { Vec::new() };
        effects.extend(self.describe_again());
        effects
    }

    /// The selection stays with what was selected, wherever that stands now.
    fn show(&mut self, seen: Seen) {
        let observer = self.selected(Focus::Observers).map(|it| it.id);
        let service = self.selected(Focus::Services).map(|it| it.id);
        let at =
            |found: Option<usize>, old: usize, len: usize| found.unwrap_or(old).min(len.saturating_sub(1));
        let items = &seen.observers.items;
        let found = items.iter().position(|it| Some(&it.id) == observer.as_ref());
        self.observer = at(found, self.observer, items.len());
        let found = seen.services.iter().position(|it| Some(&it.id) == service.as_ref());
        self.service = at(found, self.service, seen.services.len());
        self.seen = Some(seen);
        self.link = Link::Up;
    }

    fn say(&mut self, said: Said) {
        (self.said, self.said_at) = (Some(said), self.now);
    }

    /// Whether another page is on its way.
    pub(super) fn is_turning(&self) -> bool {
        !self.shown.starts_like(&self.query)
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

    /// Details are as live as the rest.
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

    /// Asks first where much would be lost by a slip of the finger.
    pub(super) fn wish(&mut self, verb: Verb) -> Vec<Effect> {
        let Some(target) = self.selected(self.focus) else { return Vec::new() };
        let wish = Wish { target, verb };
        match verb {
            Verb::Delete | Verb::Drain => {
                self.mode = Mode::Asking(wish);
                Vec::new()
            }
            _ => self.carry_out(wish),
        }
    }

    pub(super) fn carry_out(&mut self, wish: Wish) -> Vec<Effect> {
        self.mode = Mode::Browse;
        if self.doing >= DOING_MAX {
            self.say(Said::Badly(format!("{DOING_MAX} requests are under way: not more at once")));
            return Vec::new();
        }
        self.doing += 1;
        self.say(Said::Well(format!("{} {} …", wish.verb.word(), wish.target.name)));
        vec![Effect::Do(wish)]
    }

    fn on_done(&mut self, wish: &Wish, outcome: Result<String, Trouble>) -> Vec<Effect> {
        self.doing = self.doing.saturating_sub(1);
        let asked = format!("{} {}", wish.verb.word(), wish.target.name);
        self.say(match outcome {
            Ok(told) => Said::Well(format!("{asked}: {told}")),
            Err(Trouble::Unreachable(why) | Trouble::Refused(why)) => Said::Badly(format!("{asked}: {why}")),
        });
        self.load()
    }
}
