//! Rows that cannot be read: they hide no other row, and they are listed for operators.

use super::*;
use crate::port::{Filter, ListCursor, Page, StoreError, Table, Unreadable};
use everwatch_core::wire::report::InventoryRange;

const BROKEN: [u128; 3] = [1, 2, 3];

/// Makes these rows unreadable, and due before all others.
async fn damage(execute: &impl AsyncFn(String), numbers: &[u128]) {
    execute("CREATE TABLE intact AS SELECT id, state FROM observer_states".to_owned()).await;
    for number in numbers {
        let (id, cut) = (of_number(*number), "substr(state, 1, length(state) - 1)");
        execute(format!("UPDATE observer_states SET state = {cut}, due_at = 0 WHERE {id}")).await;
    }
}

/// The condition for the observer that was created as this one, in the SQL of both databases.
fn of_number(number: u128) -> String {
    let created_at = NOW.0 + i64::try_from(number).unwrap();
    format!("id = (SELECT o.id FROM observers o WHERE o.created_at = {created_at})")
}

fn numbers(rows: &[Row]) -> Vec<u128> {
    rows.iter().map(|row| row.id.0.as_u128()).collect()
}

/// `execute` runs a statement in the store's database.
pub async fn unreadable_observers_hide_no_other(store: &dyn Store, execute: impl AsyncFn(String)) {
    let rows: Vec<Row> = (1..=8).map(|number| published(number, &format!("n-{number}"))).collect();
    all_created(store, &rows).await;
    for number in 1..=8 {
        change(store, number, |row| {
            hear(row, 9, 1, started());
            row.delete(NOW, &RowPolicy::default());
        })
        .await;
    }
    damage(&execute, &BROKEN).await;

    let found = store.load(&[id(1), id(2), id(4), id(99)]).await.unwrap();
    assert_eq!((numbers(&found.rows), found.unreadable.len()), (vec![4], 2));
    assert!(found.unreadable.contains(&id(1)) && found.unreadable.contains(&id(2)));
    // Each order starts with more unreadable rows than the limit of the read.
    let later = NOW.plus(std::time::Duration::from_secs(3600));
    assert_eq!(numbers(&store.due(later, 2).await.unwrap()), [4, 5]);
    assert_eq!(numbers(&store.commanded_since(Timestamp(0), 2).await.unwrap()), [4, 5]);
    let pool = "default".parse().unwrap();
    assert_eq!(numbers(&store.unheld(&pool, &[], 2).await.unwrap()), [4, 5]);
    assert_eq!(store.unheld(&pool, &[service_id(9)], 2).await.unwrap(), []);
    let held = store.held_by(service_id(9), InventoryRange { after: None, upto: None }).await.unwrap();
    assert_eq!(held.len(), 8, "what is written beside a document is known");

    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let Page { rows, total, more } = store.list(&Filter::default(), after.as_ref(), 2).await.unwrap();
        assert_eq!(total, 8);
        seen.extend(numbers(&rows));
        let Some(last) = rows.last().filter(|_| more) else { break };
        after = Some(ListCursor { value: last.definition.name.to_string(), id: last.id });
    }
    assert_eq!(seen, [4, 5, 6, 7, 8]);
    assert_eq!(total(store).await, 8);
}

/// `execute` runs a statement in the store's database.
pub async fn an_unreadable_observer_is_named_with_its_cure(store: &dyn Store, execute: impl AsyncFn(String)) {
    all_created(store, &[published(1, "a"), published(2, "b"), published(3, "c")]).await;
    assert_eq!(store.unreadable().await.unwrap(), []);
    damage(&execute, &[1, 2]).await;
    for which in [ObserverRef::Id(id(1)), named("a")] {
        let error = store.find(&which).await.unwrap_err();
        let text = error.to_string();
        assert!(matches!(error, StoreError::Corrupt(_)) && text.contains(&id(1).to_string()), "{text}");
        assert!(text.contains("DELETE FROM observers WHERE id = "), "{text}");
    }
    // Its name and its id stay taken.
    assert_eq!(create(store, &[published(4, "a")]).await.unwrap(), [Created::NameTaken]);
    assert_eq!(create(store, &[published(1, "d")]).await.unwrap(), [Created::NameTaken]);
    store.load(&[id(1), id(2)]).await.unwrap();
    let known = async || {
        let unreadable = store.unreadable().await.unwrap();
        unreadable.iter().map(|Unreadable { table, id, .. }| (*table, id.as_u128())).collect::<Vec<_>>()
    };
    assert_eq!(known().await, [(Table::Observers, 1), (Table::Observers, 2)]);
    let intact = "(SELECT state FROM intact WHERE intact.id = observer_states.id)";
    execute(format!("UPDATE observer_states SET state = {intact} WHERE {}", of_number(1))).await;
    assert_eq!(known().await, [(Table::Observers, 2)]);
    assert_eq!(loaded(store, 1).await, published(1, "a"));
    let counted = async || total(store).await;
    assert_eq!(counted().await, 3);
    let cure = store.unreadable().await.unwrap().remove(0).cure();
    execute(cure[cure.find("DELETE").unwrap()..].to_owned()).await;
    assert_eq!((known().await, counted().await), (vec![], 2));
}

/// `execute` runs a statement in the store's database.
pub async fn an_unreadable_service_hides_no_other(store: &dyn Store, execute: impl AsyncFn(String)) {
    assert_eq!(store.save_services(&[service(1, "a", 4), service(2, "b", 4)]).await.unwrap(), []);
    execute("UPDATE services SET document = '{' WHERE name = 'a'".to_owned()).await;
    let found = store.services(NOW).await.unwrap();
    assert_eq!((found.rows, found.unreadable), (vec![service(2, "b", 4)], vec![service_id(1)]));
    assert!(matches!(store.service(&service_id(1).into()).await, Err(StoreError::Corrupt(_))));
    let unreadable = store.unreadable().await.unwrap();
    assert_eq!((unreadable.len(), unreadable[0].table), (1, Table::Services));
    assert!(unreadable[0].cure().contains("DELETE FROM services"), "{unreadable:?}");
}

/// The number of all observers.
async fn total(store: &dyn Store) -> u64 {
    store.counts().await.unwrap().values().map(|count| count.number).sum()
}
