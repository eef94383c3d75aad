//! Draws the model. It decides only where things are placed.

mod overlays;
mod rows;
mod views;

use super::body::Body;
use super::feed::wrapped;
use super::model::{Link, Mode, Model, Said};
use super::seen::{Seen, Stats};
use crate::output::{self, Tone, age, cut, line};
use everwatch_core::doctor::Severity;
use everwatch_core::record::health::Health;
use everwatch_core::wording::counted;
use ratatui::Frame;
use ratatui::layout::{Constraint, Layout, Rect, Size};
use ratatui::style::{Color, Modifier, Style};
use ratatui::text::{Line, Span};
use ratatui::widgets::{Clear, Paragraph};

/// The lines that are always present: three of the header, two titles, two column heads, the message and the
/// keys.
const FIXED: u16 = 9;
/// How many lines a message takes at most.
const MESSAGE_LINES: usize = 4;
/// The smallest size at which the screen is readable.
const LEAST: Size = Size { width: 40, height: 12 };

/// Colours, where they are wanted.
#[derive(Debug, Clone, Copy)]
pub(super) struct Paint {
    colours: bool,
}

impl Paint {
    fn tone(self, tone: Tone) -> Style {
        let colour = match tone {
            Tone::Plain => None,
            Tone::Good => Some(Color::Green),
            Tone::Wait => Some(Color::Yellow),
            Tone::Bad => Some(Color::Red),
        };
        colour.filter(|_| self.colours).map_or_else(Style::new, |colour| Style::new().fg(colour))
    }
    fn dim(self) -> Style {
        if self.colours { Style::new().fg(Color::DarkGray) } else { Style::new() }
    }
    fn bold(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }
}

/// How many service rows fit the screen.
fn service_rows(size: Size, model: &Model) -> u16 {
    let some = model.seen.as_ref().map_or(1, |seen| seen.services.len().max(1));
    let most = (size.height.saturating_sub(FIXED) / 3).max(1);
    u16::try_from(some).unwrap_or(u16::MAX).min(most)
}

/// How many observer rows fit the screen.
pub(super) fn rows(size: Size, model: &Model) -> usize {
    usize::from(size.height.saturating_sub(FIXED + service_rows(size, model)).max(1))
}

/// The columns and lines that fit a view in place of the lists: without the header, the message, the keys, and the border.
pub(super) fn room(size: Size) -> (usize, usize) {
    (usize::from(size.width.saturating_sub(4).max(20)), usize::from(size.height.saturating_sub(7).max(1)))
}

pub(super) fn draw(frame: &mut Frame<'_>, model: &Model, colours: bool) {
    let (area, paint) = (frame.area(), Paint { colours });
    if area.width < LEAST.width || area.height < LEAST.height {
        let text = format!("too small: {} × {} at least", LEAST.width, LEAST.height);
        frame.render_widget(Paragraph::new(text), area);
        return;
    }
    let services = service_rows(area.as_size(), model);
    let parts = Layout::vertical([
        Constraint::Length(3),
        Constraint::Length(2 + services),
        Constraint::Min(3),
        Constraint::Length(1),
        Constraint::Length(1),
    ]);
    let [header, upper, lower, message, keys] = parts.areas(area);
    draw_header(frame, header, model, paint);
    let middle = Rect { height: area.height - 5, y: 3, ..area };
    match &model.body {
        Body::Lists => {
            frame.render_widget(Paragraph::new(rows::services(model, upper, paint)), upper);
            frame.render_widget(Paragraph::new(rows::observers(model, lower, paint)), lower);
        }
        Body::Feed(feed) => views::feed(frame, middle, feed, paint),
        Body::Timeline(timeline) => views::timeline(frame, middle, timeline, paint),
    }
    draw_message(frame, message, model, paint);
    frame.render_widget(Paragraph::new(overlays::keys(model, usize::from(keys.width), paint)), keys);
    let middle = Rect { height: area.height - 4, y: 3, ..area };
    match &model.mode {
        Mode::Browse | Mode::Typing(_) => {}
        Mode::Asking(wish, rooms) => overlays::ask(frame, middle, (model, wish, rooms), paint),
        Mode::Details { target, text, from } => {
            overlays::details(frame, middle, (target, text, *from), paint);
        }
        Mode::Help => overlays::help(frame, middle, paint),
    }
    // An answer is visible above details, too.
    if matches!(model.mode, Mode::Details { .. }) && model.said.is_some() {
        draw_message(frame, message, model, paint);
    }
}

