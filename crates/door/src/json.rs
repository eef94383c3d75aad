//! Counts the values of a JSON text before it is parsed: the parsed values of a short text such as `[0,0,0]`
//! take up to 30 times the memory of the text.

/// Counts the values of a text and their nesting depth; stops at the first limit that is exceeded. The count
/// may be too high for a text that is not JSON, which the parser refuses anyway.
///
/// # Errors
/// Which limit the text exceeds.
pub fn within(text: &[u8], depth: usize, values: usize) -> Result<(), TooMuch> {
    let (mut level, mut count) = (0_usize, 1_usize);
    let (mut in_text, mut escaped) = (false, false);
    for byte in text {
        if in_text {
            in_text = escaped || *byte != b'"';
            escaped = !escaped && *byte == b'\\';
            continue;
        }
        match byte {
            b'"' => in_text = true,
            b'[' | b'{' => {
                level += 1;
                count += 1;
            }
            b']' | b'}' => level = level.saturating_sub(1),
            b',' => count += 1,
            _ => {}
        }
        if level > depth {
            return Err(TooMuch::Depth);
        }
        if count > values {
            return Err(TooMuch::Values);
        }
    }
    Ok(())
}

/// The limit that a text exceeds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TooMuch {
    Depth,
    Values,
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::Value;

    #[test]
    fn brackets_and_commas_in_texts_count_for_nothing() {
        let text = br#"{"a\"[[[,,,": "\\", "b": "]]],,,{{{"}"#;
        assert_eq!(within(text, 1, 3), Ok(()));
        assert_eq!(within(text, 0, 3), Err(TooMuch::Depth));
        assert_eq!(within(text, 1, 2), Err(TooMuch::Values));
    }

    #[test]
    fn a_long_text_is_left_at_the_limit() {
        let deep = "[".repeat(1_000_000);
        assert_eq!(within(deep.as_bytes(), 127, usize::MAX), Err(TooMuch::Depth));
        let long = format!("[{}0]", "0,".repeat(1_000_000));
        assert_eq!(within(long.as_bytes(), 127, 1000), Err(TooMuch::Values));
    }

    fn values() -> impl Strategy<Value = String> {
        let leaf = prop_oneof![Just("0".to_owned()), r#""[\[\],{}]{0,4}""#, Just("null".to_owned())];
        leaf.prop_recursive(5, 60, 6, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..6).prop_map(|all| format!("[{}]", all.join(","))),
                prop::collection::vec(inner, 0..6).prop_map(|all| {
                    let members = all.iter().enumerate().map(|(at, it)| format!("\"{at}\":{it}"));
                    let members: Vec<_> = members.collect();
                    format!("{{{}}}", members.join(" , "))
                }),
            ]
        })
    }

    fn counted(value: &Value) -> usize {
        1 + match value {
            Value::Array(all) => all.iter().map(counted).sum(),
            Value::Object(all) => all.values().map(counted).sum(),
            _ => 0,
        }
    }

    proptest! {
        #[test]
        fn no_value_is_missed(text in values()) {
            let exact = counted(&serde_json::from_str(&text).unwrap());
            let mut least = 0;
            while within(text.as_bytes(), 127, least).is_err() {
                least += 1;
            }
            // An empty list or object counts for two.
            prop_assert!(exact <= least && least <= 2 * exact, "{least} for {exact} in {text}");
        }
    }
}
