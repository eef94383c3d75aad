//! The reference of the findings in the book, from the findings themselves.

use super::examples::{BROKER, FLEET, MANAGER};
use super::*;
use std::fmt::Write as _;
use std::path::Path;

const HEAD: &str = "# Findings of the doctor

<!-- Generated from the code: UPDATE_DOCS=1 tests/run -E 'test(reference_of_the_findings)' -->

`everwatch doctor`, `GET /v1/doctor` and the page Doctor of the console show what is wrong with a deployment, or may become wrong. For
each finding, they show its severity, what it is about, why it matters, and the command or setting that cures it. The exit code of
`everwatch doctor` is 9 if a finding is `critical` (observers do not run, or will be lost or restarted), 8 if one is a `warning` (it
harms later, or as soon as something else fails), and 0 otherwise (`info`).

This page lists the codes of all findings, which do not change, each with an example: your names and numbers differ, and the
severity of some depends on how bad the problem is.

";

/// One section for each code.
#[test]
fn the_reference_of_the_findings_is_as_the_code_says() {
    let examples: BTreeMap<_, _> = BROKER.into_iter().chain(MANAGER).chain(FLEET).collect();
    let (mut contents, mut sections) = ("| code | what it says |\n|---|---|\n".to_owned(), String::new());
    for (code, says) in CODES {
        let change = examples.get(code).unwrap_or_else(|| panic!("{code} has no example"));
        let findings = diagnosed(change);
        let found = findings.iter().find(|it| it.code == code);
        let Some(Finding { severity, subject, what, why, cure, .. }) = found else {
            panic!("the example of {code} makes {findings:?}")
        };
        let severity = format!("{severity:?}").to_lowercase();
        writeln!(contents, "| [`{code}`](#{code}) | {says} |").unwrap();
        write!(
            sections,
            "\n## {code}\n\n{says}\n\n- **Example**, `{severity}`, about {subject}: {what}\n- **Why**: {why}\n- **Cure**: {cure}\n"
        )
        .unwrap();
    }
    let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/doctor.md");
    let page = format!("{HEAD}{contents}{sections}");
    if std::env::var_os("UPDATE_DOCS").is_some() {
        std::fs::write(&file, &page).unwrap();
    }
    let kept = std::fs::read_to_string(&file).unwrap();
    assert!(
        kept == page,
        "docs/doctor.md is not as the code says: run this test with UPDATE_DOCS=1, and look at the change"
    );
}
