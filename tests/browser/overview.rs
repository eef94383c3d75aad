//! The last 24 hours on the tiles of the overview, and the lanes of the timeline in groups.

use crate::browser::Browser;
use everwatch_api::{CreatedToken, Pool, Role, Service};
use everwatch_core::record::service::ServiceState;
use everwatch_tests::cluster::{As, Cluster};
use serde_json::{Value, json};

/// How many requests for the last 24 hours the page has sent since it was loaded, and how many for the timeline.
const REQUESTS: &str = "const all = performance.getEntriesByType('resource').filter((it) => it.name.includes('/v1/timeline'));
    return [all.filter((it) => it.name.includes('since=24h') && it.name.includes('columns=96')).length, all.filter((it) => /columns=[0-9][0-9][0-9]/.test(it.name)).length]";

/// Points at the last column of the drawing on this tile.
fn point_at(tile: &str) -> String {
    format!(
        "const it = document.querySelector('.legend a[data-status={tile}] .spark'), box = it.getBoundingClientRect();
         it.dispatchEvent(new PointerEvent('pointermove', {{ clientX: box.right - 1, clientY: box.top + 2, bubbles: true }}))"
    )
}

/// Starts services in pools and zones, with room for the observers of one another.
async fn fleet(cluster: &mut Cluster) {
    cluster.manager().await;
    let url = cluster.broker_url.clone();
    for pool in ["feeds", "other"] {
        let path = format!("/v1/pools/{pool}");
        cluster.api.done::<Pool>("PUT", &path, Some(json!({"single": false})), 200).await;
    }
    for (name, pool, zone) in
        [("amber", "feeds", "east"), ("birch", "feeds", "west"), ("cedar", "other", "east")]
    {
        let environment = [("EVERWATCH_SERVICE__POOL", pool), ("EVERWATCH_SERVICE__LABELS__ZONE", zone)];
        cluster.spawn_service_as(
            name,
            20,
            As { broker_url: &url, environment: &environment, ..As::default() },
        );
        cluster.until_active(name).await;
    }
    for (name, pool) in
        [("one", "feeds"), ("two", "feeds"), ("three", "feeds"), ("four", "feeds"), ("five", "other")]
    {
        cluster.api.create(json!({"name": name, "kind": "ticker", "pool": pool})).await;
        cluster.api.until_status(name, "Processing").await;
    }
}

#[tokio::test]
async fn tiles_show_the_last_day_with_words_for_those_who_see_no_drawing() {
    let mut cluster = Cluster::new("last-day");
    fleet(&mut cluster).await;
    cluster.kill("amber");
    let page = Browser::open(&cluster.api.url).await;
    page.until_text("h1", "All 5 observers run").await;
    page.until_text(".incident-list", "amber lost").await;
    // The page was opened before the gap had ended.
    page.reopened("document.querySelectorAll('.legend .spark').length === 2").await;
    let said = |tile: &str| {
        format!("document.querySelector('.legend a[data-status={tile}] .spark').getAttribute('aria-label')")
    };
    page.until(
        "the words for those that ran",
        &format!("/^Since .* between about .* and about [1-9].* observers ran/.test({})", said("running")),
    )
    .await;
    let gap = "observers of one service ran nowhere at once";
    page.until("the words for the gap", &format!("{}.includes('{gap}')", said("moving"))).await;
    page.until("the bar of the gap", "document.querySelector('.spark .stem')").await;
    page.run(&point_at("running")).await;
    page.until(
        "the number and the time",
        r"/^about [1-9] ran\n\d\d:\d\d to /.test(document.querySelector('#history-running').innerText)",
    )
    .await;
    page.run(&point_at("moving")).await;
    page.until_text("#history-nowhere", "ran nowhere\nat once, of one service").await;
    page.until("one card", "document.querySelectorAll('.legend .lane-card').length === 1").await;
    page.screenshot("last-day").await;
    // The other parts of the page are read again meanwhile.
    page.until("several readings", &format!("(() => {{ {REQUESTS} }})()[1] >= 3")).await;
    assert_eq!(page.run(REQUESTS).await[0], 1);
}

#[tokio::test]
async fn a_role_that_may_not_read_the_timeline_sees_tiles_without_lines() {
    let mut cluster = Cluster::new("no-timeline").guarded();
    cluster.manager().await;
    cluster.service("a", 5).await;
    cluster.api.create(json!({"name": "one", "kind": "ticker"})).await;
    cluster.api.until_status("one", "Processing").await;
    let grants = json!({"grants": [{"verbs": ["status:read", "observers:read"]}]});
    cluster.api.done::<Role>("PUT", "/v1/roles/narrow", Some(grants), 201).await;
    let body = json!({"name": "joe", "role": "narrow"});
    let joe: CreatedToken = cluster.api.done("POST", "/v1/tokens", Some(body), 201).await;
    let page = Browser::open(&cluster.api.url).await;
    page.until_text("main h1", "Log in").await;
    page.write("#token", &joe.token).await;
    page.press("Log in").await;
    page.until_text("h1", "1 observer runs").await;
    page.until("tiles", "document.querySelectorAll('.legend li').length === 6").await;
    assert_eq!(page.run("return document.querySelectorAll('.spark, .chart').length").await, 0);
}

