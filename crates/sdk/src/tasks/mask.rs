//! Masks secrets in the output of a process. Each attempt masks its own secrets in its log, errors, status and values;
//! the process masks those of all its attempts on standard error and in its spans, where the lines of all observers, of
//! libraries and of panics come together.

use crate::error::Error;
use aho_corasick::{AhoCorasick, AhoCorasickKind, MatchKind};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde_json::Value;
use std::borrow::Cow;
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// What stands in place of a secret.
pub(crate) const MASKED: &str = "***";
/// Shorter secrets are not masked, because unrelated words may contain them.
pub(crate) const MASKED_MIN_BYTES: usize = 8;

/// The secrets of one attempt.
pub(crate) struct Mask {
    patterns: Vec<String>,
    finder: AhoCorasick,
}

impl Mask {
    /// Until it is dropped, the process masks these secrets, too. `None` if there is nothing to mask.
    pub(crate) fn new<'a>(secrets: impl Iterator<Item = &'a str>) -> Option<Self> {
        let mut patterns: Vec<String> = secrets.flat_map(forms).collect();
        patterns.sort_unstable();
        patterns.dedup();
        let finder = finder(patterns.iter()).filter(|_| !patterns.is_empty())?;
        PROCESS.add(&patterns);
        Some(Self { patterns, finder })
    }

    pub(crate) fn text<'t>(&self, text: &'t str) -> Cow<'t, str> {
        masked(&self.finder, text)
    }

    /// Masks the strings and the names of members in JSON text.
    ///
    /// # Errors
    /// If the text is not JSON.
    pub(crate) fn json(&self, text: Vec<u8>) -> Result<Vec<u8>, Error> {
        if !self.finder.is_match(&text) {
            return Ok(text);
        }
        let mut value = serde_json::from_slice(&text)?;
        self.strings(&mut value);
        Ok(serde_json::to_vec(&value)?)
    }

    pub(crate) fn is_in(&self, text: &str) -> bool {
        self.finder.is_match(text)
    }

    fn strings(&self, value: &mut Value) {
        match value {
            Value::String(text) => {
                if let Cow::Owned(masked) = self.text(text) {
                    *text = masked;
                }
            }
            Value::Array(items) => items.iter_mut().for_each(|item| self.strings(item)),
            Value::Object(members) => {
                for (name, mut member) in std::mem::take(members) {
                    self.strings(&mut member);
                    members.insert(self.text(&name).into_owned(), member);
                }
            }
            _ => {}
        }
    }
}

impl Drop for Mask {
    fn drop(&mut self) {
        PROCESS.remove(&self.patterns);
    }
}

/// What RFC 3986 does not reserve; programs differ in whether they encode the last four.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

/// The forms in which a secret appears in output: plain, inside JSON, inside a URL, and line by line.
fn forms(secret: &str) -> Vec<String> {
    let json = Value::from(secret).to_string();
    let json = &json[1..json.len() - 1];
    let ascii = |c: char| {
        let escaped = |unit: &u16| format!("\\u{unit:04x}");
        if c.is_ascii() { c.to_string() } else { c.encode_utf16(&mut [0; 2]).iter().map(escaped).collect() }
    };
    let mut forms = vec![
        secret.to_owned(),
        json.to_owned(),
        json.replace('/', "\\/"),
        json.chars().map(ascii).collect(),
        utf8_percent_encode(secret, RESERVED).to_string(),
        utf8_percent_encode(secret, NON_ALPHANUMERIC).to_string(),
    ];
    forms.extend(secret.lines().map(|line| line.trim().to_owned()));
    forms.retain(|form| form.len() >= MASKED_MIN_BYTES);
    forms
}

/// `None` if the patterns are too many to be searched for, which the limits of specs prevent.
fn finder<'a>(patterns: impl Iterator<Item = &'a String>) -> Option<AhoCorasick> {
    // A DFA, which the builder would choose, has a transition for each byte in each state: up to 64 MB for a secret of 64 KiB.
    AhoCorasick::builder()
        .match_kind(MatchKind::LeftmostLongest)
        .kind(Some(AhoCorasickKind::ContiguousNFA))
        .build(patterns)
        .ok()
}

fn masked<'t>(finder: &AhoCorasick, text: &'t str) -> Cow<'t, str> {
    if !finder.is_match(text) {
        return Cow::Borrowed(text);
    }
    let mut output = String::with_capacity(text.len());
    finder.replace_all_with(text, &mut output, |_, _, output| {
        output.push_str(MASKED);
        true
    });
    Cow::Owned(output)
}

static PROCESS: ProcessMask = ProcessMask::new();

/// Masks the secrets of all attempts of this process.
pub(crate) fn of_process(text: &str) -> Cow<'_, str> {
    PROCESS.finder().map_or(Cow::Borrowed(text), |finder| masked(&finder, text))
}

