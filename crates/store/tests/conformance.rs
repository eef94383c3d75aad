//! Runs the conformance checks on SQLite and on PostgreSQL, each check on a database of its own. Also checks
//! behavior that shows only when a database is opened a second time.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use everwatch_core::capacity::admission::PoolOffers;
use everwatch_core::id::ObserverId;
use everwatch_core::observer::definition::ObserverDefinition;
use everwatch_core::record::row::Row;
use everwatch_core::record::row_policy::RowPolicy;
use everwatch_store::{Created, Store, StoreError, conformance, open};
use sqlx::{ConnectOptions as _, Connection as _};
use std::str::FromStr as _;
use std::sync::Arc;
use tempfile::TempDir;
use uuid::Uuid;

/// An empty database; a directory or a schema of its own.
struct Fresh {
    url: String,
    _directory: Option<TempDir>,
}

fn sqlite() -> Fresh {
    let directory = tempfile::tempdir().unwrap();
    let url = format!("sqlite://{}", directory.path().join("store.db").display());
    Fresh { url, _directory: Some(directory) }
}

async fn postgres() -> Fresh {
    Fresh { url: conformance::fresh_postgres().await, _directory: None }
}

async fn opened(fresh: &Fresh) -> Arc<dyn Store> {
    open(&fresh.url, RowPolicy::default()).await.unwrap()
}

macro_rules! both {
    ($($check:ident)*) => {
        mod on_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                let fresh = super::sqlite();
                super::conformance::$check(&*super::opened(&fresh).await).await;
            })*
        }
        mod in_memory {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                let store = everwatch_store::MemoryStore::new(everwatch_core::record::row_policy::RowPolicy::default());
                super::conformance::$check(&store).await;
            })*
        }
        mod on_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                let fresh = super::postgres().await;
                super::conformance::$check(&*super::opened(&fresh).await).await;
            })*
        }
    };
}

