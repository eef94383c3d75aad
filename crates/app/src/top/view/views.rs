//! Draws the views that stand in place of the lists: a log, events, and the timeline.

use super::Paint;
use crate::output::{Tone, line};
use crate::top::feed::{Feed, FeedState, Subject};
use crate::top::target::{Focus, Target};
use crate::top::timeline::TimelineView;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Paragraph};

/// A frame with a title, and a text in the corner beside it.
fn framed(title: &str, corner: (&str, Tone), paint: Paint) -> Block<'static> {
    let corner = Line::styled(format!(" {} ", corner.0), paint.tone(corner.1));
    Block::bordered()
        .title(Line::styled(format!(" {} ", line(title)), paint.bold()))
        .title(corner.right_aligned())
}

pub(super) fn feed(frame: &mut Frame<'_>, area: Rect, feed: &Feed, paint: Paint) {
    let title = match &feed.subject {
        Subject::Log(target) => format!("Log of {}", target.name),
        Subject::Events(None) => "Events of all observers and services".to_owned(),
        Subject::Events(Some(Target { what: Focus::Observers, name, .. })) => {
            format!("Events of observer {name}")
        }
        Subject::Events(Some(Target { name, .. })) => format!("Events of service {name}"),
    };
    let tone = match feed.state {
        FeedState::Open if feed.follows => Tone::Good,
        FeedState::Ended => Tone::Plain,
        FeedState::Open | FeedState::Connecting | FeedState::Reconnecting => Tone::Wait,
        FeedState::Failed => Tone::Bad,
    };
    let mut block = framed(&title, (&feed.progress(), tone), paint);
    if let Some(position) = feed.position() {
        block = block.title_bottom(Line::raw(format!(" {position} ")).right_aligned());
    }
    let head = feed.head().map(|head| Line::styled(format!(" {head}"), paint.dim()));
    let rows = feed.visible();
    let rows = rows.into_iter().map(|(tone, text)| Line::styled(format!(" {text}"), paint.tone(tone)));
    let lines: Vec<_> = head.into_iter().chain(rows).collect();
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

pub(super) fn timeline(frame: &mut Frame<'_>, area: Rect, it: &TimelineView, paint: Paint) {
    let title = format!("Timeline: {}", it.span.words().1);
    let (tone, progress) = it.progress();
    let mut block = framed(&title, (progress, tone), paint);
    if let Some(position) = it.position() {
        block = block.title_bottom(Line::raw(format!(" {position} ")).right_aligned());
    }
    let lines = it.visible().into_iter().map(|parts| {
        let parts = parts.into_iter().map(|(tone, text)| Span::styled(text, paint.tone(tone)));
        Line::from_iter([Span::raw(" ")].into_iter().chain(parts))
    });
    frame.render_widget(Paragraph::new(lines.collect::<Vec<_>>()).block(block), area);
}