#[tokio::test]
async fn the_head_says_which_pools_let_observers_wait_before_what_a_loss_would_mean() {
    let mut cluster = Cluster::new("waiting-pools");
    cluster.manager().await;
    cluster.service("a", 1).await;
    let api = cluster.api.clone();
    api.create(json!({"name": "one", "kind": "ticker"})).await;
    api.until_status("one", "Processing").await;
    let page = Browser::open(&api.url).await;
    page.until_text(".hero", "losing the largest service would leave observers waiting").await;
    api.create(json!({"name": "two", "kind": "ticker", "on_full": "queue"})).await;
    page.until_text(".hero", "Pool default is full: 1 waits").await;
    page.until_text("[data-key=problems]", "all 1 slot in use: 1 observer waits").await;
    for (name, pool) in [("three", "gpu"), ("four", "gpu"), ("five", "defualt")] {
        api.create(json!({"name": name, "kind": "ticker", "pool": pool, "on_full": "queue"})).await;
    }
    page.until_text(".hero", "Pools defualt and gpu have no service: 3 observers wait").await;
    page.until("no word of a loss", "!document.querySelector('.hero').innerText.includes('losing')").await;
    page.until_text("[data-key=problems]", "no service: 2 observers wait").await;
    page.press("Pool gpu").await;
    page.until_text("h1", "gpu").await;

    // A pool without services is no destination, and an observer that waits has no service to leave.
    for name in ["one", "two"] {
        page.view(&format!("#/observers/{name}")).await;
        page.until_text("h1", name).await;
        page.press("Move").await;
        let gpu = "document.querySelector('#dialog option[value=gpu]')";
        page.until("no way to gpu", &format!("{gpu}?.disabled && {gpu}.text === 'gpu: no service'")).await;
        let service = "!!document.querySelector('#dialog [name=service]')";
        page.until("the service", &format!("{service} === {}", name == "one")).await;
        page.press("Cancel").await;
    }
}

#[tokio::test]
async fn a_drain_without_room_is_foretold_and_is_a_problem() {
    let mut cluster = Cluster::new("stuck-drain");
    cluster.manager().await;
    cluster.service("a", 4).await;
    for number in 0..3 {
        cluster.api.create(json!({"name": format!("o{number}"), "kind": "ticker"})).await;
        cluster.api.until_status(&format!("o{number}"), "Processing").await;
    }
    cluster.service("b", 1).await;
    let page = Browser::open(&format!("{}/#/services/a", cluster.api.url)).await;
    // A service that takes no observers has no slot for them.
    let _cordoned: Service = cluster.api.done("POST", "/v1/services/b/cordon", None, 202).await;
    cluster.api.until_service("b", |it| it.state == ServiceState::Cordoned).await;
    page.press("Resize").await;
    page.until_text("#dialog", "other services of pool default have 0 free slots.").await;
    page.press("Cancel").await;
    let _active: Service = cluster.api.done("POST", "/v1/services/b/uncordon", None, 202).await;
    cluster.api.until_service("b", |it| it.state == ServiceState::Active).await;
    page.press("Resize").await;
    page.until_text("#dialog", "other services of pool default have 1 free slot.").await;
    page.press("Cancel").await;
    page.press("Drain").await;
    let foretold = "have 1 free slot, but 3 are in use here: until there are more, 2 slots stay in use here";
    page.until_text("#dialog", foretold).await;
    page.press("Drain 3 observers").await;
    page.view("#/").await;
    page.until_text("[data-key=problems]", "Service a").await;
    page.until_text("[data-key=problems]", "its drain waits, with 1 of 3 observers handed over").await;
    page.screenshot("stuck-drain").await;

    // A smaller capacity does not wait: the observer that is handed over has no slot.
    let _active: Service = cluster.api.done("POST", "/v1/services/a/uncordon", None, 202).await;
    cluster.api.until_service("a", |it| it.state == ServiceState::Active).await;
    page.view("#/services/a").await;
    page.press("Resize").await;
    page.write("#asked-capacity", "1").await;
    page.until_text("#dialog", "Observers that take 1 slot would run nowhere until there are more slots.")
        .await;
    page.until("a red button", "document.querySelector('#dialog button.danger')?.textContent === 'Set'")
        .await;
    page.press("Set").await;
    page.view("#/").await;
    page.until_text("[data-key=problems]", "Pool default").await;
    page.until_text("[data-key=problems]", "all 2 slots in use: 1 observer waits").await;
    page.until_text(".hero", "Pool default is full: 1 waits").await;
    // The table counts the observer that moves, too.
    let row = "document.querySelector('[data-key=capacity] tbody tr')?.innerText.trim().split(/\\s+/).slice(-4).join(' ') === '2 0 2 1'";
    page.until("the same number in the table", row).await;
    // After ten seconds, the observer counts as waiting instead of moving.
    let one_waits = |it: &Value| it["total"] == 1;
    let _waiting: Value = cluster.api.until_read("/v1/observers?health=waiting", one_waits).await;
    page.reopened("document.querySelector('.hero')?.textContent.includes('Pool default is full: 1 waits')")
        .await;
    page.until_text("[data-key=problems]", "all 2 slots in use: 1 observer waits").await;
}

