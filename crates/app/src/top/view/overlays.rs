//! Draws the overlays above the lists, and the line of keys at the bottom.

use super::Paint;
use crate::top::model::{Focus, Mode, Model, Target, Verb, Wish};
use ratatui::Frame;
use ratatui::layout::Rect;
use ratatui::text::{Line, Span};
use ratatui::widgets::{Block, Clear, Paragraph, Wrap};
use unicode_width::UnicodeWidthStr as _;

const HELP: &str = "\
Everywhere
  Tab         services or observers        ?   this help
  ↑ ↓  j k    select                       q   quit
  PgUp PgDn   page                         g   go to the first row
  Enter       show details and recent events of the selected row

Observers
  /   filter: part of a name, or status=Failed service=s1 pool=… kind=… label=value
  s   sort by name or by age               Esc clear the filter
  p   pause       r   resume               R   restart
  m   move        t   retry (if failed)    d   delete (asks first)

Services
  c   cordon: accept no more observers     u   uncordon
  D   drain: hand over all (asks first)    o   its observers";

/// The keys of the current mode. If not all fit, the help shows the rest.
pub(super) fn keys(model: &Model, width: usize, paint: Paint) -> Line<'static> {
    let keys: &[(&str, &str)] = match (&model.mode, model.focus) {
        (Mode::Typing(_), _) => &[("Enter", "filter"), ("Esc", "cancel")],
        (Mode::Asking(_), _) => &[("y", "yes"), ("n", "no")],
        (Mode::Details { .. }, _) => &[("↑↓", "scroll"), ("Esc", "back")],
        (Mode::Help, _) => &[("any key", "back")],
        (Mode::Browse, Focus::Observers) => &[
            ("/", "filter"),
            ("s", "sort"),
            ("d", "delete"),
            ("p", "pause"),
            ("r", "resume"),
            ("R", "restart"),
            ("Tab", "services"),
            ("m", "move"),
            ("t", "retry"),
            ("Enter", "details"),
        ],
        (Mode::Browse, Focus::Services) => &[
            ("c", "cordon"),
            ("u", "uncordon"),
            ("D", "drain"),
            ("o", "its observers"),
            ("Tab", "observers"),
            ("Enter", "details"),
        ],
    };
    let always: &[(&str, &str)] =
        if model.mode == Mode::Browse { &[("?", "help"), ("q", "quit")] } else { &[] };
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

/// A rectangle in the middle of `area` with at most this size.
fn centred(area: Rect, width: u16, height: u16) -> Rect {
    let (width, height) = (width.min(area.width), height.min(area.height));
    let x = area.x + (area.width - width) / 2;
    Rect { x, y: area.y + (area.height - height) / 2, width, height }
}

pub(super) fn ask(frame: &mut Frame<'_>, area: Rect, wish: &Wish, paint: Paint) {
    let name = &wish.target.name;
    let (question, what) = match wish.verb {
        Verb::Drain => (format!("Drain {name}?"), "It hands over all observers and accepts no new ones."),
        _ => (format!("{} {name}?", capitalised(wish.verb.word())), "This cannot be undone."),
    };
    let area = centred(area, 60, 6);
    let lines = vec![
        Line::styled(question, paint.bold()),
        Line::raw(what),
        Line::raw(""),
        Line::raw("y  yes      n  no"),
    ];
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
    let lines: Vec<_> = text.lines().skip(from).take(room).map(|it| Line::raw(format!(" {it}"))).collect();
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}

pub(super) fn help(frame: &mut Frame<'_>, area: Rect, paint: Paint) {
    let lines: Vec<_> = HELP.lines().map(Line::raw).collect();
    let area = centred(area, 86, u16::try_from(lines.len() + 2).unwrap_or(u16::MAX));
    let block = Block::bordered().title(Line::styled(" Keys ", paint.bold()));
    frame.render_widget(Clear, area);
    frame.render_widget(Paragraph::new(lines).block(block), area);
}
