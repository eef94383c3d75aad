//! A user starts things: an observer with its policies, a rollout, a batch; then finds their events.

use crate::browser::Browser;
use everwatch_api::{Batch, Rollout};
use everwatch_core::record::health::Health;
use everwatch_core::record::reason::ReasonCode;
use everwatch_core::record::service::ServiceState;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::dev::Dev;
use everwatch_tests::http::holder;
use fantoccini::Locator;
use serde_json::{Value, json};

/// Chooses an option of a list.
async fn choose(page: &Browser, css: &str, value: &str) {
    page.until(css, &format!("document.querySelector({})", json!(css))).await;
    let script = format!(
        "const it = document.querySelector({}); it.value = {}; it.dispatchEvent(new Event('change', {{ bubbles: true }}));",
        json!(css),
        json!(value)
    );
    page.run(&script).await;
}

#[tokio::test]
async fn the_form_tells_all_complaints_at_once_and_takes_policies_and_a_namespace() {
    let mut cluster = Cluster::new("policies");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let api = cluster.api.clone();
    let page = Browser::open(&format!("{}/#/create", api.url)).await;
    page.until("the form", "document.querySelector('#new-grace')").await;
    // There is one namespace, so there is nothing to choose.
    page.until("no choice", "!document.querySelector('#new-namespace')").await;
    let _created: Value = api.done("PUT", "/v1/namespaces/team-a", Some(json!({})), 201).await;
    choose(&page, "#new-namespace", "team-a").await;
    choose(&page, "#new-retry", "exponential").await;
    page.until("its fields", "document.querySelector('#new-first')").await;
    page.fill("#new-name", "a b").await;
    page.fill("#spec-every", "soon").await;
    page.fill("#new-labels", "team").await;
    page.fill("#new-first", "later").await;
    page.fill("#new-attempts", "0").await;
    page.fill("#new-grace", "5 bananas").await;
    page.until(
        "no line for a label without =",
        "!document.querySelector('#preview').innerText.includes('labels')",
    )
    .await;
    page.press("Create").await;
    for (field, text) in [
        ("#new-name-hint", "is not a name"),
        ("#spec-every-hint", "is not a duration"),
        ("#new-labels-hint", "is not key=value"),
        ("#new-first-hint", "is not a duration"),
        ("#new-attempts-hint", "is not a whole number"),
        ("#new-grace-hint", "is not a duration"),
    ] {
        page.until_text(field, text).await;
    }
    page.until("six complaints", "document.querySelectorAll('main .hint.bad').length === 6").await;
    // What another page cures has a link to it.
    page.fill("#new-limits", "tenant-7").await;
    page.press("Create").await;
    page.until_text("#new-limits-hint", "no limit applies to the key tenant-7").await;
    page.until("its page", "document.querySelector('#new-limits-hint a')?.hash === '#/limits'").await;
    page.fill("#new-limits", "").await;
    page.fill("#new-name", "patient").await;
    page.fill("#spec-every", "1s").await;
    page.fill("#new-labels", "team=a").await;
    page.fill("#new-first", "2s").await;
    page.fill("#new-attempts", "3").await;
    page.fill("#new-grace", "5s").await;
    page.press("Create").await;
    page.until_text("h1", "patient").await;
    page.until_text(".facts", "2 s, doubling to 1 min, 3 attempts").await;
    page.until_text(".facts", "5 s").await;
    let made = api.until_observer("patient?namespace=team-a", |it| it.namespace == "team-a").await;
    assert_eq!(made.labels.len(), 1);
}

