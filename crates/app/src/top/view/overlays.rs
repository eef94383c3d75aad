//! Draws the overlays above the lists, and the line of keys at the bottom.

use super::Paint;
use crate::output::cut;
use crate::top::body::Body;
use crate::top::feed::Subject;
use crate::top::model::{Mode, Model, Verb, Wish};
use crate::top::target::{Focus, Room, Target};
use everwatch_core::wording::counted;
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};
use unicode_width::UnicodeWidthStr as _;

/// The width of a question, with its border.
const ASKED_WIDTH: u16 = 60;

/// It fits a terminal of 80 columns and 24 rows.
const HELP: &str = "\
Everywhere
  Tab  services or observers             ?  this help       q  quit, or back
  ↑ ↓  select, scroll (also PgUp PgDn j k Space)            g  first row
  Enter  details and recent events       e  events          E  events of all
  T  timeline of all services
Observers
  /  filter: part of a name, or status= health= reason= kind= pool= service=
     or a label as team=a                l  log             Esc  clear filter
  s  sort by name, health, restarts or age                  d  delete
  p  pause            R  restart         m  move            r  resume
  t  retry (if failed)
Services
  c  cordon: accept no more observers    u  uncordon        o  its observers
  D  drain: hand over all                p R m d D ask before they act

Logs, events and timeline
  f  follow new lines, or pause          w  wrap or cut     G  last line
  + -  longer or shorter timeline                           Esc  back to lists";

/// The keys of the current mode. If not all fit, the help shows the rest.
pub(super) fn keys(model: &Model, width: usize, paint: Paint) -> Line<'static> {
    let of_view = view_keys(&model.body);
    let keys: &[(&str, &str)] = match (&model.mode, model.focus) {
        (Mode::Browse, _) if !matches!(model.body, Body::Lists) => &of_view,
        (Mode::Typing(_), _) => &[("Enter", "filter"), ("Esc", "cancel")],
        (Mode::Asking(_, rooms), _) if !rooms.is_empty() => {
            &[("1-9", "move to this service"), ("y", "to any service"), ("n", "no")]
        }
        (Mode::Asking(..), _) => &[("y", "yes"), ("n", "no")],
        (Mode::Details { target: Target { what: Focus::Services, .. }, .. }, _) => {
            &[("↑↓", "scroll"), ("e", "events"), ("Esc", "back")]
        }
        (Mode::Details { .. }, _) => &[("↑↓", "scroll"), ("l", "log"), ("e", "events"), ("Esc", "back")],
        (Mode::Help, _) => &[("any key", "back")],
        (Mode::Browse, Focus::Observers) => &[
            ("/", "filter"),
            ("l", "log"),
            ("e", "events"),
            ("T", "timeline"),
            ("Tab", "services"),
            ("s", "sort"),
            ("d", "delete"),
            ("p", "pause"),
            ("r", "resume"),
            ("R", "restart"),
            ("m", "move"),
            ("t", "retry"),
            ("Enter", "details"),
        ],
        (Mode::Browse, Focus::Services) => &[
            ("e", "events"),
            ("T", "timeline"),
            ("c", "cordon"),
            ("u", "uncordon"),
            ("D", "drain"),
            ("o", "its observers"),
            ("Tab", "observers"),
            ("Enter", "details"),
        ],
    };
    let always: &[(&str, &str)] = match (&model.mode, &model.body) {
        (Mode::Browse, Body::Lists) => &[("?", "help"), ("q", "quit")],
        (Mode::Browse, Body::Feed(_) | Body::Timeline(_)) => &[("Esc", "back"), ("?", "help")],
        _ => &[],
    };
    let size = |(key, does): &(&str, &str)| key.width() + does.width() + 3;
    let mut room = width + 2 - always.iter().map(size).sum::<usize>();
    let fitting = keys.iter().take_while(|it| {
        let fits = size(it) <= room;
        room = room.saturating_sub(size(it));
        fits
    });
    let each = |(key, does): &(&'static str, &'static str)| {
        [Span::styled(*key, paint.bold()), Span::styled(format!(" {does}  "), paint.dim())]
    };
    Line::from(fitting.chain(always).flat_map(each).collect::<Vec<_>>())
}

