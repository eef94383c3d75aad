//! Finds the name that a misspelled one resembles.

/// The most similar of the known names, if one is similar at all.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let folded = name.to_lowercase();
    let most = 1 + name.chars().count().saturating_sub(1) / 4;
    let distance = |known: &str| strsim::damerau_levenshtein(&folded, &known.to_lowercase());
    let scored = known.into_iter().map(|known| (distance(known), known));
    scored.filter(|(distance, _)| *distance <= most).min().map(|(_, known)| known)
}

/// What to write instead of a name that is not known: the nearest one, or all of them.
#[must_use]
pub fn advice(name: &str, nouns: &str, known: &[&str]) -> String {
    match nearest(name, known.iter().copied()) {
        Some(near) => format!("did you mean `{near}`?"),
        None if known.is_empty() => format!("there are no {nouns}"),
        None => format!("{nouns}: {}", known.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_similar_name_is_found_and_a_different_one_is_not() {
        let kinds = ["exec", "http", "tail", "ticker", "websocket"];
        for (name, near) in [
            ("webscoket", "websocket"),
            ("Websockt", "websocket"),
            ("htpp", "http"),
            ("exe", "exec"),
            ("tial", "tail"),
        ] {
            assert_eq!(nearest(name, kinds), Some(near), "{name}");
        }
        assert_eq!(nearest("postgres-listen", kinds), None);
        assert_eq!(nearest("nope", ["once"]), None, "half of it differs");
        assert_eq!(advice("zzz", "kinds", &kinds), "kinds: exec, http, tail, ticker, websocket");
        assert_eq!(advice("gpuu", "pools", &["default", "gpu"]), "did you mean `gpu`?");
        assert_eq!(advice("x", "pools", &[]), "there are no pools");
    }
}