fn draw_header(frame: &mut Frame<'_>, area: Rect, model: &Model, paint: Paint) {
    let now = model.now.to_string();
    let clock = now.get(11..19).unwrap_or_default();
    let (link, style) = match &model.link {
        Link::Connecting => ("connecting …".to_owned(), paint.tone(Tone::Wait)),
        Link::Up => (format!("live  {clock} UTC"), paint.tone(Tone::Good)),
        Link::Lost { since, .. } => {
            let lost = format!(" CONNECTION LOST {} ago ", age(model.now.since(*since)));
            (lost, paint.tone(Tone::Bad).add_modifier(Modifier::REVERSED))
        }
    };
    let link = Line::from(Span::styled(link, style)).right_aligned();
    let mut title = vec![
        Span::styled("everwatch top", paint.bold()),
        Span::styled(format!("  {}", model.server), paint.dim()),
    ];
    if let Some(told) = model.seen.as_ref().and_then(held_back) {
        title.push(Span::styled(format!("  {told}"), paint.tone(Tone::Wait).add_modifier(Modifier::BOLD)));
    }
    let title = Line::from(title);
    let [first, second, third] = Layout::vertical([Constraint::Length(1); 3]).areas(area);
    let width = u16::try_from(link.width()).unwrap_or(u16::MAX).min(first.width);
    let room = usize::from(first.width.saturating_sub(width + 2));
    frame.render_widget(Paragraph::new(cut_line(title, room)), first);
    frame.render_widget(Paragraph::new(link), Rect { x: first.right() - width, width, ..first });
    if let Some(seen) = &model.seen {
        let room = usize::from(area.width);
        frame.render_widget(Paragraph::new(cut_line(counts(seen, paint), room)), second);
        frame.render_widget(Paragraph::new(cut_line(capacity(seen, room, paint), room)), third);
    }
}

/// Shortens a line to at most `width` columns, with … in place of the rest.
fn cut_line(line: Line<'static>, width: usize) -> Line<'static> {
    if line.width() <= width {
        return line;
    }
    let (mut spans, mut room) = (Vec::new(), width);
    for span in line.spans {
        // What follows needs a column for the …, even if this span fits exactly.
        let shown = if span.width() < room {
            span.content.into_owned()
        } else {
            cut(&format!("{} ", span.content), room)
        };
        let is_last = shown.ends_with('…') || room == 0;
        room = room.saturating_sub(Span::raw(shown.as_str()).width());
        spans.push(Span::styled(shown, span.style));
        if is_last {
            break;
        }
    }
    Line::from(spans).style(line.style)
}

/// The message at the bottom; one that is too long covers the lines above.
fn draw_message(frame: &mut Frame<'_>, area: Rect, model: &Model, paint: Paint) {
    let width = usize::from(area.width);
    let message = message_line(model, width, paint);
    let is_typed = matches!(model.mode, Mode::Typing(_));
    if is_typed || message.width() <= width {
        frame.render_widget(Paragraph::new(cut_line(message, width)), area);
        return;
    }
    let text: String = message.spans.iter().map(|span| span.content.as_ref()).collect();
    let mut lines = wrapped(&text, width);
    if lines.len() > MESSAGE_LINES {
        lines.truncate(MESSAGE_LINES);
        if let Some(last) = lines.last_mut() {
            *last = cut(&format!("{last} …"), width);
        }
    }
    let more = u16::try_from(lines.len()).unwrap_or(1).saturating_sub(1);
    let area = Rect { y: area.y.saturating_sub(more), height: area.height + more, ..area };
    frame.render_widget(Clear, area);
    let lines: Vec<_> = lines.into_iter().map(Line::raw).collect();
    frame.render_widget(Paragraph::new(lines).style(message.style), area);
}

/// What an operator has switched, and what keeps observers from starting or moving.
fn held_back(seen: &Seen) -> Option<String> {
    let paused: Vec<&str> = seen.pools.iter().filter(|it| it.paused).map(|it| it.name.as_str()).collect();
    let paused = match paused[..] {
        [] => None,
        [pool] => Some(format!("pool {pool} paused")),
        _ => Some(format!("{} pools paused", paused.len())),
    };
    let told: Vec<String> =
        seen.safe_mode.on.then(|| "safe mode".to_owned()).into_iter().chain(paused).collect();
    (!told.is_empty()).then(|| told.join(", "))
}

/// Counts observers by health, or by status if they are not meant to run; leaves out zero counts.
fn counts(seen: &Seen, paint: Paint) -> Line<'static> {
    let Stats { health, observers, .. } = &seen.stats;
    let ended =
        [("Scheduled", "scheduled"), ("Paused", "paused"), ("Completed", "completed"), ("Failed", "failed")];
    let of_health = Health::ALL.map(|it| (it.as_str(), it.as_str(), health.get(it.as_str())));
    let of_status = ended.map(|(status, word)| (status, word, observers.get(status)));
    let mut spans = vec![Span::styled("Observers  ", paint.dim())];
    for (key, word, count) in of_health.into_iter().chain(of_status) {
        let count = count.copied().unwrap_or(0);
        if count > 0 || key == "running" {
            let tone = if count > 0 { paint.tone(Tone::of(key)) } else { Style::new() };
            spans.push(Span::styled(number(count), tone.add_modifier(Modifier::BOLD)));
            spans.push(Span::raw(format!(" {word}   ")));
        }
    }
    Line::from(spans)
}

