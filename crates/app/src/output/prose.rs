//! Sentences in lines that fit the terminal.

use super::TerminalStyle;
use unicode_width::UnicodeWidthStr as _;

/// The text in lines that fit the terminal. It begins at column `indent`, and so do the lines after the first. A command in
/// backticks stays on one line, so that a user can copy it; if it is longer than a line, the terminal divides it.
pub(crate) fn prose(text: &str, indent: usize, paper: TerminalStyle) -> String {
    let Some(width) = paper.width.filter(|width| *width > indent) else { return text.to_owned() };
    let margin = format!("\n{:indent$}", "");
    let (mut told, mut used) = (String::new(), indent);
    for word in words(text) {
        let space = usize::from(!told.is_empty());
        if used + space + word.width() > width && space > 0 {
            told.push_str(&margin);
            used = indent;
        } else if space > 0 {
            told.push(' ');
            used += 1;
        }
        told.push_str(word);
        used += word.width();
    }
    told
}

/// Breaks the lines that are longer than the terminal is wide. The parts of a line have its indentation.
pub(crate) fn fitted(text: &str, paper: TerminalStyle) -> String {
    let fits = |line: &str| paper.width.is_none_or(|width| line.width() <= width);
    let line = |line: &str| {
        let words = line.trim_start_matches(' ');
        let indent = line.len() - words.len();
        if fits(line) { line.to_owned() } else { format!("{:indent$}{}", "", prose(words, indent, paper)) }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

/// The words of a text. A part in backticks is one word, together with what adjoins it.
fn words(text: &str) -> Vec<&str> {
    let mut in_backticks = false;
    let parts = text.split(|letter: char| {
        in_backticks ^= letter == '`';
        letter == ' ' && !in_backticks
    });
    parts.filter(|word| !word.is_empty()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(width: Option<usize>, text: &str) -> String {
        prose(text, 4, TerminalStyle { width, colours: false })
    }

    #[test]
    fn lines_end_between_words_and_commands_stay_whole() {
        assert_eq!(at(Some(16), "one two three four"), "one two\n    three four");
        assert_eq!(at(Some(16), "run `a b c`, then `d e`"), "run `a b c`,\n    then `d e`");
        assert_eq!(at(Some(12), "see `everwatch doctor` first"), "see\n    `everwatch doctor`\n    first");
        for unlimited in [None, Some(3)] {
            assert_eq!(at(unlimited, "one two three four"), "one two three four");
        }
        assert_eq!(at(Some(16), "a ` without another"), "a\n    ` without another");
    }

    #[test]
    fn only_lines_that_are_too_long_change() {
        let at = |width, text: &str| fitted(text, TerminalStyle { width: Some(width), colours: false });
        assert_eq!(at(9, "a   b\n  one two three"), "a   b\n  one two\n  three");
        assert_eq!(at(40, "a   b\n  one two three"), "a   b\n  one two three");
    }
}
