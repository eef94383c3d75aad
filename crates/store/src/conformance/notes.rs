//! Checks of notes: small shared facts that expire.

use super::*;
use std::time::Duration;

const HOUR: Duration = Duration::from_secs(3600);

pub async fn the_first_to_claim_a_note_has_it(store: &dyn Store) {
    assert_eq!(store.note("a").await.unwrap(), None);
    assert_eq!(store.claim("a", "one", HOUR).await.unwrap(), "one");
    assert_eq!(store.claim("a", "two", HOUR).await.unwrap(), "one");
    assert_eq!(store.claim("a", "one", HOUR).await.unwrap(), "one");
    assert_eq!(store.note("a").await.unwrap().as_deref(), Some("one"));
    assert_eq!(store.claim("b", "two", Duration::MAX).await.unwrap(), "two");
}

pub async fn a_note_that_is_over_is_free(store: &dyn Store) {
    assert_eq!(store.claim("a", "one", Duration::ZERO).await.unwrap(), "one");
    assert_eq!(store.note("a").await.unwrap(), None);
    assert_eq!(store.claim("a", "two", HOUR).await.unwrap(), "two");
    store.set_note("a", "three", Duration::ZERO).await.unwrap();
    assert_eq!(store.note("a").await.unwrap(), None);
    store.set_note("b", "four", HOUR).await.unwrap();
    store.set_note("b", "five", HOUR).await.unwrap();
    assert_eq!(store.note("b").await.unwrap().as_deref(), Some("five"));
    assert_eq!(store.forget_notes().await.unwrap(), 1);
    assert_eq!(store.forget_notes().await.unwrap(), 0);
}

pub async fn notes_are_found_by_how_their_names_begin(store: &dyn Store) {
    for name in ["t/b", "t/_", "t", "u/c", "t/B"] {
        store.set_note(name, &format!("value of {name}"), HOUR).await.unwrap();
    }
    store.set_note("t/over", "", Duration::ZERO).await.unwrap();
    let found = store.notes_under("t/").await.unwrap();
    let names: Vec<&str> = found.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names, ["t/B", "t/_", "t/b"]);
    assert_eq!(found[2].1, "value of t/b");
    assert!(store.notes_under("t%").await.unwrap().is_empty());
}

pub async fn a_note_is_swapped_only_for_what_stands_there(store: &dyn Store) {
    assert!(!store.swap_note("a", "one", "two").await.unwrap(), "there is none");
    store.set_note("a", "one", HOUR).await.unwrap();
    assert!(store.swap_note("a", "one", "two").await.unwrap());
    assert!(!store.swap_note("a", "one", "three").await.unwrap());
    assert_eq!(store.note("a").await.unwrap().as_deref(), Some("two"));
    store.set_note("a", "two", Duration::ZERO).await.unwrap();
    assert!(!store.swap_note("a", "two", "three").await.unwrap(), "it is over");
    store.set_note("b", "0", HOUR).await.unwrap();
    let (one, two) = tokio::join!(store.swap_note("b", "0", "1"), store.swap_note("b", "0", "2"));
    assert_eq!(u8::from(one.unwrap()) + u8::from(two.unwrap()), 1, "one of two");
}

pub async fn of_claimers_side_by_side_one_has_it(store: &dyn Store) {
    for round in 0..20 {
        let name = format!("n-{round}");
        let (one, two) = tokio::join!(store.claim(&name, "one", HOUR), store.claim(&name, "two", HOUR));
        assert_eq!(one.unwrap(), two.unwrap());
    }
}
