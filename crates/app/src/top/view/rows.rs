//! Draws the two lists. Only the visible rows are laid out.

use super::{Paint, bar, cut_line, fullness, number};
use crate::output::{Tone, age, cut, line, reason_or_error, with_times_of_day};
use crate::top::load::SORTED_MAX;
use crate::top::model::Model;
use crate::top::seen::{Observer, Service};
use crate::top::target::Focus;
use everwatch_core::clock::Timestamp;
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use std::time::Duration;
use unicode_width::UnicodeWidthStr;

/// The age from which a heartbeat is shown as late. A heartbeat arrives every 5 s; a service is suspect after
/// 15 s.
const LATE: Duration = Duration::from_secs(8);
const SILENT: Duration = Duration::from_secs(15);

/// Pads or cuts `text` to exactly `width` columns.
fn cell(text: &str, width: usize) -> String {
    let shown = cut(&line(text), width);
    let blank = width.saturating_sub(shown.width());
    shown + &" ".repeat(blank)
}

fn right(text: &str, width: usize) -> String {
    let shown = cut(text, width);
    " ".repeat(width.saturating_sub(shown.width())) + &shown
}

/// The width that the longest needs, within limits.
fn widest<'a>(texts: impl Iterator<Item = &'a str>, least: usize, most: usize) -> usize {
    texts.map(UnicodeWidthStr::width).max().unwrap_or(0).clamp(least, most.max(least))
}

/// A horizontal line with a title; the title is bold if the list has the focus.
fn title(text: &str, width: usize, focused: bool, paint: Paint) -> Line<'static> {
    let text = cut(text, width.saturating_sub(6));
    let rule = "─".repeat(width.saturating_sub(text.width() + 4));
    let style = if focused { paint.bold() } else { paint.dim() };
    Line::from(vec![
        Span::styled("─ ", paint.dim()),
        Span::styled(text, style),
        Span::styled(format!(" {rule}"), paint.dim()),
    ])
}

/// A row, marked if it is the selected one and reversed if keys act on it.
fn row(mut spans: Vec<Span<'static>>, selected: bool, focused: bool) -> Line<'static> {
    spans.insert(
        0,
        Span::raw(match (selected, focused) {
            (true, true) => "▸ ",
            (true, false) => "▹ ",
            (false, _) => "  ",
        }),
    );
    let style =
        if selected && focused { Style::new().add_modifier(Modifier::REVERSED) } else { Style::new() };
    Line::from(spans).style(style)
}

pub(super) fn services(model: &Model, area: Rect, paint: Paint) -> Vec<Line<'static>> {
    let (width, room) = (usize::from(area.width), usize::from(area.height.saturating_sub(2)));
    let all = model.seen.as_ref().map_or(&[][..], |seen| &seen.services);
    let focused = model.focus == Focus::Services;
    // The selected one is always in sight.
    let first = (model.service + 1).saturating_sub(room);
    let lost = all.iter().filter(|it| it.is_lost()).count();
    let lives = |name: &str| all.iter().any(|it| !it.is_lost() && it.name == name);
    let missing = all.iter().filter(|it| it.is_lost() && !lives(&it.name)).count();
    let shown = if all.len() > room {
        format!("Services {}–{} of {}", first + 1, (first + room).min(all.len()), all.len())
    } else {
        format!("Services {}", all.len() - lost)
    };
    let shown = if missing > 0 { format!("{shown}, {missing} lost") } else { shown };
    let name = widest(all.iter().map(|it| it.name.as_str()), 8, width / 4);
    let pool = widest(all.iter().map(|it| it.pool.as_str()), 7, width / 8);
    let gauge = width / 8;
    let head = format!(
        "  {}  {}  {}  {}  {}  {}  NOTE",
        cell("NAME", name),
        cell("STATE", 8),
        cell("POOL", pool),
        cell("LOAD", gauge),
        right("HELD/OF", 11),
        right("HEARTBEAT", 9)
    );
    let mut lines = vec![title(&shown, width, focused, paint), Line::styled(head, paint.dim())];
    if all.is_empty() && model.seen.is_some() {
        lines.push(Line::styled(
            "  no service: start one with `everwatch run service`",
            paint.tone(Tone::Bad),
        ));
    }
    for (at, it) in all.iter().enumerate().skip(first).take(room) {
        let heartbeat = model.now.since(it.last_heartbeat_at);
        let late = match heartbeat {
            heartbeat if heartbeat >= SILENT => Tone::Bad,
            heartbeat if heartbeat >= LATE => Tone::Wait,
            _ => Tone::Plain,
        };
        let (held, capacity) = (u64::from(it.held), u64::from(it.capacity));
        let spans = vec![
            Span::raw(format!("{}  ", cell(&it.name, name))),
            Span::styled(format!("{}  ", cell(&it.state, 8)), paint.tone(Tone::of(&it.state))),
            Span::raw(format!("{}  ", cell(&it.pool, pool))),
            Span::styled(bar(held, capacity, gauge), paint.tone(fullness(held, capacity))),
            Span::raw(right(&format!("{held}/{capacity}"), 13)),
            Span::styled(format!("  {}", right(&age(heartbeat), 4)), paint.tone(late)),
            Span::raw(format!(
                "  {}",
                cut(&line(&note(it, model, lives(&it.name))), width.saturating_sub(name + pool + gauge + 37))
            )),
        ];
        lines.push(row(spans, at == model.service, focused));
    }
    fitting(lines, width)
}