both! {
    a_created_observer_is_found_by_id_and_by_name
    nothing_to_do_is_done
    a_live_name_is_taken_and_an_ending_one_is_ending
    a_name_is_free_again_after_the_delete
    a_name_given_up_is_not_taken_back
    the_newest_deleted_one_is_found_by_a_free_name
    the_first_of_a_name_in_a_batch_wins
    capacity_is_what_active_services_have
    a_slot_is_free_again_when_its_observer_has_ended
    of_two_creators_of_one_name_exactly_one_wins
    creators_side_by_side_do_not_give_a_slot_twice
    observers_without_a_slot_wait_until_one_is_free
    the_first_in_order_are_admitted
    a_create_takes_no_slot_of_those_that_wait
    a_kind_takes_only_slots_of_services_that_offer_it
    weights_count_as_slots
    runs_give_their_slots_to_a_higher_priority
    slots_are_kept_for_a_heavy_observer_in_every_other_minute
    what_a_cordoned_service_holds_uses_no_slot_of_others
    a_single_pool_has_the_slots_of_one_service
    admissions_side_by_side_do_not_give_a_slot_twice
    limits_are_kept_and_found_by_the_keys_that_they_cover
    a_limit_is_deleted_once_no_observer_needs_it
    a_place_is_free_once_the_message_is_gone
    the_first_in_order_gets_the_place
    a_place_that_is_not_used_goes_to_the_next_one
    admissions_to_two_pools_do_not_give_a_place_twice
    a_create_that_does_not_wait_is_refused_at_a_full_limit
    an_enforced_limit_names_the_newest_beyond_it
    a_batch_is_found_by_id_and_by_name
    a_batch_is_saved_by_compare_and_set
    members_are_stored_while_their_batch_is_being_created
    members_are_counted_and_listed_by_status
    names_are_taken_by_live_observers_outside_of_the_batch
    results_are_read_together
    the_limit_of_a_batch_lives_as_long_as_the_batch
    a_limited_number_of_batches_is_not_over
    a_save_stands_under_the_next_version
    a_save_of_an_old_version_changes_nothing
    the_second_of_one_id_in_a_batch_comes_too_late
    of_savers_side_by_side_each_row_has_one
    error_texts_may_hold_anything
    due_rows_come_oldest_first
    commands_are_remembered_even_once_they_are_answered
    what_is_to_end_is_found_until_it_has
    what_no_service_can_run_is_counted_and_found
    only_the_version_that_was_looked_at_is_forgotten
    who_was_forgotten_is_remembered_by_id
    what_a_service_holds_is_found_by_a_stretch_of_ids
    the_totals_of_a_service_are_those_of_its_inventory
    the_clock_goes_forward
    a_client_that_disconnects_during_a_save_blocks_no_other
    what_is_saved_is_found_by_what_it_is_now
    the_tables_are_as_new_as_the_program
    filters_hold_together
    a_scope_hides_what_lies_outside_of_it
    deleted_ones_are_shown_only_on_request
    what_no_living_service_holds_is_found
    pages_show_each_row_once_in_either_order
    one_name_of_many_times_is_paged_by_id
    a_place_that_is_no_time_is_refused
    counts_are_by_pool_and_status
    health_is_that_of_the_moment
    reason_codes_are_those_of_the_moment
    health_follows_the_service_without_a_save
    a_service_is_born_once_and_found
    a_service_is_saved_by_compare_and_set
    services_are_loaded_by_id
    services_are_found_by_their_names
    ended_services_are_shown_for_a_while
    the_ends_of_services_are_known_by_id
    a_run_continues_from_the_newest_checkpoint
    a_replaced_run_neither_saves_nor_requests_a_checkpoint
    observers_without_a_row_have_no_checkpoint
    what_code_saves_is_deleted_with_its_observer
    the_result_of_the_latest_run_is_kept
    a_change_of_a_definition_keeps_the_version_that_it_replaces
    the_oldest_versions_are_forgotten
    tokens_are_stored_changed_and_forgotten
    a_store_remembers_that_there_was_a_token
    roles_stay_while_tokens_have_them
    the_audit_log_keeps_requests_and_what_came_of_them
    rates_are_set_listed_and_deleted
    permits_are_granted_until_the_bucket_is_empty
    several_rates_are_granted_together
    a_bucket_refills_by_the_clock_of_the_database
    managers_side_by_side_do_not_grant_a_permit_twice
    each_namespace_has_its_own_names
    a_namespace_is_deleted_once_it_has_no_observers
    quotas_hold_within_a_request_and_after_it
    managers_side_by_side_do_not_exceed_a_quota
    a_rollout_is_found_with_its_members
    an_observer_is_in_one_open_rollout_at_a_time
    of_two_starts_side_by_side_one_takes_the_observer
    open_rollouts_have_a_limit
    a_step_changes_rows_and_members_together_or_nothing
    of_two_steps_side_by_side_one_is_saved
    the_oldest_ended_rollouts_are_forgotten
    parked_messages_are_shown_newest_first
    a_parked_reason_may_hold_a_nul
    the_oldest_parked_messages_are_forgotten
    the_first_to_claim_a_note_has_it
    events_are_told_in_order_and_by_filter
    a_span_of_time_selects_events
    a_page_and_its_total_are_of_one_moment
    the_oldest_events_are_forgotten
    details_are_listed_for_their_observer_and_counted_apart
    more_events_than_one_statement_deletes_are_forgotten
    a_reader_that_follows_the_numbers_misses_nothing
    a_note_that_is_over_is_free
    notes_are_found_by_how_their_names_begin
    a_note_is_swapped_only_for_what_stands_there
    of_claimers_side_by_side_one_has_it
}

