//! Parses one chapter: its commands in order, and the output that it shows for them.

/// A fenced block of shell commands, with the output shown after it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Block {
    pub(crate) line: usize,
    pub(crate) commands: Vec<String>,
    /// The lines of the text block that follows directly.
    pub(crate) shown: Vec<String>,
}

/// The blocks of shell commands of a page of Markdown.
pub(crate) fn blocks(page: &str) -> Vec<Block> {
    let mut blocks: Vec<Block> = Vec::new();
    let (mut fence, mut body, mut is_behind) = (None, Vec::new(), false);
    for (number, line) in (1..).zip(page.lines()) {
        match (&fence, line.strip_prefix("```")) {
            (None, Some(language)) => fence = Some((number, language.to_owned())),
            (None, None) => is_behind &= line.is_empty(),
            (Some(_), None) => body.push(line.to_owned()),
            (Some((line, language)), Some(_)) => {
                let body = std::mem::take(&mut body);
                if language == "sh" {
                    blocks.push(Block { line: *line, commands: commands(&body), shown: Vec::new() });
                } else if let ("text", true, Some(before)) = (&**language, is_behind, blocks.last_mut()) {
                    before.shown = body;
                }
                is_behind = language == "sh";
                fence = None;
            }
        }
    }
    blocks
}

/// Joins lines into commands; `\` and here-documents continue a command.
fn commands(lines: &[String]) -> Vec<String> {
    let mut commands: Vec<String> = Vec::new();
    let mut until: Option<String> = None;
    let mut goes_on = false;
    for line in lines {
        let is_more = until.is_some() || goes_on;
        match commands.last_mut().filter(|_| is_more) {
            Some(command) => *command += &format!("\n{line}"),
            None if line.trim().is_empty() => continue,
            None => commands.push(line.clone()),
        }
        if until.as_ref() == Some(line) {
            until = None;
        } else if let Some((_, word)) = line.split_once("<<'") {
            until = word.split('\'').next().map(str::to_owned);
        }
        goes_on = until.is_none() && line.ends_with('\\');
    }
    commands
}

/// Whether `said` contains the shown line: all its words in one line and in this order, except words with
/// digits or an ellipsis, which vary.
pub(crate) fn says(said: &str, shown: &str) -> bool {
    let differs = |word: &str| word.contains(|c: char| c.is_ascii_digit()) || word.contains('…');
    said.lines().any(|line| {
        let mut words = shown.split_whitespace().filter(|word| !differs(word));
        words.try_fold(line, |rest, word| rest.split_once(word).map(|(_, rest)| rest)).is_some()
    })
}

#[test]
fn a_page_is_read_as_its_commands() {
    let page = "x\n```sh\none a\ntwo \\\n  b\ncat >f <<'END'\n\nc\nEND\n```\n\n```text\nNAME  17s\n```\n\n```text\nno\n```\n```toml\nx\n```\n";
    let read = blocks(page);
    let commands = ["one a", "two \\\n  b", "cat >f <<'END'\n\nc\nEND"].map(str::to_owned).to_vec();
    assert_eq!(read, [Block { line: 2, commands, shown: vec!["NAME  17s".to_owned()] }]);
    assert!(says("a\nNAME x AGE 3s\n", "NAME AGE 17s") && !says("NAME\nAGE", "NAME AGE"));
}
