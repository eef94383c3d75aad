//! `everwatch doctor`: what the manager finds wrong, for a person or a script.

use crate::cli::{Doctor, Output};
use crate::client::{Client, Failure};
use crate::output::{self, TerminalStyle, print, text};
use reqwest::Method;
use serde_json::Value;

/// # Errors
/// A failure if anything is critical, a conflict if there are warnings: the exit code tells the severity.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(server: &str, arguments: &Doctor) -> anyhow::Result<()> {
    let (_, page) = Client::new(server)?.call(Method::GET, "/v1/doctor", None).await?;
    let items = page["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    match arguments.shown.output {
        Output::Json => print(&serde_json::to_string_pretty(items)?),
        Output::Yaml => print(&output::yaml(&items)?),
        Output::Name => items.iter().for_each(|it| print(&text(it, "code"))),
        Output::Table | Output::Wide if items.is_empty() => print("nothing is wrong"),
        Output::Table | Output::Wide => {
            let colours = TerminalStyle::stdout().colours;
            let told: Vec<String> = items.iter().map(|it| paragraph(it, colours)).collect();
            print(&told.join("\n\n"));
        }
    }
    verdict(items).map_or(Ok(()), |failure| Err(failure.into()))
}

fn verdict(items: &[Value]) -> Option<Failure> {
    let count = |severity: &str| items.iter().filter(|it| it["severity"] == severity).count();
    let (critical, warnings) = (count("critical"), count("warning"));
    let counted =
        |number: usize, word: &str| format!("{number} {word}{}", if number == 1 { "" } else { "s" });
    match (critical, warnings) {
        (0, 0) => None,
        (0, _) => Some(Failure::Conflict(counted(warnings, "warning"))),
        _ => Some(Failure::Failed(format!("{critical} critical, {}", counted(warnings, "warning")))),
    }
}

fn paragraph(it: &Value, colours: bool) -> String {
    let severity = text(it, "severity");
    let colour = match severity.as_str() {
        "critical" => "31",
        "warning" => "33",
        _ => "36",
    };
    let severity = severity.to_uppercase();
    let head = if colours { format!("\u{1b}[1;{colour}m{severity}\u{1b}[0m") } else { severity };
    format!(
        "{head}  {}  {}\n  what  {}\n  why   {}\n  cure  {}",
        text(it, "code"),
        text(it, "subject"),
        text(it, "what"),
        text(it, "why"),
        text(it, "cure")
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_worst_decides_the_exit_code() {
        let items = |all: &[&str]| all.iter().map(|it| json!({"severity": it})).collect::<Vec<_>>();
        let code = |all: &[&str]| verdict(&items(all)).map_or(0, |failure| failure.exit_code());
        assert_eq!(
            [code(&[]), code(&["info"]), code(&["info", "warning"]), code(&["warning", "critical"])],
            [0, 0, 4, 1]
        );
        assert_eq!(verdict(&items(&["warning", "critical"])).unwrap().to_string(), "1 critical, 1 warning");
    }

    #[test]
    fn a_finding_is_a_paragraph_with_or_without_colours() {
        let it = json!({"code": "parked", "severity": "warning", "subject": "s", "what": "w", "why": "y", "cure": "c"});
        assert_eq!(paragraph(&it, false), "WARNING  parked  s\n  what  w\n  why   y\n  cure  c");
        assert!(paragraph(&it, true).starts_with("\u{1b}[1;33mWARNING\u{1b}[0m  parked"));
    }
}
