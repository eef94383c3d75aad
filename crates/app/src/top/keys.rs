//! Maps each key to an action, depending on the mode.

use super::body::Body;
use super::misplaced::answer;
use super::model::{Effect, Mode, Model, Said, Verb, Wish};
use super::query::Query;
use super::target::{Focus, Room};
use crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};

/// The longest filter.
const FILTER_MAX: usize = 200;

/// The room with this number; the first one has 1.
fn room(rooms: &[Room], digit: char) -> Option<&Room> {
    rooms.get(usize::try_from(digit.to_digit(10)?.checked_sub(1)?).ok()?)
}

impl Model {
    pub(super) fn on_key(&mut self, key: KeyEvent) -> Vec<Effect> {
        if key.kind == KeyEventKind::Release {
            return Vec::new();
        }
        if key.modifiers.contains(KeyModifiers::CONTROL) {
            return self.control(key.code);
        }
        // The user has seen the message about the key before.
        self.said = None;
        match std::mem::replace(&mut self.mode, Mode::Browse) {
            Mode::Browse if key.code == KeyCode::Char('?') => {
                self.mode = Mode::Help;
                Vec::new()
            }
            Mode::Browse if !matches!(self.body, Body::Lists) => self.view_key(key.code),
            Mode::Browse => self.browse(key.code),
            Mode::Help => Vec::new(),
            Mode::Typing(text) => self.typed(text, key.code),
            Mode::Asking(wish, rooms) => self.answered(wish, rooms, key.code),
            Mode::Details { target, .. } if matches!(key.code, KeyCode::Char('l' | 'e')) => {
                let letter = if key.code == KeyCode::Char('l') { 'l' } else { 'e' };
                self.open(letter, Some(target)).unwrap_or_default()
            }
            Mode::Details { target, text, from } => {
                let last = text.lines().count().saturating_sub(1);
                let from = match key.code {
                    KeyCode::Up | KeyCode::Char('k') => from.saturating_sub(1),
                    KeyCode::Down | KeyCode::Char('j') => (from + 1).min(last),
                    KeyCode::PageUp => from.saturating_sub(10),
                    KeyCode::PageDown | KeyCode::Char(' ') => (from + 10).min(last),
                    KeyCode::Home | KeyCode::Char('g') => 0,
                    KeyCode::End | KeyCode::Char('G') => last,
                    KeyCode::Esc | KeyCode::Enter | KeyCode::Char('q') => return Vec::new(),
                    other => {
                        self.mode = Mode::Details { target, text, from };
                        return self.refuse(other);
                    }
                };
                self.mode = Mode::Details { target, text, from };
                Vec::new()
            }
        }
    }

    fn answered(&mut self, wish: Wish, rooms: Vec<Room>, key: KeyCode) -> Vec<Effect> {
        match key {
            KeyCode::Char('y') => self.carry_out(wish),
            KeyCode::Char('n' | 'q') | KeyCode::Esc => Vec::new(),
            KeyCode::Char(digit) if room(&rooms, digit).is_some() => {
                let to = room(&rooms, digit).map(|room| room.service.clone());
                self.carry_out(Wish { to, ..wish })
            }
            // Only a key that answers the question closes it.
            _ => {
                let digits = match rooms.len() {
                    0 => String::new(),
                    1 => ", 1".to_owned(),
                    all => format!(", 1 to {all}"),
                };
                self.say(Said::Badly(format!("this key answers nothing: press y, n{digits}")));
                self.mode = Mode::Asking(wish, rooms);
                Vec::new()
            }
        }
    }

    fn control(&mut self, key: KeyCode) -> Vec<Effect> {
        match (key, &mut self.mode) {
            (KeyCode::Char('c'), _) => return vec![Effect::Quit],
            // As in shells: the whole line, or its last word.
            (KeyCode::Char('u'), Mode::Typing(text)) => text.clear(),
            (KeyCode::Char('w'), Mode::Typing(text)) => {
                let kept = text.trim_end().rfind(' ').map_or(0, |space| space + 1);
                text.truncate(kept);
            }
            _ => {}
        }
        Vec::new()
    }

    fn browse(&mut self, key: KeyCode) -> Vec<Effect> {
        match key {
            KeyCode::Char('q') => return vec![Effect::Quit],
            KeyCode::Char('h') => self.mode = Mode::Help,
            KeyCode::Tab | KeyCode::BackTab => self.focus = self.other(),
            KeyCode::Char('/') => self.mode = Mode::Typing(self.query.filter.clone()),
            KeyCode::Enter => {
                return match self.selected(self.focus) {
                    Some(target) => self.describe(target),
                    None => self.lacks_selection(),
                };
            }
            KeyCode::Esc if !self.query.filter.is_empty() => return self.filter(String::new()),
            KeyCode::Char('s') => {
                let query = Query { sort: self.query.sort.next(), pages: Vec::new(), ..self.query.clone() };
                self.observer = 0;
                return self.turn_to(query);
            }
            KeyCode::Up | KeyCode::Char('k') => return self.up(),
            KeyCode::Down | KeyCode::Char('j') => return self.down(),
            KeyCode::PageUp => return self.page_up(0),
            KeyCode::PageDown | KeyCode::Char(' ') => return self.page_down(),
            KeyCode::Home | KeyCode::Char('g') => return self.first(),
            KeyCode::Char(letter) => return self.letter(letter),
            // There is nothing to go back from.
            KeyCode::Esc => {}
            other => return self.refuse(other),
        }
        Vec::new()
    }