fn capacity(seen: &Seen, width: usize, paint: Paint) -> Line<'static> {
    let (held, capacity) = (seen.stats.held, seen.stats.capacity);
    // From the same answer as the list of services below.
    let active = seen.services.iter().filter(|it| it.is_able()).count();
    let (lost, tone) = match seen.spare() {
        _ if active == 0 => ("no service is active: nothing more can start".to_owned(), Tone::Bad),
        None => (String::new(), Tone::Plain),
        Some(0) => ("no service could be lost".to_owned(), Tone::Wait),
        Some(spare) => (format!("{} could be lost", counted(spare, "service")), Tone::Good),
    };
    // The slots of services that drain or are silent are no capacity.
    let free: u64 = seen.pools.iter().filter_map(|it| it.free).map(u64::from).sum();
    let slots = if free > 0 && held + free > capacity {
        format!("  {} held, {} free   ", number(held), number(free))
    } else if held <= capacity {
        format!("  {} of {} held   ", number(held), number(capacity))
    } else {
        format!("  {} held, capacity {}   ", number(held), number(capacity))
    };
    let title = "Capacity   ";
    // The bar gets what the words leave.
    let left = width.saturating_sub(title.len() + slots.len() + lost.len());
    Line::from(vec![
        Span::styled(title, paint.dim()),
        Span::styled(bar(held, capacity, left.min(width / 6)), paint.tone(fullness(held, capacity))),
        Span::raw(slots),
        Span::styled(lost, paint.tone(tone)),
    ])
}

/// With commas between thousands.
fn number(value: u64) -> String {
    let digits = value.to_string();
    let groups: Vec<_> = digits.as_bytes().rchunks(3).rev().map(String::from_utf8_lossy).collect();
    groups.join(",")
}

/// A bar of `width` columns that shows which part of the capacity is held. If anything is held, at least one
/// column is filled.
fn bar(held: u64, capacity: u64, width: usize) -> String {
    let whole = u64::try_from(width).unwrap_or(0);
    let full = if held == 0 { 0 } else { (held * whole / capacity.max(1)).clamp(1, whole.max(1)) };
    let full = usize::try_from(full).unwrap_or(width).min(width);
    "█".repeat(full) + &"░".repeat(width - full)
}

fn fullness(held: u64, capacity: u64) -> Tone {
    if capacity > 0 && held >= capacity {
        Tone::Bad
    } else if held * 10 >= capacity * 9 {
        Tone::Wait
    } else {
        Tone::Good
    }
}

/// The result of the last action, otherwise a standing warning or the last incident.
fn message_line(model: &Model, width: usize, paint: Paint) -> Line<'static> {
    let bad = paint.tone(Tone::Bad);
    if let Mode::Typing(text) = &model.mode {
        let hint = "   part of a name, health=restarting service=s1, or a label: team=a";
        return Line::from(vec![Span::raw(format!("/{text}▏")), Span::styled(hint, paint.dim())]);
    }
    let safe_mode = model.seen.as_ref().map(|seen| &seen.safe_mode).filter(|safe_mode| safe_mode.on);
    match (&model.link, &model.said, safe_mode) {
        (Link::Lost { why, .. }, ..) => Line::styled(line(why), bad),
        (_, Some(Said::Badly(why)), _) => Line::styled(line(why), bad),
        (_, Some(Said::Well(told)), _) => Line::raw(line(told)),
        (_, None, Some(safe_mode)) => Line::styled(
            line(&format!("safe mode: managers conclude nothing from silence. {}", safe_mode.reason)),
            paint.tone(Tone::Wait),
        ),
        (_, None, None) if model.seen.as_ref().is_some_and(|seen| !seen.stats.broker) => {
            Line::styled("the manager has no connection to the broker", bad)
        }
        (_, None, None) => model.incidents.shown(model.now, !model.problems.is_empty()).map_or_else(
            || problems(model, width, paint),
            |it| {
                let tone = if it.until.is_none() { Tone::Bad } else { Tone::Wait };
                let told = line(&output::incident(&output::grown(it, model.now), model.now, width));
                Line::styled(cut(&told, width), paint.tone(tone))
            },
        ),
    }
}

/// The worst finding of the doctor, and how many there are.
fn problems(model: &Model, width: usize, paint: Paint) -> Line<'static> {
    let Some(worst) = model.problems.first() else { return Line::default() };
    let count = counted(model.problems.len() as u64, "problem");
    let told = line(&format!("{count} (`everwatch doctor`): {}", without_restarts(&worst.what)));
    let tone = if worst.severity == Severity::Critical { Tone::Bad } else { Tone::Wait };
    Line::styled(cut(&told, width), paint.tone(tone))
}

/// A finding without the numbers of restarts, which change faster than findings, and which the rows show.
fn without_restarts(what: &str) -> String {
    let mut parts = what.split(" (");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |told, part| match part.split_once(')') {
        Some((count, rest)) if count.ends_with(" restart") || count.ends_with(" restarts") => told + rest,
        _ => format!("{told} ({part}"),
    })
}
