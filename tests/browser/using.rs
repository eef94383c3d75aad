//! A user creates, filters, selects and deletes observers in the console.

use crate::browser::Browser;
use everwatch_core::record::status::Status;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::wait::wait_for;
use fantoccini::Locator;
use serde_json::json;

#[tokio::test]
async fn an_empty_form_asks_before_it_creates_an_observer() {
    let mut cluster = Cluster::new("empty-form");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let page = Browser::open(&format!("{}/#/create", cluster.api.url)).await;
    page.until("the form", "document.querySelector('#new-name')").await;
    page.press("Create").await;
    page.until_text("#dialog", "You have filled in no field").await;
    page.click(Locator::Css("#dialog button[value=no]")).await;
    page.until("the form again", "location.hash === '#/create'").await;
    assert_eq!(cluster.api.observers().await.len(), 0);
    page.press("Create").await;
    page.confirm().await;
    page.until_text("h1", "observer-").await;
    assert_eq!(cluster.api.observers().await.len(), 1);
}

#[tokio::test]
async fn what_the_form_creates_runs_and_a_taken_name_is_told_at_its_field() {
    let mut cluster = Cluster::new("form");
    cluster.manager().await;
    let page = Browser::open(&cluster.api.url).await;
    page.until_text("h1", "No observers yet").await;
    page.view("#/create").await;
    page.until_text(".empty h2", "No services").await;
    cluster.service("a", 10).await;
    // The form appears without a reload, once the service is active.
    page.write("#new-name", "second").await;
    page.write("#spec-every", "1s").await;
    page.press("Create").await;
    page.until_text("h1", "second").await;
    page.until_text(".head .status", "Running").await;
    assert_eq!(cluster.api.until_status("second", "Processing").await.spec, json!({"every": "1s"}));

    page.view("#/create").await;
    page.write("#new-name", "second").await;
    page.press("Create").await;
    page.until_text("#new-name-hint", "second").await;

    // Its times, and an error at the field of one.
    page.fill("#new-name", "later").await;
    page.fill("#new-start", "2099-01-31T09:30").await;
    page.fill("#new-timeout", "soon").await;
    page.press("Create").await;
    page.until_text("#new-timeout-hint", "is not a duration").await;
    page.fill("#new-timeout", "30m").await;
    page.press("Create").await;
    page.until_text("h1", "later").await;
    page.until_text(".facts", "30 min").await;
    page.click(Locator::Css("#tab-runs")).await;
    page.until_text(".timeline", "for its start").await;
    let later = cluster.api.observer("later").await;
    assert_eq!((later.status, later.attempt_timeout.as_deref()), (Status::Scheduled, Some("30m")));
    assert!(later.start_at.is_some());

    let outside = "return performance.getEntriesByType('resource').filter((it) => !it.name.startsWith(location.origin)).length";
    assert_eq!(page.run(outside).await, 0);
    page.narrow().await;
    for view in [
        "#/",
        "#/observers",
        "#/observers/second",
        "#/observers/second?tab=versions",
        "#/observers/second?edit=yaml",
        "#/create",
        "#/create?as=yaml",
        "#/services",
        "#/services/a",
        "#/incidents",
        "#/pools",
        "#/pools/default",
        "#/kinds",
        "#/kinds/http",
        "#/namespaces",
        "#/doctor",
        "#/safe-mode",
        "#/tokens",
        "#/roles",
        "#/audit",
        "#/rollouts",
        "#/batches",
        "#/topology",
        "#/limits",
        "#/rates",
        "#/parked",
        "#/events",
    ] {
        page.view(view).await;
        page.until(&format!("{view} to be drawn"), "document.querySelector('main h1')").await;
        let wide = "return document.documentElement.scrollWidth - innerWidth";
        assert!(page.run(wide).await.as_i64().unwrap() <= 0, "{view} is wider than a phone");
    }
}

