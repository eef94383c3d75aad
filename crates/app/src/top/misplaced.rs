//! What a key that does nothing at its place says: where it does something. Independent of the state of the screen.

use crossterm::event::KeyCode;

/// The part of the screen that gets the keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Place {
    Observers,
    Services,
    Details,
    /// A log or events.
    Feed,
    Timeline,
}

impl Place {
    fn is_list(self) -> bool {
        matches!(self, Self::Observers | Self::Services)
    }
}

/// What a key does somewhere.
#[derive(Clone, Copy)]
enum Home {
    Observers,
    Services,
    Lists,
    Feeds,
    Timeline,
    Views,
}

fn home(letter: char) -> Option<(&'static str, Home)> {
    Some(match letter {
        'd' => ("delete", Home::Observers),
        'p' => ("pause", Home::Observers),
        'r' => ("resume", Home::Observers),
        'R' => ("restart", Home::Observers),
        'm' => ("move", Home::Observers),
        't' => ("retry", Home::Observers),
        'c' => ("cordon", Home::Services),
        'u' => ("uncordon", Home::Services),
        'D' => ("drain", Home::Services),
        'o' => ("`o` (its observers)", Home::Services),
        '/' => ("the filter", Home::Lists),
        's' => ("sort", Home::Lists),
        'T' => ("the timeline", Home::Lists),
        'E' => ("`E` (events of all)", Home::Lists),
        '?' => ("the help", Home::Lists),
        'f' => ("follow", Home::Feeds),
        'w' => ("wrap", Home::Feeds),
        '+' | '=' | '-' => ("the choice of the time", Home::Timeline),
        'G' => ("the last line", Home::Views),
        _ => return None,
    })
}

/// The answer to a key that does nothing at this place.
pub(super) fn answer(key: KeyCode, place: Place) -> String {
    let letter = if let KeyCode::Char(letter) = key { Some(letter) } else { None };
    let all =
        if place == Place::Details { "press Esc, and then ? for all keys" } else { "press ? for all keys" };
    let Some((what, home)) = letter.and_then(home) else {
        return match letter {
            Some(letter) => format!("`{letter}` does nothing here: {all}"),
            None => format!("this key does nothing here: {all}"),
        };
    };
    match home {
        Home::Observers | Home::Services | Home::Lists if !place.is_list() => {
            format!("{what} is for the lists: press Esc first")
        }
        Home::Observers => format!("{what} is for observers: press Tab and select one"),
        Home::Services => format!("{what} is for services: press Tab and select one"),
        Home::Lists => format!("{what} does nothing here: {all}"),
        Home::Feeds => format!("{what} is for logs and events: press l, e or E to open them"),
        Home::Timeline => format!("{what} is for the timeline: press T to open it"),
        Home::Views => format!("{what} is for logs, events and the timeline: press PgDn for the next page"),
    }
}

/// The answer to a key that needs a selected row, where there is none.
pub(super) fn nothing_selected(place: Place) -> &'static str {
    match place {
        Place::Observers => "no observer is selected: the list is empty",
        Place::Services => "no service is selected: the list is empty",
        Place::Details | Place::Feed | Place::Timeline => {
            "this concerns one observer or service: press Esc and select one"
        }
    }
}
