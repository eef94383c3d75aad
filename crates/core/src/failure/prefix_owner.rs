//! Which database owns the observers of a prefix: the store queue holds its identity.

/// The result of reading the store queue.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Owner {
    /// The manager's own database.
    Ours,
    /// No owner yet.
    Nobody,
    /// Another database, with its identity.
    Other(String),
}

/// The first identity in the queue owns the prefix; managers that write at the same time read the same owner.
#[must_use]
pub fn owner(found: &[&[u8]], ours: &str) -> Owner {
    match found.first() {
        None => Owner::Nobody,
        Some(first) if *first == ours.as_bytes() => Owner::Ours,
        Some(first) => Owner::Other(String::from_utf8_lossy(first).chars().take(100).collect()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_identity_in_the_queue_owns_the_prefix() {
        assert_eq!(owner(&[], "a"), Owner::Nobody);
        assert_eq!(owner(&[b"a", b"b"], "a"), Owner::Ours);
        assert_eq!(owner(&[b"a", b"b"], "b"), Owner::Other("a".to_owned()));
        assert_eq!(owner(&[b"a\xff"], "a"), Owner::Other("a\u{fffd}".to_owned()));
    }
}
