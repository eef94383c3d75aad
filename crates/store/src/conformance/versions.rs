//! Checks of the versions of definitions.

use super::*;
use everwatch_core::record::row::REVISIONS_MAX;

fn redefined(row: &mut Row, priority: i64) {
    let mut body = serde_json::to_value(&*row.definition).unwrap();
    body["priority"] = json!(priority);
    let definition = ObserverDefinition::parse(body, &row.definition.name).unwrap();
    row.update(definition, Timestamp(row.modified_at.0 + 1), &RowPolicy::default()).unwrap();
}

/// The number and the priority of each former version.
async fn former(store: &dyn Store) -> Vec<(u32, i8)> {
    let versions = store.versions(id(1)).await.unwrap();
    versions.iter().map(|it| (it.revision.number, it.definition.priority)).collect()
}

pub async fn a_change_of_a_definition_keeps_the_version_that_it_replaces(store: &dyn Store) {
    all_created(store, &[published(1, "a"), published(2, "b")]).await;
    assert_eq!(former(store).await, []);
    change(store, 1, |row| redefined(row, 5)).await;
    change(store, 1, |row| hear(row, 9, 1, started())).await;
    let before = loaded(store, 1).await;
    let mut after = before.clone();
    redefined(&mut after, 6);
    after.revised_by(&before, Some("ada".to_owned()));
    assert_eq!(store.save(&[Change { before: &before, after: &after }]).await.unwrap(), []);
    let row = loaded(store, 1).await;
    assert_eq!(
        (row.revision().number, row.revision().by.as_deref(), row.definition.priority),
        (3, Some("ada"), 6)
    );
    assert_eq!(former(store).await, [(2, 5), (1, 0)]);
    // A change that comes too late replaces nothing.
    let mut late = before.clone();
    redefined(&mut late, 7);
    assert_eq!(store.save(&[Change { before: &before, after: &late }]).await.unwrap(), [id(1)]);
    assert_eq!(former(store).await, [(2, 5), (1, 0)]);
    change(store, 1, |row| redefined(row, 8)).await;
    let versions = store.versions(id(1)).await.unwrap();
    assert_eq!(versions[0].revision, row.revision());
    assert_eq!(versions[2].revision.at, row.created_at);
    assert_eq!(store.versions(id(2)).await.unwrap(), []);
}

pub async fn the_oldest_versions_are_forgotten(store: &dyn Store) {
    all_created(store, &[published(1, "a")]).await;
    for number in 0..i64::from(REVISIONS_MAX) + 3 {
        change(store, 1, |row| redefined(row, number % 90 + 1)).await;
    }
    let numbers: Vec<u32> = former(store).await.into_iter().map(|(number, _)| number).collect();
    assert_eq!(numbers, (4..=REVISIONS_MAX + 3).rev().collect::<Vec<_>>());
    let row = loaded(store, 1).await;
    store.forget(&[(id(1), row.version)]).await.unwrap();
    all_created(store, &[published(1, "a")]).await;
    assert_eq!(former(store).await, []);
}