fn view_keys(body: &Body) -> Vec<(&'static str, &'static str)> {
    let feed = match body {
        Body::Lists => return Vec::new(),
        Body::Timeline(_) => {
            return vec![("+", "longer"), ("-", "shorter"), ("↑↓", "scroll"), ("E", "events of all")];
        }
        Body::Feed(feed) => feed,
    };
    let follow = if feed.follows { "pause" } else { "follow" };
    let mut keys = vec![("f", follow), ("w", "wrap"), ("↑↓", "scroll"), ("g", "first"), ("G", "last")];
    match &feed.subject {
        Subject::Log(_) => keys.push(("e", "events")),
        Subject::Events(Some(target)) if target.what == Focus::Observers => keys.push(("l", "log")),
        Subject::Events(_) => {}
    }
    keys
}

/// A rectangle in the middle of `area` with at most this size.
fn centred(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    let x = area.x + (area.width - width) / 2;
    Rect { x, y: area.y + (area.height - height) / 2, width, height }
}

/// What a drain does now, as far as the lists say it.
fn drain(model: &Model, wish: &Wish) -> String {
    let Some((pool, held, free)) = model.room_for_drain(&wish.target.id) else {
        return "It hands over its observers while others have room.".to_owned();
    };
    let slots = counted(u64::from(held), "slot");
    if held == 0 {
        "It holds nothing, and takes nothing until you uncordon it.".to_owned()
    } else if free >= u64::from(held) {
        format!("It hands over {slots}; other services have {free} free.")
    } else {
        format!(
            "It holds {slots}, and other services of pool {pool} have {free} free: the rest stays until more are free."
        )
    }
}

pub(super) fn ask(
    frame: &mut Frame<'_>,
    area: Rect,
    (model, wish, rooms): (&Model, &Wish, &[Room]),
    paint: Paint,
) {
    let name = &wish.target.name;
    let question = format!("{} {name}?", capitalised(wish.verb.word()));
    let what = match wish.verb {
        Verb::Delete => "This cannot be undone.".to_owned(),
        Verb::Pause => "It stops, and runs again only after a resume.".to_owned(),
        Verb::Restart => "It stops, and starts again.".to_owned(),
        Verb::Move if rooms.is_empty() => {
            "No other service of its pool has a free slot: the manager refuses the move unless one has by now.".to_owned()
        }
        Verb::Move => "It stops, and starts on another service. Press its digit.".to_owned(),
        Verb::Drain => drain(model, wish),
        Verb::Resume | Verb::Retry | Verb::Cordon | Verb::Uncordon => String::new(),
    };
    let yes = match (wish.verb, rooms.is_empty()) {
        (Verb::Move, true) => "y  try it",
        (_, true) => "y  yes",
        (_, false) => "y  any service with room",
    };
    let room = |(at, it): (usize, &Room)| Line::raw(format!("{}  {}: {} free", at + 1, it.service, it.free));
    let mut lines = vec![Line::styled(question, paint.bold()), Line::raw(what.clone()), Line::raw("")];
    lines.extend(rooms.iter().enumerate().map(room));
    lines.push(Line::raw(format!("{yes}      n  no")));
    let broken = usize::from(what.width() > usize::from(ASKED_WIDTH) - 2);
    let height = u16::try_from(lines.len() + broken + 2).unwrap_or(u16::MAX);
    let area = centred(area, ASKED_WIDTH, height);
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(Block::bordered()).wrap(Wrap { trim: false }), area);
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    letters.next().map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
}

pub(super) fn details(frame: &mut Frame<'_>, area: Rect, shown: (&Target, &str, usize), paint: Paint) {
    let (target, text, from) = shown;
    let kind = match target.what {
        Focus::Observers => "Observer",
        Focus::Services => "Service",
    };
    let (room, all) = (usize::from(area.height.saturating_sub(2)), text.lines().count());
    let mut block = Block::bordered().title(Line::styled(format!(" {kind} {} ", target.name), paint.bold()));
    if all > room {
        let last = (from + room).min(all);
        block =
            block.title_bottom(Line::raw(format!(" lines {}–{last} of {all} ", from + 1)).right_aligned());
    }
    let width = usize::from(area.width.saturating_sub(3));
    let shown = text.lines().skip(from).take(room);
    let lines: Vec<_> = shown.map(|it| Line::raw(format!(" {}", cut(it, width)))).collect();
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

pub(super) fn help(frame: &mut Frame<'_>, area: Rect, paint: Paint) {
    let heading = |line: &str| !line.starts_with(' ');
    let line = |line| if heading(line) { Line::styled(line, paint.bold()) } else { Line::raw(line) };
    let lines: Vec<_> = HELP.lines().map(line).collect();
    let area = centred(area, 80, u16::try_from(lines.len() + 2).unwrap_or(u16::MAX));
    let block = Block::bordered().title(Line::styled(" Keys ", paint.bold()));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}