/// Lines that end in … where they are too wide.
fn fitting(lines: Vec<Line<'static>>, width: usize) -> Vec<Line<'static>> {
    lines.into_iter().map(|line| cut_line(line, width)).collect()
}

/// `is_back`: whether a service of this name lives.
fn note(it: &Service, model: &Model, is_back: bool) -> String {
    if it.is_lost() {
        let ago = age(model.now.since(model.incidents.lost_since(it)));
        return format!("lost {ago} ago{}", if is_back { ", back" } else { "" });
    }
    let mut told = Vec::new();
    told.extend(it.frozen.then(|| "frozen on purpose".to_owned()));
    told.extend(it.stalled.first().map(|stalled| format!("stalled by {}", stalled.name)));
    if let Some(drain) = &it.drain {
        told.push(format!("{} of {} handed over", drain.moved, drain.of));
        told.extend(drain.waits.clone());
    } else if it.cordoned && it.unconfirmed.is_none() {
        told.push(if it.state == "cordoned" { "by hand" } else { "cordoned by hand" }.to_owned());
    }
    told.extend(it.unconfirmed.clone());
    if let Some(capacity) = it.capacity_set {
        told.push(format!("capacity {capacity} by hand"));
    }
    told.join("; ")
}

pub(super) fn observers(model: &Model, area: Rect, paint: Paint) -> Vec<Line<'static>> {
    let (width, room) = (usize::from(area.width), usize::from(area.height.saturating_sub(2)));
    let page = model.seen.as_ref().map(|seen| &seen.observers);
    let all = page.map_or(&[][..], |page| &page.items);
    let focused = model.focus == Focus::Observers;
    let mut shown = match page {
        None => "Observers".to_owned(),
        Some(page) if page.total == 0 => "Observers: none".to_owned(),
        Some(page) => {
            let before = model.before();
            let (first, last) = (before + 1, before + all.len());
            let whole = |at| number(u64::try_from(at).unwrap_or(0));
            format!("Observers {}–{} of {}", whole(first), whole(last), number(page.total))
        }
    };
    shown.push_str(&format!(", {}", model.query.sort.words().1));
    if model.query.sort.is_own() && page.is_some_and(|page| page.total > SORTED_MAX as u64) {
        shown.push_str(&format!(" among the first {} by name", number(SORTED_MAX as u64)));
    }
    if !model.query.filter.is_empty() {
        shown.push_str(&format!(", /{}", model.query.filter));
    }
    if model.is_turning() && model.seen.is_some() {
        shown.push_str(" …");
    }
    let name = widest(all.iter().map(|it| it.name.as_str()), 8, width / 4);
    let kind = widest(all.iter().map(|it| it.kind.as_str()), 6, width / 10);
    let service = widest(all.iter().map(holder), 9, width / 6);
    let head = format!(
        "  {}  {}  {}  {}  {}  {}  {}  REASON",
        cell("NAME", name),
        cell("KIND", kind),
        cell("HEALTH", 10),
        right("RST", 3),
        cell("SERVICE", service),
        cell("EPOCH", 5),
        right("RUNS", 4)
    );
    let mut lines = vec![title(&shown, width, focused, paint), Line::styled(head, paint.dim())];
    if all.is_empty() && model.seen.is_some() {
        let unknown = model.seen.as_ref().and_then(|seen| seen.unknown_label.as_deref());
        let (why, style) = match unknown {
            _ if model.query.filter.is_empty() => {
                ("none yet: `everwatch observer create hello --kind ticker` makes one", paint.dim())
            }
            None => ("no observer matches the filter; press Esc to clear it", paint.dim()),
            Some(why) => (why, paint.tone(Tone::Wait)),
        };
        lines.push(Line::styled(format!("  {}", line(why)), style));
    }
    for (at, it) in all.iter().enumerate().take(room) {
        let executes = it.status == "Processing" && it.reason_code.as_deref() != Some("backing-off");
        let runs = it.started_at.filter(|_| executes && it.service.is_some());
        let runs = runs.map_or_else(|| "-".to_owned(), |since| age(model.now.since(since)));
        let spans = vec![
            Span::raw(format!("{}  {}  ", cell(&it.name, name), cell(&it.kind, kind))),
            Span::styled(format!("{}  ", cell(stands(it), 10)), paint.tone(Tone::of(stands(it)))),
            Span::raw(format!("{}  ", right(&it.restarts.to_string(), 3))),
            Span::raw(format!("{}  ", cell(holder(it), service))),
            Span::raw(format!("{}  ", cell(&format!("{}.{}", it.generation, it.acquisitions), 5))),
            Span::raw(format!("{}  ", right(&runs, 4))),
            Span::raw(rest(it, model.now, width.saturating_sub(name + kind + service + 38))),
        ];
        lines.push(row(spans, at == model.observer, focused));
    }
    fitting(lines, width)
}

/// The health, or the status if the observer is not meant to run.
fn stands(it: &Observer) -> &str {
    it.health.as_deref().unwrap_or(&it.status)
}

fn holder(it: &Observer) -> &str {
    it.service.as_ref().map_or("-", |service| &service.name)
}

/// The reason for its status, otherwise its own progress text.
fn rest(it: &Observer, now: Timestamp, width: usize) -> String {
    let restarts = it.health.as_deref() == Some("restarting");
    let why = reason_or_error(&it.reason, it.last_error.as_deref(), restarts);
    let told =
        if why.is_empty() { it.progress.clone().unwrap_or_default() } else { with_times_of_day(&why, now) };
    cut(&line(&told), width)
}
