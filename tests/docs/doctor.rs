//! The list of the findings of the doctor, generated from their codes.

use super::keep;
use everwatch_core::doctor::CODES;
use std::fmt::Write as _;

const HEAD: &str = "# Findings of the doctor

<!-- Generated from the codes: UPDATE_DOCS=1 tests/run -E 'binary(docs)' -->

`everwatch doctor`, `GET /v1/doctor` and the page Doctor of the console show what is wrong, or may become wrong, with a deployment. For
each finding, they show its severity (`critical`, `warning` or `info`), what it is about, why it matters, and the command or setting
that cures it. This page lists the codes of the findings, which do not change. The exit code of `everwatch doctor` is 9 if a finding is critical, 8 if one is a warning, and 0 otherwise.

| code | what it says |
|---|---|
";

#[test]
fn the_list_of_the_findings_is_as_their_codes() {
    let mut page = HEAD.to_owned();
    for (code, about) in CODES {
        writeln!(page, "| `{code}` | {about} |").unwrap();
    }
    keep("docs/doctor.md", &page);
}
