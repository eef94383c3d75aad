//! Names and slots.

use super::*;
use everwatch_core::record::status::Status;

pub async fn a_created_observer_is_found_by_id_and_by_name(store: &dyn Store) {
    let odd = json!({"name": "web-1", "kind": "exec", "on_full": "queue", "labels": {"a/b": "ü%_'"},
        "spec": {"text": "nul \u{0} and \u{1F600}", "deep": [1, 2.5, null]}});
    let row = observer(1, odd);
    all_created(store, std::slice::from_ref(&row)).await;
    assert_eq!(store.load(&[id(1), id(2)]).await.unwrap().rows, std::slice::from_ref(&row));
    assert_eq!(store.find(&ObserverRef::Id(id(1))).await.unwrap(), Some(row.clone()));
    assert_eq!(store.find(&named("web-1")).await.unwrap(), Some(row));
    assert_eq!(store.find(&named("web")).await.unwrap(), None);
    assert_eq!(store.find(&ObserverRef::Id(id(2))).await.unwrap(), None);
}

pub async fn nothing_to_do_is_done(store: &dyn Store) {
    assert_eq!(create(store, &[]).await.unwrap(), []);
    assert_eq!(store.save(&[]).await.unwrap(), []);
    assert_eq!(store.load(&[]).await.unwrap().rows, []);
    assert_eq!(store.save_services(&[]).await.unwrap(), []);
    store.forget(&[]).await.unwrap();
    store.park(&[]).await.unwrap();
}

pub async fn a_live_name_is_taken_and_an_ending_one_is_ending(store: &dyn Store) {
    all_created(store, &[published(1, "a")]).await;
    assert_eq!(create(store, &[published(2, "a")]).await.unwrap(), [Created::NameTaken]);
    change(store, 1, |row| {
        hear(row, 9, 1, started());
        row.delete(NOW, &RowPolicy::default());
    })
    .await;
    // The pool has no free slot either, but the store reports the name conflict.
    assert_eq!(create(store, &[hasty(2, "a")]).await.unwrap(), [Created::NameEnding]);
    assert_eq!(store.load(&[id(2)]).await.unwrap().rows, []);
}

pub async fn a_name_is_free_again_after_the_delete(store: &dyn Store) {
    all_created(store, &[published(1, "a")]).await;
    change(store, 1, |row| {
        hear(row, 9, 1, started());
        row.delete(NOW, &RowPolicy::default());
        hear(row, 9, 2, RunEvent::Stopped);
        assert_eq!(row.verdict().status, Status::Deleted);
    })
    .await;
    assert_eq!(store.find(&named("a")).await.unwrap().unwrap().id, id(1));
    all_created(store, &[published(2, "a")]).await;
    assert_eq!(store.find(&named("a")).await.unwrap().unwrap().id, id(2));
    assert_eq!(store.find(&ObserverRef::Id(id(1))).await.unwrap().unwrap().id, id(1));
}

pub async fn a_name_given_up_is_not_taken_back(store: &dyn Store) {
    a_name_is_free_again_after_the_delete(store).await;
    // A report with a generation that the database does not know revives the deleted observer for a while.
    change(store, 1, |row| {
        let epoch = Epoch::new(row.generation + 1, 0);
        let report = RunReport { id: row.id, epoch, event: started() };
        row.apply(service_id(9), 3, NOW, &report, NOW);
        assert_eq!(row.verdict().status, Status::OnDeleting);
    })
    .await;
    assert_eq!(store.find(&named("a")).await.unwrap().unwrap().id, id(2));
}

pub async fn the_newest_deleted_one_is_found_by_a_free_name(store: &dyn Store) {
    for number in 1..=3 {
        all_created(store, &[published(number, "a")]).await;
        change(store, number, |row| {
            hear(row, 9, 1, started());
            row.delete(NOW, &RowPolicy::default());
            hear(row, 9, 2, RunEvent::Stopped);
        })
        .await;
    }
    assert_eq!(store.find(&named("a")).await.unwrap().unwrap().id, id(3));
}