#[tokio::test]
async fn a_field_that_the_user_leaves_is_checked_by_its_limits_and_by_the_manager() {
    let mut cluster = Cluster::new("leaving-fields");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let api = cluster.api.clone();
    api.create(json!({"name": "taken", "kind": "ticker"})).await;
    let page = Browser::open(&format!("{}/#/create", api.url)).await;
    page.until("the form", "document.querySelector('#new-grace')").await;
    let leave = async |field: &str, text: &str| {
        page.fill(field, text).await;
        page.run(&format!("document.querySelector('{field}').dispatchEvent(new FocusEvent('blur'))")).await;
    };
    leave("#new-grace", "2h").await;
    page.until_text("#new-grace-hint", "is 2h: write at most 1h").await;
    leave("#new-timeout", "500ms").await;
    page.until_text("#new-timeout-hint", "is 500ms: write at least 1s").await;
    // Without a time zone, the times of a schedule are in UTC.
    page.fill("#new-zone", "").await;
    leave("#new-schedule", "99 * * * *").await;
    page.until_text("#new-schedule-hint", "“99 * * * *” cannot be read").await;
    leave("#new-schedule", "0 3 * * *").await;
    page.until("no complaint", "!document.querySelector('#new-schedule-hint').classList.contains('bad')")
        .await;
    // A field that is wrong does not hide that another one is.
    leave("#new-name", "taken").await;
    page.until_text("#new-name-hint", "an observer named taken exists already").await;
    // The user has not left this field.
    page.fill("#new-limits", "a a").await;
    leave("#new-grace", "1h").await;
    page.until("two complaints", "document.querySelectorAll('main .hint.bad').length === 2").await;
    page.fill("#new-limits", "").await;
    leave("#new-timeout", "30s").await;
    leave("#new-name", "nightly").await;
    page.press("Create").await;
    page.until_text("h1", "nightly").await;
    let made = api.until_observer("nightly", |it| it.schedule.is_some()).await;
    assert_eq!(made.schedule.unwrap().time_zone, "UTC");
}

#[tokio::test]
async fn fields_that_most_observers_leave_out_are_folded_until_one_has_a_value_or_a_complaint() {
    let mut cluster = Cluster::new("folded");
    cluster.manager().await;
    cluster.service("a", 2).await;
    let page = Browser::open(&format!("{}/#/create", cluster.api.url)).await;
    let open = |names: &str| {
        format!(
            "[...document.querySelectorAll('.fold[open]')].map((it) => it.dataset.key).join() === '{names}'"
        )
    };
    page.until("three folds", "document.querySelectorAll('.fold').length === 3").await;
    page.until("all are closed", &open("")).await;
    page.fill("#new-grace", "soon").await;
    page.run("document.querySelector('#new-grace').dispatchEvent(new FocusEvent('blur'))").await;
    page.until_text("#new-grace-hint", "is not a duration").await;
    page.until("the complaint is seen", &open("failing")).await;
    page.click(Locator::Css(".fold[data-key=policies] summary")).await;
    page.write("#new-priority", "7").await;
    // The draft that was kept shows its values.
    page.view("#/observers").await;
    page.until_text("h1", "Observers").await;
    page.view("#/create").await;
    page.until_text("main", "priority: 7").await;
    page.until("what has values is seen", &open("policies,failing")).await;
}