struct ProcessMask {
    /// Read for each line, so that a process without secrets takes no lock.
    count: AtomicUsize,
    patterns: Mutex<Option<Patterns>>,
}

#[derive(Default)]
struct Patterns {
    /// How many attempts have each pattern.
    users: HashMap<String, usize>,
    /// `None` if a pattern was added since it was made.
    finder: Option<Arc<AhoCorasick>>,
}

impl ProcessMask {
    const fn new() -> Self {
        Self { count: AtomicUsize::new(0), patterns: Mutex::new(None) }
    }

    fn add(&self, patterns: &[String]) {
        let mut known = self.lock();
        let known = known.get_or_insert_default();
        for pattern in patterns {
            let users = known.users.entry(pattern.clone()).or_default();
            *users += 1;
            if *users == 1 {
                known.finder = None;
            }
        }
        self.count.store(known.users.len(), Ordering::Release);
    }

    fn remove(&self, patterns: &[String]) {
        let mut known = self.lock();
        let Some(known) = known.as_mut() else { return };
        for pattern in patterns {
            // What is no longer used stays in the finder until the next pattern is added.
            if let Some(users) = known.users.get_mut(pattern) {
                *users -= 1;
                if *users == 0 {
                    known.users.remove(pattern);
                }
            }
        }
        self.count.store(known.users.len(), Ordering::Release);
    }

    fn finder(&self) -> Option<Arc<AhoCorasick>> {
        if self.count.load(Ordering::Acquire) == 0 {
            return None;
        }
        let mut known = self.lock();
        let known = known.as_mut()?;
        if known.finder.is_none() {
            known.finder = finder(known.users.keys()).map(Arc::new);
        }
        known.finder.clone()
    }

    fn lock(&self) -> MutexGuard<'_, Option<Patterns>> {
        self.patterns.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mask(secrets: &[&str]) -> Mask {
        Mask::new(secrets.iter().copied()).unwrap()
    }

    #[test]
    fn a_secret_is_masked_in_each_of_its_forms() {
        let mask = mask(&[
            "pass\"word/1",
            "a-b_c.d~e/g",
            "schlüssel 🔑",
            "-----BEGIN-----\nMIIEvQIBADAN\n-----END-----",
        ]);
        for (text, expected) in [
            ("login with pass\"word/1 failed", "login with *** failed"),
            (r#"{"password":"pass\"word/1"}"#, r#"{"password":"***"}"#),
            ("GET /?p=pass%22word%2F1", "GET /?p=***"),
            ("key: MIIEvQIBADAN", "key: ***"),
            (r#"{"p":"pass\"word\/1"}"#, r#"{"p":"***"}"#),
            ("/?p=a-b_c.d~e%2Fg", "/?p=***"),
            ("/?p=a%2Db%5Fc%2Ed%7Ee%2Fg", "/?p=***"),
            (r"schl\u00fcssel \ud83d\udd11", "***"),
            ("password", "password"),
        ] {
            assert_eq!(mask.text(text), expected);
        }
        assert!(mask.is_in("x pass\"word/1 y") && !mask.is_in("pass"));
    }

    #[test]
    fn short_secrets_are_not_masked() {
        assert!(Mask::new(["abc", "1234567"].into_iter()).is_none());
        assert!(Mask::new(std::iter::empty()).is_none());
        assert_eq!(mask(&["admin", "long-enough"]).text("admin long-enough"), "admin ***");
    }

    #[test]
    fn json_stays_json() {
        let mask = mask(&["12345678", "the-secret"]);
        let json = |text: &str| String::from_utf8(mask.json(text.into()).unwrap()).unwrap();
        let text = r#"{"number":12345678,"text":"a 12345678","the-secret":["the-secret",true]}"#;
        assert_eq!(json(text), r#"{"***":["***",true],"number":12345678,"text":"a ***"}"#);
        assert_eq!(json(r#"{"b":1, "a":2}"#), r#"{"b":1, "a":2}"#, "as it was");
    }

    #[test]
    fn the_process_masks_a_secret_as_long_as_an_attempt_has_it() {
        let process = ProcessMask::new();
        let told = |text| {
            process.finder().map_or_else(|| "as it is".to_owned(), |it| masked(&it, text).into_owned())
        };
        let one = ["first-secret".to_owned(), "shared-secret".to_owned()];
        process.add(&one);
        process.add(&one[1..]);
        assert_eq!(told("first-secret shared-secret"), "*** ***");
        process.remove(&one);
        process.add(&["another-secret".to_owned()]);
        assert_eq!(told("first-secret shared-secret another-secret"), "first-secret *** ***");
        process.remove(&one[1..]);
        process.remove(&["another-secret".to_owned()]);
        assert_eq!(told("shared-secret"), "as it is");
    }
}