/// Runs the checks that change the database directly, without the store. The memory store has no such checks.
macro_rules! damaged {
    ($($check:ident)*) => {
        mod damaged_sqlite {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                let fresh = super::sqlite();
                let execute = async |statement: String| super::conformance::execute(&fresh.url, &statement).await;
                super::conformance::$check(&*super::opened(&fresh).await, execute).await;
            })*
        }
        mod damaged_postgres {
            $(#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
            async fn $check() {
                let fresh = super::postgres().await;
                let execute = async |statement: String| super::conformance::execute(&fresh.url, &statement).await;
                super::conformance::$check(&*super::opened(&fresh).await, execute).await;
            })*
        }
    };
}

damaged! {
    unreadable_observers_hide_no_other
    an_unreadable_observer_is_named_with_its_cure
    an_unreadable_service_hides_no_other
    an_unreadable_event_hides_no_other
}

fn row() -> Row {
    let body = serde_json::json!({"name": "a", "kind": "ticker", "on_full": "queue"});
    let definition = ObserverDefinition::parse(body, &"b".parse().unwrap()).unwrap();
    let now = everwatch_core::clock::Timestamp(1_800_000_000_000);
    let mut row = Row::created(ObserverId(Uuid::from_u128(1)), definition, now, &RowPolicy::default());
    row.confirmed(1, now);
    row
}

async fn reopening_keeps_everything(fresh: Fresh) {
    let store = opened(&fresh).await;
    assert_eq!(store.create(&[row()], &PoolOffers::new()).await.unwrap(), [Created::Done]);
    drop(store);
    let store = opened(&fresh).await;
    assert_eq!(store.load(&[row().id]).await.unwrap().rows, [row()]);
}

#[tokio::test]
async fn reopening_keeps_everything_on_sqlite() {
    reopening_keeps_everything(sqlite()).await;
}

#[tokio::test]
async fn reopening_keeps_everything_on_postgres() {
    reopening_keeps_everything(postgres().await).await;
}

async fn refusal(url: &str) -> String {
    match open(url, RowPolicy::default()).await {
        Err(StoreError::Refused(why)) => why,
        Err(other) => panic!("not refused, but: {other}"),
        Ok(_) => panic!("{url} was opened"),
    }
}

const NEWER: &str = "INSERT INTO _sqlx_migrations (version, description, success, checksum, execution_time)
    SELECT 9999, 'of a newer version', success, checksum, execution_time FROM _sqlx_migrations WHERE version = 1";

#[tokio::test]
async fn a_newer_schema_is_refused_on_sqlite() {
    let fresh = sqlite();
    drop(opened(&fresh).await);
    let options = sqlx::sqlite::SqliteConnectOptions::from_str(&fresh.url).unwrap();
    sqlx::query(NEWER).execute(&mut options.connect().await.unwrap()).await.unwrap();
    let why = refusal(&fresh.url).await;
    assert!(why.contains("unknown schema version 9999"), "{why}");
}

#[tokio::test]
async fn a_newer_schema_is_refused_on_postgres() {
    let fresh = postgres().await;
    drop(opened(&fresh).await);
    let mut connection = sqlx::PgConnection::connect(&fresh.url).await.unwrap();
    sqlx::query(NEWER).execute(&mut connection).await.unwrap();
    let why = refusal(&fresh.url).await;
    assert!(why.contains("unknown schema version 9999"), "{why}");
}

#[tokio::test]
async fn two_managers_share_a_postgres() {
    let fresh = postgres().await;
    let (one, two) = (opened(&fresh).await, opened(&fresh).await);
    assert_eq!(one.create(&[row()], &PoolOffers::new()).await.unwrap(), [Created::Done]);
    assert_eq!(two.create(&[row()], &PoolOffers::new()).await.unwrap(), [Created::NameTaken]);
}

#[tokio::test]
async fn a_missing_postgres_database_is_refused_with_its_cure() {
    let base = std::env::var("EVERWATCH_TEST_POSTGRES_URL")
        .expect("EVERWATCH_TEST_POSTGRES_URL is not set: ./tests/run starts a PostgreSQL and sets it");
    let (server, _) = base.rsplit_once('/').unwrap();
    let why = refusal(&format!("{server}/no_such_database_here")).await;
    assert!(why.contains("create the database"), "{why}");
}