#[tokio::test]
async fn the_form_takes_references_to_secrets_in_place_of_texts() {
    let mut cluster = Cluster::new("references");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let page = Browser::open(&cluster.api.url).await;
    page.view("#/create").await;
    page.until("the kinds", "document.querySelector('#new-kind')").await;
    page.run("const it = document.querySelector('#new-kind'); it.value = 'http'; it.dispatchEvent(new Event('change', { bubbles: true }));").await;
    page.until("the form of http", "document.querySelector('#spec-url')").await;
    page.press("Use the example").await;
    page.until("its URL", "document.querySelector('#spec-url').value === 'https://example.org/'").await;
    page.fill("#new-name", "secret").await;
    page.fill("#spec-url", r#"{"$secret": "file:../url"}"#).await;
    page.fill("#spec-headers", r#"authorization={"$secret": "file:api/token"}"#).await;
    page.press("Create").await;
    page.until_text("#spec-url-hint", "below the folder of secrets").await;
    page.fill("#spec-url", r#"{"$secret": "file:api/url"}"#).await;
    page.press("Create").await;
    page.until_text("h1", "secret").await;
    let spec = cluster.api.observer("secret").await.spec;
    let expected = json!({"url": {"$secret": "file:api/url"}, "headers": {"authorization": {"$secret": "file:api/token"}}});
    assert_eq!(spec, expected);
}

#[tokio::test]
async fn the_form_takes_schedules_and_windows_and_the_page_of_an_observer_shows_them() {
    let mut cluster = Cluster::new("calendar");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let page = Browser::open(&cluster.api.url).await;
    page.view("#/create").await;
    page.write("#new-name", "nightly").await;
    page.fill("#new-schedule", "0 3 * *").await;
    page.fill("#new-zone", "Europe/Berlin").await;
    page.press("Create").await;
    page.until_text("#new-schedule-hint", "has 4 fields").await;
    page.fill("#new-schedule", "0 3 1 1 *").await;
    page.press("Create").await;
    page.until_text("h1", "nightly").await;
    page.until_text(".facts", "0 3 1 1 * in Europe/Berlin").await;
    page.until_text("main", "At 03:00, on day 1, in January.").await;
    assert_eq!(page.run("return document.querySelectorAll('.next li').length").await, 5);
    page.press("Execute now").await;
    page.press("Execute now nightly").await;
    page.until_text(".head .status", "Running").await;
    cluster.api.until_observer("nightly", |it| it.generation == 1 && it.status == Status::Processing).await;

    page.view("#/create").await;
    page.write("#new-name", "trades").await;
    page.fill("#new-windows", "9 to 5").await;
    page.press("Create").await;
    page.until_text("#new-windows-hint", "is not a window").await;
    page.fill("#new-windows", "mon-fri 09:30-16:00; sat 22:00-06:00").await;
    page.fill("#new-zone", "Nowhere").await;
    page.press("Create").await;
    page.until_text("#new-zone-hint", "not a known time zone").await;
    page.fill("#new-zone", "America/New_York").await;
    page.press("Create").await;
    page.until_text("h1", "trades").await;
    // Five days, and two parts of the one over midnight.
    let parts =
        "return [...document.querySelectorAll('.week .track')].map((it) => it.childElementCount).join()";
    page.until("the week", "document.querySelector('.week')").await;
    assert_eq!(page.run(parts).await, "1,1,1,1,1,1,1");
    let sunday =
        "const all = document.querySelectorAll('.week .track'); return all[6].firstChild.style.width";
    assert_eq!(page.run(sunday).await, "25%");
}

#[tokio::test]
async fn a_change_is_shown_and_taken_back() {
    let mut cluster = Cluster::new("revert");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let api = cluster.api.clone();
    api.create(json!({"name": "one", "kind": "ticker", "spec": {"every": "1s"}})).await;
    let page = Browser::open(&api.url).await;
    page.view("#/observers/one?tab=versions").await;
    page.until_text("h1", "one").await;
    page.until_text("#tab-panel", "The first version that is kept").await;
    let patch = json!({"spec": {"every": "2s"}});
    api.done::<everwatch_api::Observer>("PATCH", "/v1/observers/one", Some(patch), 200).await;
    // The page follows without a reload.
    page.until_text(".plain", "spec.every").await;
    page.until_text(".plain del", "1s").await;
    page.until_text(".plain ins", "2s").await;
    page.press("Revert").await;
    page.press("Revert to version 1").await;
    let back = api.until_observer("one", |it| it.definition_version == 3).await;
    assert_eq!(back.spec, json!({"every": "1s"}));
    page.until("the third version", "document.querySelectorAll('.plain').length === 2").await;
    page.until_text(".diff ins", "every: 1s").await;
}

#[tokio::test]
async fn a_batch_is_followed_retried_cancelled_and_deleted() {
    let mut cluster = Cluster::new("batches-page");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let api = cluster.api.clone();
    let page = Browser::open(&api.url).await;
    page.view("#/batches").await;
    page.until_text(".empty h2", "No batches").await;
    let fails = json!({"name": "bad", "spec": {"argv": ["/bin/sh", "-c", "exit 3"]}});
    let ends = json!({"name": "good", "spec": {"argv": ["/bin/true"]}});
    let body = json!({"name": "jobs", "max_running": 1, "observers": [fails, ends],
        "defaults": {"kind": "exec", "retry": {"kind": "intervals", "delays": []}}});
    api.done::<everwatch_api::Batch>("POST", "/v1/batches", Some(body), 201).await;
    // The pages follow without a reload.
    page.until_text("td.name", "jobs").await;
    page.until_text("td .status", "Completed").await;
    page.view("#/batches/jobs").await;
    page.until_text("h1", "jobs").await;
    page.until_text(".panel .load", "2 of 2 observers ended1 failed").await;
    page.until_text("#main, main", "code 3").await;
    page.press("Retry failed").await;
    api.until_read("/v1/batches/jobs", |it: &everwatch_api::Batch| it.completions == 2).await;
    page.press("Delete batch").await;
    page.press("Delete batch jobs").await;
    api.until("/v1/batches/jobs", |status, _| status == 404).await;

    let waits = json!({"name": "long", "observers": [{"kind": "ticker"}]});
    api.done::<everwatch_api::Batch>("POST", "/v1/batches", Some(waits), 201).await;
    page.view("#/batches/long").await;
    page.until_text(".head .status", "Running").await;
    page.press("Cancel batch").await;
    page.press("Cancel batch long").await;
    page.until_text(".head .status", "Cancelled").await;
    page.until_text(".panel header", "1 Deleted").await;
    page.narrow().await;
    let wide = "return document.documentElement.scrollWidth - innerWidth";
    assert!(page.run(wide).await.as_i64().unwrap() <= 0, "a batch is wider than a phone");
}

#[tokio::test]
async fn a_rollout_is_followed_paused_and_reverted() {
    let mut cluster = Cluster::new("rollouts-page");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let api = cluster.api.clone();
    for name in ["one", "two", "three"] {
        api.create(json!({"name": name, "kind": "ticker", "spec": {"every": "1s"}})).await;
        api.until_status(name, "Processing").await;
    }
    let page = Browser::open(&api.url).await;
    page.view("#/rollouts").await;
    page.until_text(".empty h2", "No rollouts").await;
    let body = json!({"name": "slower", "selector": {"kind": "ticker"}, "patch": {"spec": {"every": "2s"}},
        "max_parallel": 2, "healthy_for": "10m", "timeout": "1h"});
    api.done::<everwatch_api::Rollout>("POST", "/v1/rollouts", Some(body), 201).await;
    // The pages follow without a reload.
    page.until_text("td.name", "slower").await;
    page.view("#/rollouts/slower").await;
    page.until_text("h1", "slower").await;
    page.until_text(".panel header", "1 pending, 2 changed").await;
    page.until_text("pre", "2s").await;
    page.press("Pause").await;
    page.until_text(".head .status", "Paused").await;
    page.until_text(".why", "paused by").await;
    page.press("Resume").await;
    page.until_text(".head .status", "Running").await;
    page.press("Revert").await;
    page.press("Revert slower").await;
    page.until_text(".head .status", "Reverted").await;
    page.until_text(".panel header", "1 pending, 2 reverted").await;
    assert_eq!(
        page.run("return document.querySelectorAll('td .status[data-state=reverted]').length").await,
        2
    );
    for name in ["one", "three"] {
        assert_eq!(api.observer(name).await.spec, json!({"every": "1s"}), "{name}");
    }
    page.narrow().await;
    page.until("the page on a phone", "document.documentElement.scrollWidth <= innerWidth").await;
}

#[tokio::test]
async fn a_selection_is_deleted_after_its_count_was_confirmed() {
    let mut cluster = Cluster::new("selection");
    cluster.manager().await;
    cluster.service("a", 10).await;
    for name in ["keep-1", "drop-1", "drop-2", "drop-3", "keep-2"] {
        cluster.api.create(json!({"name": name, "kind": "ticker"})).await;
    }
    let page = Browser::open(&format!("{}/#/observers", cluster.api.url)).await;
    page.until("five rows", "document.querySelectorAll('tbody tr').length === 5").await;
    page.write("body", "/drop").await;
    page.until(
        "the filter in rows and address",
        "document.querySelectorAll('tbody tr').length === 3 && location.hash.includes('q=drop')",
    )
    .await;
    page.click(Locator::Css("thead input")).await;
    page.until_text(".selection", "3 selected").await;
    page.press("Delete").await;
    page.until_text("#dialog h2", "Delete 3 observers?").await;
    page.press("Cancel").await;
    page.until("the dialog to be gone", "!document.querySelector('#dialog').open").await;
    assert_eq!(cluster.api.observers().await.len(), 5);
    page.press("Delete").await;
    page.press("Delete 3").await;
    page.until_text(".empty h2", "No matches").await;
    page.press("Clear the filter").await;
    page.until("the two that are kept", "document.querySelectorAll('tbody tr').length === 2").await;
    let left = wait_for("three to be gone", || async {
        let left = cluster.api.observers().await;
        if left.len() == 2 { Ok(left) } else { Err(format!("{left:?}")) }
    })
    .await;
    assert!(left.iter().all(|it| it.name.starts_with("keep")), "{left:?}");
    // The selection ends when the user leaves the observers.
    page.click(Locator::Css("thead input")).await;
    page.until_text(".selection", "2 selected").await;
    page.view("#/pools").await;
    page.until_text("h1", "Pools").await;
    page.view("#/observers").await;
    page.until(
        "both without a selection",
        "document.querySelectorAll('tbody tr').length === 2 && !document.querySelector('.selection')",
    )
    .await;
}

#[tokio::test]
async fn chips_count_within_the_filter_and_a_full_pool_refuses_a_move() {
    let mut cluster = Cluster::new("full");
    cluster.manager().await;
    for name in ["a", "b"] {
        cluster.service(name, 1).await;
    }
    cluster.api.create(json!({"name": "red-2", "kind": "ticker", "desired": "paused"})).await;
    for name in ["red-1", "blue-1"] {
        cluster.api.create(json!({"name": name, "kind": "ticker"})).await;
        cluster.api.until_status(name, "Processing").await;
    }
    for name in ["a", "b"] {
        wait_for("a full service", || async {
            let held = cluster.api.service(name).await.held;
            if held == 1 { Ok(()) } else { Err(held.to_string()) }
        })
        .await;
    }
    let page = Browser::open(&format!("{}/#/observers?q=red", cluster.api.url)).await;
    let count = |status: &str, expected: u32| {
        format!("document.querySelector('.chip[data-status={status}] b')?.textContent === '{expected}'")
    };
    page.until("one of two runs", &count("running", 1)).await;
    page.until("one is paused", &count("Paused", 1)).await;
    page.view("#/observers?q=red&health=running").await;
    page.until("one row", "document.querySelectorAll('tbody tr').length === 1").await;
    page.until("the counts of the others", &count("Paused", 1)).await;

    page.view("#/observers/red-1").await;
    page.press("Move").await;
    page.until_text("#dialog", "No other service of pool default has a free slot for it.").await;
    page.until("no choice of the full one", "document.querySelector('#asked-service option:disabled')").await;
    page.confirm().await;
    page.until_text("#asked-pool-hint", "Choose another pool, or free a slot").await;
    page.press("Cancel").await;

    // A field is checked when the user leaves it.
    page.view("#/create").await;
    page.until("the form", "document.activeElement.id === 'new-name'").await;
    page.click(Locator::Css(".fold[data-key=policies] summary")).await;
    page.write("#new-priority", "500\u{e004}").await;
    page.until_text("#new-priority-hint", "“500” is not a whole number from -100 to 100").await;
    page.write("#spec-every", "soon\u{e004}").await;
    page.until_text("#spec-every-hint", "duration").await;
    page.until("the others wait", "document.querySelectorAll('main [aria-invalid=true]').length === 2").await;
}

#[tokio::test]
async fn a_service_is_drained_from_its_card_and_the_rest_is_made_even() {
    let mut cluster = Cluster::new("draining");
    cluster.manager().await;
    cluster.service("a", 10).await;
    for number in 0..6 {
        cluster.api.create(json!({"name": format!("o{number}"), "kind": "ticker"})).await;
    }
    cluster.api.until_status("o5", "Processing").await;
    cluster.service("b", 10).await;
    let page = Browser::open(&format!("{}/#/services", cluster.api.url)).await;
    page.until("both cards", "document.querySelectorAll('.card').length === 2").await;
    page.press("Rebalance").await;
    page.until_text("#dialog h2", "Move 3 observers?").await;
    page.press("Move 3").await;
    let held = async |name: &str| cluster.api.service(name).await.held;
    wait_for("three on each", || async {
        let held = (held("a").await, held("b").await);
        if held == (3, 3) { Ok(()) } else { Err(format!("{held:?}")) }
    })
    .await;
    page.until("the card of a to say so", "document.querySelector('.card .load strong').textContent === '3'")
        .await;
    page.press("Drain").await;
    page.until_text("#dialog h2", "Drain a?").await;
    page.until_text("#dialog", "other services of pool default have 7 free slots for the 3 in use here")
        .await;
    page.press("Drain 3 observers").await;
    page.until_text(".card[data-state=cordoned] h2", "a").await;
    wait_for("all on b", || async {
        let held = held("b").await;
        if held == json!(6) { Ok(()) } else { Err(held.to_string()) }
    })
    .await;
    page.press("Uncordon").await;
    page.until("both to be active", "document.querySelectorAll('.card[data-state=active]').length === 2")
        .await;
    // Both services live: the gaps of handed-over observers are exact.
    page.view("#/events?type=started").await;
    let gaps =
        "[...document.querySelectorAll('tbody tr')].map((it) => it.cells[4].innerText).filter(Boolean)";
    page.until("six exact gaps", &format!("{gaps}.length >= 6 && !{gaps}.some((it) => it.includes('≤'))"))
        .await;
}

#[tokio::test]
async fn the_page_of_a_limit_shows_who_uses_it_and_changes_it() {
    let mut cluster = Cluster::new("limits-page");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let page = Browser::open(&cluster.api.url).await;
    page.view("#/limits").await;
    page.until_text("main", "No limits").await;
    page.press("New limit").await;
    page.write("#asked-key", "account 42").await;
    page.write("#asked-max", "1").await;
    page.confirm().await;
    page.until_text("#asked-key-hint", "is not valid").await;
    page.fill("#asked-key", "account-42").await;
    page.confirm().await;
    page.until_text("table", "account-42").await;
    for name in ["first", "second"] {
        let body = json!({"name": name, "kind": "ticker", "limits": ["account-42"], "on_full": "queue"});
        cluster.api.create(body).await;
    }
    page.view("#/limits/account-42").await;
    page.until_text(".load", "1 of 1 places in use").await;
    page.until_text(".panels", "first").await;
    page.until_text(".load", "1 observer waiting").await;
    page.view("#/observers/second").await;
    page.until_text(".why", "waiting for a place of limit account-42: 1 of 1 in use by first, 1 waiting")
        .await;
    page.view("#/limits/account-42").await;
    page.press("Change maximum").await;
    page.write("dialog input", "2").await;
    page.press("Set").await;
    page.until_text(".load", "2 of 2 places in use").await;
    page.press("Delete").await;
    page.press("Delete account-42").await;
    page.until_text("#toasts", "2 observers name a key").await;
}

#[tokio::test]
async fn the_page_of_rates_creates_changes_and_deletes_one() {
    let mut cluster = Cluster::new("rates-page");
    cluster.manager().await;
    let page = Browser::open(&cluster.api.url).await;
    page.view("#/rates").await;
    page.until_text("main", "No rates").await;
    page.press("New rate").await;
    page.write("#asked-key", "openai").await;
    page.write("#asked-permits", "many").await;
    page.confirm().await;
    page.until_text("#asked-permits-hint", "“many” is not a whole number of 1 or more").await;
    page.until_text("#asked-burst-hint", "write how many permits may be used at once").await;
    page.fill("#asked-permits", "600").await;
    page.fill("#asked-burst", "50").await;
    page.confirm().await;
    page.until_text("table", "600 per 1m, burst 50").await;
    page.until_text("table", "30 of 30").await;
    page.press("Change").await;
    page.until_text("dialog", "30 of 30 permits available").await;
    page.fill("#asked-permits", "60").await;
    page.fill("#asked-burst", "2").await;
    page.press("Set").await;
    page.until_text("#asked-burst-hint", "must be at least 3").await;
    page.press("Cancel").await;
    page.press("Delete").await;
    page.press("Delete openai").await;
    page.until_text("main", "No rates").await;
}