    /// Answers a key that does nothing here.
    pub(super) fn refuse(&mut self, key: KeyCode) -> Vec<Effect> {
        self.say(Said::Badly(answer(key, self.place())));
        Vec::new()
    }

    fn letter(&mut self, letter: char) -> Vec<Effect> {
        if let Some(effects) = self.open(letter, self.selected(self.focus)) {
            return effects;
        }
        let verb = match (self.focus, letter) {
            (Focus::Observers, 'd') => Verb::Delete,
            (Focus::Observers, 'p') => Verb::Pause,
            (Focus::Observers, 'r') => Verb::Resume,
            (Focus::Observers, 'R') => Verb::Restart,
            (Focus::Observers, 'm') => Verb::Move,
            (Focus::Observers, 't') => Verb::Retry,
            (Focus::Services, 'c') => Verb::Cordon,
            (Focus::Services, 'u') => Verb::Uncordon,
            (Focus::Services, 'D') => Verb::Drain,
            (Focus::Services, 'o') => {
                let Some(service) = self.selected(Focus::Services) else { return self.lacks_selection() };
                self.focus = Focus::Observers;
                return self.filter(format!("service={}", service.name));
            }
            _ => return self.refuse(KeyCode::Char(letter)),
        };
        self.wish(verb)
    }

    fn other(&self) -> Focus {
        match self.focus {
            Focus::Services => Focus::Observers,
            Focus::Observers => Focus::Services,
        }
    }

    fn typed(&mut self, mut text: String, key: KeyCode) -> Vec<Effect> {
        match key {
            KeyCode::Enter => return self.filter(text.trim().to_owned()),
            KeyCode::Esc => return Vec::new(),
            KeyCode::Backspace => {
                text.pop();
            }
            KeyCode::Char(letter) if text.len() < FILTER_MAX && !letter.is_control() => text.push(letter),
            _ => {}
        }
        self.mode = Mode::Typing(text);
        Vec::new()
    }

    fn filter(&mut self, filter: String) -> Vec<Effect> {
        self.observer = 0;
        let query = Query { filter, pages: Vec::new(), ..self.query.clone() };
        self.turn_to(query)
    }

    fn up(&mut self) -> Vec<Effect> {
        match self.focus {
            Focus::Services => self.service = self.service.saturating_sub(1),
            Focus::Observers if self.observer == 0 => return self.page_up(usize::MAX),
            Focus::Observers => self.observer -= 1,
        }
        Vec::new()
    }

    fn down(&mut self) -> Vec<Effect> {
        let Some(seen) = &self.seen else { return Vec::new() };
        match self.focus {
            Focus::Services => self.service = (self.service + 1).min(seen.services.len().saturating_sub(1)),
            Focus::Observers if self.observer + 1 >= seen.observers.items.len() => return self.page_down(),
            Focus::Observers => self.observer += 1,
        }
        Vec::new()
    }

    /// Goes to the previous page, and selects this row or the last row if the page is shorter.
    fn page_up(&mut self, row: usize) -> Vec<Effect> {
        if self.focus == Focus::Services {
            self.service = 0;
            return Vec::new();
        }
        if self.query.pages.pop().is_none() {
            self.observer = 0;
            return Vec::new();
        }
        self.observer = row;
        self.load()
    }

    fn page_down(&mut self) -> Vec<Effect> {
        let Some(seen) = &self.seen else { return Vec::new() };
        if self.focus == Focus::Services {
            self.service = seen.services.len().saturating_sub(1);
            return Vec::new();
        }
        let before = self.before() + seen.observers.items.len();
        match seen.observers.next_cursor.clone() {
            // The next page is being loaded already.
            _ if self.is_turning() => Vec::new(),
            Some(cursor) => {
                self.query.pages.push((cursor, before));
                self.observer = 0;
                self.load()
            }
            None => {
                self.observer = seen.observers.items.len().saturating_sub(1);
                Vec::new()
            }
        }
    }

    fn first(&mut self) -> Vec<Effect> {
        match self.focus {
            Focus::Services => self.service = 0,
            Focus::Observers => {
                self.observer = 0;
                if !self.query.pages.is_empty() {
                    self.query.pages.clear();
                    return self.load();
                }
            }
        }
        Vec::new()
    }
}