/// The URL of the same server for another user.
async fn as_user(user: &str) -> String {
    let base = std::env::var("EVERWATCH_TEST_POSTGRES_URL").unwrap();
    let (scheme, rest) = base.split_once("://").unwrap();
    format!("{scheme}://{user}:secret@{}", rest.split_once('@').unwrap().1)
}

#[tokio::test]
async fn an_unknown_user_is_refused_with_the_cure() {
    let why = refusal(&as_user("nobody_of_this_name").await).await;
    assert!(why.contains("check the user and the password") && !why.contains("secret"), "{why}");
}

#[tokio::test]
async fn a_user_without_rights_is_refused_with_the_cure() {
    let user = format!("guest_{}", Uuid::new_v4().simple());
    let base = std::env::var("EVERWATCH_TEST_POSTGRES_URL").unwrap();
    let mut connection = sqlx::PgConnection::connect(&base).await.unwrap();
    let create = sqlx::AssertSqlSafe(format!("CREATE ROLE {user} LOGIN PASSWORD 'secret'"));
    sqlx::query(create).execute(&mut connection).await.unwrap();
    let why = refusal(&as_user(&user).await).await;
    assert!(why.contains("the right to create and change tables"), "{why}");
    let drop = sqlx::AssertSqlSafe(format!("DROP ROLE {user}"));
    sqlx::query(drop).execute(&mut connection).await.unwrap();
}

#[tokio::test]
async fn a_database_that_says_nothing_is_unavailable() {
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("postgres://u:secret@{}/d", silent.local_addr().unwrap());
    let error = open(&url, RowPolicy::default()).await.err().unwrap();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
}

#[tokio::test]
async fn a_second_manager_on_one_sqlite_file_is_refused() {
    let fresh = sqlite();
    let store = opened(&fresh).await;
    let why = refusal(&fresh.url).await;
    assert!(why.contains("SQLite serves one manager; use postgres://"), "{why}");
    drop(store);
    drop(opened(&fresh).await);
}

#[tokio::test]
async fn an_unwritable_sqlite_path_is_refused_by_its_name() {
    let why = refusal("sqlite:///proc/nowhere/store.db").await;
    assert!(why.contains("/proc/nowhere/store.db"), "{why}");
}

#[tokio::test]
async fn a_file_that_is_no_database_is_refused_by_its_name() {
    let fresh = sqlite();
    let path = fresh.url.strip_prefix("sqlite://").unwrap();
    std::fs::write(path, "certainly not a database, by far ".repeat(100)).unwrap();
    let why = refusal(&fresh.url).await;
    assert!(why.contains(path), "{why}");
}

#[tokio::test]
async fn sqlite_works_in_memory() {
    let store = open("sqlite::memory:", RowPolicy::default()).await.unwrap();
    assert_eq!(store.create(&[row()], &PoolOffers::new()).await.unwrap(), [Created::Done]);
    assert_eq!(store.load(&[row().id]).await.unwrap().rows, [row()]);
}

#[tokio::test]
async fn another_url_is_refused_without_its_password() {
    for url in ["mysql://u:secret@h/d", "u:secret@h", "postgres://u:secret@h:port/d"] {
        let why = refusal(url).await;
        assert!(!why.contains("secret"), "{why}");
    }
    assert!(refusal("mysql://h/d").await.contains("postgres://user"), "the form is named");
}

#[tokio::test]
async fn a_database_that_is_away_is_unavailable() {
    let gone = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let url = format!("postgres://u:secret@127.0.0.1:{gone}/d");
    let error = open(&url, RowPolicy::default()).await.err().unwrap();
    assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
    assert!(!error.to_string().contains("secret"), "{error}");
}