#[tokio::test]
async fn a_full_pool_is_told_before_the_observer_is_created() {
    let mut cluster = Cluster::new("full");
    cluster.manager().await;
    cluster.service("a", 2).await;
    let api = cluster.api.clone();
    api.create(json!({"name": "one", "kind": "ticker"})).await;
    api.until_observer("one", |it| it.service.is_some()).await;
    let page = Browser::open(&format!("{}/#/create", api.url)).await;
    page.write("#new-name", "two").await;
    page.until("room for one", "!document.querySelector('#pool-notice')").await;
    page.fill("#new-weight", "2").await;
    page.until_text("#pool-notice", "Pool default has 1 free slot, and the observer needs 2.").await;
    page.fill("#new-weight", "").await;
    page.until("room for one", "!document.querySelector('#pool-notice')").await;
    api.create(json!({"name": "other", "kind": "ticker"})).await;
    page.until_text("#pool-notice", "Pool default has no free slot.").await;
    page.until_text("#pool-notice", "The manager refuses to create the observer").await;
    page.run("document.querySelector('[name=queue]').click()").await;
    page.until_text("#pool-notice", "The observer waits until one is free.").await;
    page.press("YAML").await;
    page.until_text("#pool-notice", "The observer waits until one is free.").await;
    // A draft that was kept is checked again.
    page.fill("#definition", "kind: ticer\\nname: two\\non_full: queue").await;
    page.until_text(".review", "did you mean ticker?").await;
    page.run("location.reload()").await;
    page.until_text(".review", "did you mean ticker?").await;
    page.until_text("main", "The text is your unsaved draft.").await;
    // A text that cannot be read stays as it is.
    page.fill("#definition", "kind: [ticker").await;
    page.press("JSON").await;
    page.until_text("body", "Correct the text before you switch to JSON: line 1").await;
    page.fill("#definition", "kind: ticker\\nname: two\\non_full: queue").await;
    page.press("Create").await;
    let made = api.until_observer("two", |it| it.reason_code == Some(ReasonCode::PoolIsFull)).await;
    assert_eq!((made.service, made.health), (None, Some(Health::Waiting)));
}

#[tokio::test]
async fn a_rollout_and_a_batch_are_started_and_complaints_stand_at_their_fields() {
    let mut cluster = Cluster::new("starting");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let api = cluster.api.clone();
    for name in ["one", "two", "three"] {
        api.create(json!({"name": name, "kind": "ticker", "labels": {"team": "a"}})).await;
    }
    let page = Browser::open(&format!("{}/#/rollouts", api.url)).await;
    page.press("New rollout").await;
    page.until_text("#dialog [role=status]", "Choose observers").await;
    page.fill("#asked-timeout", "soon").await;
    page.confirm().await;
    page.until_text("#asked-labels-hint", "choose observers").await;
    page.until_text("#asked-patch-hint", "write what changes").await;
    page.until_text("#asked-timeout-hint", "is not a duration").await;
    page.fill("#asked-timeout", "1h").await;
    page.fill("#asked-labels", "team=a").await;
    page.until_text("#dialog [role=status]", "3 observers match: one, three, two").await;
    page.fill("#asked-name", "slower").await;
    page.fill("#asked-patch", "grace: never").await;
    page.confirm().await;
    // The manager says so; the dialog stays.
    page.until_text("#asked-patch-hint", "is not a duration").await;
    page.fill("#asked-patch", "grace: 7s").await;
    page.fill("#asked-max_parallel", "2").await;
    page.screenshot("start-rollout").await;
    page.confirm().await;
    page.until_text("h1", "slower").await;
    let made: Rollout = api.read("/v1/rollouts/slower").await;
    assert_eq!((made.members, made.max_parallel, made.patch), (3, 2, json!({"grace": "7s"})));

    page.view("#/batches").await;
    page.press("New batch").await;
    page.until("the fields", "document.querySelector('#asked-observers')").await;
    page.fill("#asked-name", "jobs").await;
    page.fill("#asked-defaults", "kind: exec\\nspec:\\n  argv: [/bin/true]").await;
    page.fill("#asked-observers", "- name: first\\n- grace: never").await;
    page.confirm().await;
    page.until_text("#asked-observers-hint", "line 2: /1/grace").await;
    let marked = "(() => { const bad = [...document.querySelectorAll('#dialog .gutter .bad')]; return bad.length === 1 && bad[0].textContent === '2'; })()";
    page.until("the mark of the line", marked).await;
    page.fill("#asked-observers", "- name: first\\n- name: [one").await;
    page.confirm().await;
    page.until_text("#asked-observers-hint", "line 2: ").await;
    // A mistake that all observers inherit is one mistake of the defaults.
    page.fill("#asked-observers", "- name: first\\n- {}").await;
    page.fill("#asked-defaults", "kind: exec\\ngrace: never\\nspec:\\n  argv: [/bin/true]").await;
    page.confirm().await;
    page.until_text("#asked-defaults-hint", "line 2: /grace").await;
    page.until("no other complaint", "document.querySelector('#asked-observers-hint.bad') === null").await;
    // The line of an unknown member is its own, not that of the map around it.
    page.fill("#asked-defaults", "kind: exec\\nspec:\\n  argv: [/bin/true]\\n  evry: 1").await;
    page.confirm().await;
    page.until_text("#asked-defaults-hint", "line 4: /spec has an unknown field: evry").await;
    page.fill("#asked-defaults", "kind: exec\\npool: gpu\\nspec:\\n  argv: [/bin/true]").await;
    page.until_text("#dialog [role=status]", "No service of pool gpu runs").await;
    page.fill("#asked-defaults", "kind: exec\\nspec:\\n  argv: [/bin/true]").await;
    page.until_text("#dialog [role=status]", "2 observers").await;
    page.confirm().await;
    page.until_text("h1", "jobs").await;
    page.until_text(".head .status", "Completed").await;
    let made: Batch = api.read("/v1/batches/jobs").await;
    assert_eq!((made.members, made.settled), (2, 2));
}