pub async fn the_first_of_a_name_in_a_batch_wins(store: &dyn Store) {
    let rows = [published(1, "a"), published(2, "b"), published(3, "a")];
    let answers = create(store, &rows).await.unwrap();
    assert_eq!(answers, [Created::Done, Created::Done, Created::NameTaken]);
    assert_eq!(store.find(&named("a")).await.unwrap().unwrap().id, id(1));
}

pub async fn capacity_is_what_active_services_have(store: &dyn Store) {
    assert_eq!(create(store, &[hasty(1, "a")]).await.unwrap(), [Created::NoCapacity]);
    let mut suspect = service(3, "s3", 100);
    suspect.suspect(NOW);
    assert_eq!(store.save_services(&[service(1, "s1", 1), service(2, "s2", 1), suspect]).await.unwrap(), []);
    let rows = [hasty(1, "a"), hasty(2, "b"), hasty(3, "c"), patient(4, "d"), published(6, "f")];
    let answers = create(store, &rows).await.unwrap();
    let (done, waits) = (Created::Done, Created::Waits);
    assert_eq!(answers, [done, done, Created::NoCapacity, waits, done]);
    assert_eq!(loaded(store, 4).await, patient(4, "d").created_waiting());
    assert_eq!(store.load(&[id(3)]).await.unwrap().rows, []);
    let elsewhere = new(5, json!({"name": "e", "kind": "ticker", "pool": "gpu"}));
    assert_eq!(create(store, &[elsewhere]).await.unwrap(), [Created::NoCapacity]);
}

pub async fn a_slot_is_free_again_when_its_observer_has_ended(store: &dyn Store) {
    assert_eq!(store.save_services(&[service(1, "s1", 1)]).await.unwrap(), []);
    all_created(store, &[hasty(1, "a")]).await;
    assert_eq!(create(store, &[hasty(2, "b")]).await.unwrap(), [Created::NoCapacity]);
    let paused = hasty(3, "c").created_paused();
    assert_eq!(create(store, &[paused]).await.unwrap(), [Created::Done], "it is not to run");
    change(store, 1, |row| hear(row, 1, 1, RunEvent::Completed)).await;
    all_created(store, &[hasty(2, "b")]).await;
}

pub async fn of_two_creators_of_one_name_exactly_one_wins(store: &dyn Store) {
    for round in 0..20_u128 {
        let names: Vec<String> = (0..5).map(|each| format!("n-{round}-{each}")).collect();
        let batch = |base: u128| -> Vec<Row> {
            (0..).zip(&names).map(|(each, name)| published(base + round * 10 + each, name)).collect()
        };
        let (mine, mut theirs) = (batch(1000), batch(2000));
        theirs.reverse();
        let (mine, theirs) = tokio::join!(create(store, &mine), create(store, &theirs));
        let (mine, mut theirs) = (mine.unwrap(), theirs.unwrap());
        theirs.reverse();
        for pair in mine.into_iter().zip(theirs) {
            let one =
                matches!(pair, (Created::Done, Created::NameTaken) | (Created::NameTaken, Created::Done));
            assert!(one, "{pair:?}");
        }
    }
}

pub async fn creators_side_by_side_do_not_give_a_slot_twice(store: &dyn Store) {
    assert_eq!(store.save_services(&[service(1, "s1", 10)]).await.unwrap(), []);
    let batch = |base: u128| -> Vec<Row> {
        (base..base + 6).map(|number| hasty(number, &format!("n-{number}"))).collect()
    };
    let (one, two, three) = (batch(100), batch(200), batch(300));
    let (one, two, three) = tokio::join!(create(store, &one), create(store, &two), create(store, &three));
    let answers = [one.unwrap(), two.unwrap(), three.unwrap()].concat();
    assert_eq!(answers.iter().filter(|answer| **answer == Created::Done).count(), 10);
}
