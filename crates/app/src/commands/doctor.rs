//! `everwatch doctor`: what the manager finds wrong, for an operator or a script.

use crate::cli::Doctor;
use crate::client::{Client, Failure};
use crate::item::Item;
use crate::output::{self, Output, TerminalStyle, print, prose};
use everwatch_api::{Finding, Listed};
use everwatch_core::doctor::Severity;
use everwatch_core::wording::counted;

/// # Errors
/// If there are warnings or critical findings: the exit code tells which.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(server: &str, arguments: &Doctor) -> anyhow::Result<()> {
    let Listed { items, .. } = Client::new(server)?.read::<Listed<Item<Finding>>>("/v1/doctor").await?;
    let shown = &arguments.shown;
    if shown.output == Output::Name {
        items.iter().for_each(|it| print(&it.code));
    } else if shown.is_table() && items.is_empty() {
        print("nothing is wrong");
    } else if !output::structured_list(&items, shown)? {
        let paper = TerminalStyle::stdout();
        let told: Vec<String> = items.iter().map(|it| paragraph(it, paper)).collect();
        print(&told.join("\n\n"));
    }
    let severities: Vec<_> = items.iter().map(|it| it.severity).collect();
    verdict(&severities).map_or(Ok(()), |failure| Err(failure.into()))
}

fn verdict(severities: &[Severity]) -> Option<Failure> {
    let count = |severity| severities.iter().filter(|it| **it == severity).count();
    let (critical, warnings) = (count(Severity::Critical), count(Severity::Warning) as u64);
    match (critical, warnings) {
        (0, 0) => None,
        (0, _) => Some(Failure::Warnings(counted(warnings, "warning"))),
        _ => Some(Failure::Critical(format!("{critical} critical, {}", counted(warnings, "warning")))),
    }
}

fn paragraph(it: &Finding, paper: TerminalStyle) -> String {
    let (severity, colour) = match it.severity {
        Severity::Critical => ("CRITICAL", "31"),
        Severity::Warning => ("WARNING", "33"),
        Severity::Info => ("INFO", "36"),
    };
    let head =
        if paper.colours { format!("\u{1b}[1;{colour}m{severity}\u{1b}[0m") } else { severity.to_owned() };
    let Finding { code, subject, what, why, cure, .. } = it;
    let [what, why, cure] = [what, why, cure].map(|text| prose(text, 8, paper));
    format!("{head}  {code}  {subject}\n  what  {what}\n  why   {why}\n  cure  {cure}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_worst_decides_the_exit_code() {
        use Severity::{Critical, Info, Warning};
        let code = |all: &[Severity]| verdict(all).map_or(0, |failure| failure.exit_code());
        assert_eq!(
            [code(&[]), code(&[Info]), code(&[Info, Warning]), code(&[Warning, Critical])],
            [0, 0, 8, 9]
        );
        assert_eq!(verdict(&[Warning, Critical]).unwrap().to_string(), "1 critical, 1 warning");
    }

    #[test]
    fn a_finding_is_a_paragraph_with_or_without_colours() {
        let [code, subject, what, why, cure] = ["parked", "s", "w", "y", "c"].map(str::to_owned);
        let it = Finding { code, severity: Severity::Warning, subject, what, why, cure };
        let paper = |colours| TerminalStyle { width: Some(80), colours };
        assert_eq!(paragraph(&it, paper(false)), "WARNING  parked  s\n  what  w\n  why   y\n  cure  c");
        assert!(paragraph(&it, paper(true)).starts_with("\u{1b}[1;33mWARNING\u{1b}[0m  parked"));
    }
}
