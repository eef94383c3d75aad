//! Opens, steers and closes the views that stand in place of the lists: the log of an observer, events, and the timeline.

use super::body::Body;
use super::feed::{Feed, FeedPart, Subject};
use super::model::{Effect, Model, Said, Trouble};
use super::target::{Focus, Target};
use super::timeline::{Span, TimelineView, Zoom};
use crate::output::TonedLine;
use crossterm::event::KeyCode;

impl Model {
    /// Opens the view of this key; `None` if the key opens none.
    pub(super) fn open(&mut self, letter: char, target: Option<Target>) -> Option<Vec<Effect>> {
        let subject = match (letter, target) {
            ('l', Some(target)) if target.what == Focus::Services => {
                let text = "logs are those of observers: press Tab and select one, or e for the events of the service";
                self.say(Said::Badly(text.to_owned()));
                return Some(Vec::new());
            }
            ('l', Some(target)) => Subject::Log(target),
            ('e', Some(target)) => Subject::Events(Some(target)),
            ('l' | 'e', None) => return Some(self.lacks_selection()),
            ('E', _) => Subject::Events(None),
            ('T', _) if matches!(self.body, Body::Timeline(_)) => return Some(Vec::new()),
            ('T', _) => {
                let mut effects = self.close();
                self.body = Body::Timeline(TimelineView::new(self.room));
                effects.extend(self.timeline_if_due());
                return Some(effects);
            }
            _ => return None,
        };
        // The effect ends the view that is followed now.
        self.body = Body::Feed(Feed::new(subject.clone(), self.room));
        Some(vec![Effect::Follow(subject)])
    }

    /// Returns to the lists.
    fn close(&mut self) -> Vec<Effect> {
        match std::mem::replace(&mut self.body, Body::Lists) {
            Body::Feed(_) => vec![Effect::Unfollow],
            Body::Lists | Body::Timeline(_) => Vec::new(),
        }
    }

    /// What the open view shows, if it is a log or events.
    fn subject(&self) -> Option<Target> {
        match &self.body {
            Body::Feed(Feed { subject: Subject::Log(target), .. }) => Some(target.clone()),
            Body::Feed(Feed { subject: Subject::Events(target), .. }) => target.clone(),
            Body::Lists | Body::Timeline(_) => None,
        }
    }

    /// A key of an open view.
    pub(super) fn view_key(&mut self, key: KeyCode) -> Vec<Effect> {
        if matches!(key, KeyCode::Esc | KeyCode::Char('q')) {
            return self.close();
        }
        if let KeyCode::Char(letter) = key
            && let Some(effects) = self.open(letter, self.subject())
        {
            return effects;
        }
        let done = match &mut self.body {
            Body::Lists => Done::Nothing,
            Body::Feed(feed) => feed_key(feed, key),
            Body::Timeline(timeline) => timeline_key(timeline, key),
        };
        match done {
            Done::Something => {}
            Done::Nothing => return self.refuse(key),
            Done::Limited(why) => self.say(Said::Badly(why.to_owned())),
        }
        self.timeline_if_due()
    }

    pub(super) fn on_fed(&mut self, subject: &Subject, part: FeedPart) {
        if let Body::Feed(feed) = &mut self.body
            && feed.subject == *subject
        {
            feed.take(part);
        }
    }

    /// Requests the timeline if it is open and no longer fresh.
    pub(super) fn timeline_if_due(&mut self) -> Vec<Effect> {
        match &mut self.body {
            Body::Timeline(timeline) => timeline.due(self.now).map(Effect::Timeline).into_iter().collect(),
            Body::Lists | Body::Feed(_) => Vec::new(),
        }
    }

    pub(super) fn on_timeline(
        &mut self,
        span: Span,
        outcome: Result<Vec<TonedLine>, Trouble>,
    ) -> Vec<Effect> {
        if let Body::Timeline(timeline) = &mut self.body {
            timeline.take(
                span,
                outcome.map_err(|trouble| {
                    let (Trouble::Unreachable(why) | Trouble::Refused(why)) = trouble;
                    why
                }),
            );
        }
        self.timeline_if_due()
    }
}

/// What a key has done in an open view.
enum Done {
    Something,
    Nothing,
    /// It has reached a limit, with this message.
    Limited(&'static str),
}

fn feed_key(feed: &mut Feed, key: KeyCode) -> Done {
    match key {
        KeyCode::Char('f') => feed.toggle_follow(),
        KeyCode::Char('w') => feed.toggle_wrap(),
        KeyCode::Up | KeyCode::Char('k') => feed.up(1),
        KeyCode::Down | KeyCode::Char('j') => feed.down(1),
        KeyCode::PageUp => feed.up(feed.page()),
        KeyCode::PageDown | KeyCode::Char(' ') => feed.down(feed.page()),
        KeyCode::Home | KeyCode::Char('g') => feed.first(),
        KeyCode::End | KeyCode::Char('G') => feed.last(),
        _ => return Done::Nothing,
    }
    Done::Something
}

fn chosen(outcome: Result<(), &'static str>) -> Done {
    outcome.map_or_else(Done::Limited, |()| Done::Something)
}

fn timeline_key(timeline: &mut TimelineView, key: KeyCode) -> Done {
    let (from, page) = (timeline.from, timeline.page());
    match key {
        // `=` is the key of `+` without Shift.
        KeyCode::Char('+' | '=') => return chosen(timeline.choose(Zoom::Longer)),
        KeyCode::Char('-') => return chosen(timeline.choose(Zoom::Shorter)),
        KeyCode::Up | KeyCode::Char('k') => timeline.scroll_to(from.saturating_sub(1)),
        KeyCode::Down | KeyCode::Char('j') => timeline.scroll_to(from + 1),
        KeyCode::PageUp => timeline.scroll_to(from.saturating_sub(page)),
        KeyCode::PageDown | KeyCode::Char(' ') => timeline.scroll_to(from + page),
        KeyCode::Home | KeyCode::Char('g') => timeline.scroll_to(0),
        KeyCode::End | KeyCode::Char('G') => timeline.scroll_to(usize::MAX),
        _ => return Done::Nothing,
    }
    Done::Something
}