#[tokio::test]
async fn events_are_filtered_by_observer_service_and_time_and_the_address_keeps_it() {
    let mut cluster = Cluster::new("found-events");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let id = cluster.api.service("a").await.id;
    for name in ["price-1", "price-2"] {
        cluster.api.create(json!({"name": name, "kind": "ticker"})).await;
        cluster.api.until_status(name, "Processing").await;
    }
    let page = Browser::open(&format!("{}/#/events", cluster.api.url)).await;
    page.until_text("tbody", "price-2").await;
    page.fill("#search", "price").await;
    page.until_text(".empty", "price-1, price-2").await;
    page.fill("#search", "price-1").await;
    page.until("the observer in the address", "location.hash.includes('observer=price-1')").await;
    let only = |name: &str| {
        format!(
            "document.querySelectorAll('tbody tr').length && [...document.querySelectorAll('tbody tr')].every((it) => it.innerText.includes('{name}'))"
        )
    };
    page.until("its events", &only("price-1")).await;
    page.press("Clear the filter").await;
    page.until_text("tbody", "price-2").await;
    choose(&page, "select[name=service]", &id.to_string()).await;
    choose(&page, "select[name=type]", "started").await;
    page.until("starts on the service", &only("started")).await;
    page.until_text("tbody", "price-1").await;
    choose(&page, "select[name=span]", "15m").await;
    page.until("the span in the address", "location.hash.includes('span=15m')").await;
    page.until("the starts again", &only("started")).await;
    // A bookmark of a time before the deployment.
    page.view("#/events?since=2020-01-01T00:00:00Z&until=2020-01-02T00:00:00Z").await;
    page.until_text(".empty", "No event matches the filter").await;
    page.view("#/events?since=2020-01-01T00:00:00Z").await;
    page.until_text("tbody", "price-2").await;
}

#[tokio::test]
async fn with_dev_a_service_is_killed_from_its_page_and_starts_again() {
    let dev = Dev::start(2, 10).await;
    dev.api.create(json!({"name": "tick", "kind": "ticker"})).await;
    let place = dev.api.until_observer("tick", |it| holder(it).is_some()).await;
    let (killed, before) = (holder(&place).unwrap().to_owned(), place.service.as_ref().unwrap().id);
    let page = Browser::open(&dev.api.url).await;
    page.until_text("main", "This is everwatch dev").await;
    page.view(&format!("#/services/{killed}")).await;
    page.press("Kill").await;
    page.until_text("#dialog", "Its observers continue on the other services.").await;
    page.confirm().await;
    dev.api.until_observer("tick", |it| holder(it).is_some_and(|now| now != killed)).await;
    page.view("#/").await;
    page.until_text("[data-key=problems]", "was killed on purpose, and starts again in a few seconds").await;
    dev.api.until_service(&killed, |it| it.id != before && it.state == ServiceState::Active).await;
}