#[tokio::test]
async fn lanes_are_grouped_by_pool_or_label_and_groups_collapse() {
    let mut cluster = Cluster::new("groups");
    fleet(&mut cluster).await;
    let page = Browser::open(&cluster.api.url).await;
    let lanes = |expected: &[&str]| {
        let names = "[...document.querySelectorAll('.chart .lane-name')].map((it) => it.textContent)";
        format!("JSON.stringify({names}) === JSON.stringify({})", json!(expected))
    };
    let choose = |value: &str| {
        format!(
            "const it = document.querySelector('select[name=group]'); it.value = '{value}'; it.dispatchEvent(new Event('change', {{ bubbles: true }}))"
        )
    };
    page.until("three lanes", &lanes(&["amber", "birch", "cedar"])).await;
    page.run(&choose("pool")).await;
    page.until("pools", &lanes(&["feeds", "amber", "birch", "other", "cedar"])).await;
    page.until(
        "the sum of the pool",
        "document.querySelector('.chart .fold').textContent.includes('4 / 40')",
    )
    .await;
    page.until("the sum as a lane", "document.querySelector('.chart .group .held')").await;
    page.screenshot("groups").await;
    page.run("const it = document.querySelector('.chart .fold'); it.focus(); it.dispatchEvent(new MouseEvent('click', { bubbles: true, cancelable: true }))").await;
    page.until("the collapsed pool", &lanes(&["feeds (2)", "other", "cedar"])).await;
    page.until(
        "a link that can be opened again",
        "document.querySelector('.chart .fold').getAttribute('aria-expanded') === 'false'",
    )
    .await;
    // The address keeps both choices.
    page.reopened(&lanes(&["feeds (2)", "other", "cedar"])).await;
    cluster.kill("amber");
    page.until("the incident on the heading", "document.querySelector('.chart a[href*=incidents]')").await;
    page.run(&choose("label:zone")).await;
    page.until("zones", &lanes(&["east", "amber", "cedar", "west", "birch"])).await;
    page.until("an address without the collapsed pool", "location.hash === '#/?group=label%3Azone'").await;
    page.run("document.querySelector('.lanes details').open = true").await;
    page.until_text(".lanes details", "Label zone").await;
    page.narrow().await;
    page.until("the groups on a phone", "document.documentElement.scrollWidth <= innerWidth").await;
}

#[tokio::test]
async fn a_full_pool_names_its_cordoned_service_with_free_slots() {
    let mut cluster = Cluster::new("cordoned");
    cluster.manager().await;
    cluster.service("a", 1).await;
    cluster.api.create(json!({"name": "one", "kind": "ticker"})).await;
    cluster.api.until_status("one", "Processing").await;
    cluster.service("b", 2).await;
    let _: Value = cluster.api.done("POST", "/v1/services/b/cordon", None, 202).await;
    cluster.api.until_service("b", |it| it.state == ServiceState::Cordoned).await;
    cluster.api.create(json!({"name": "two", "kind": "ticker", "on_full": "queue"})).await;
    let page = Browser::open(&cluster.api.url).await;
    page.until_text("[data-key=problems]", "all 1 slot in use: 1 observer waits").await;
    page.until_text("[data-key=problems]", "b is cordoned with 2 free slots: uncordon it").await;
    page.until_text("[data-key=capacity]", "Without the free slots of cordoned services: b.").await;
}

/// Segments of the seconds `s` with what the lane held and how many of its observers ran nowhere.
const GAPS: &str = r"const answer = arguments[arguments.length - 1];
    const at = (s) => new Date(s * 1000).toISOString();
    const segments = (all) => all.map(([s, held_max, gap]) => ({ since: at(s), until: at(s + 1), held_max, gap }));
    import('/console/lanes-scale.js').then(({ gapParts }) => answer([
      [[0, 9, 0], [1, 8, 1], [2, 8, 0]],
      [[0, 8, 0], [1, 0, 8], [2, 0, 4], [3, 8, 0]],
      [[0, 8, 0], [5, 0, 2], [6, 2, 0]],
    ].map((all) => [...gapParts(segments(all)).values()])), (error) => answer(String(error)));";

#[tokio::test]
async fn a_gap_is_as_high_as_its_part_of_the_observers() {
    let mut cluster = Cluster::new("gap-parts");
    cluster.manager().await;
    let page = Browser::open(&cluster.api.url).await;
    let parts = page.run_async(GAPS).await;
    let one_of_nine = 1.0 / 9.0;
    // What it held before it held nothing for a time is another matter.
    assert_eq!(parts, json!([[one_of_nine], [1, 0.5], [1]]));
}
