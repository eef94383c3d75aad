//! A user edits an observer in place, clones it, and reads its log.

use crate::browser::Browser;
use everwatch_api::Observer;
use everwatch_tests::cluster::Cluster;
use fantoccini::Locator;
use serde_json::json;

/// Replaces the text of the definition by what the expression makes of `it.value`.
async fn retype(page: &Browser, expression: &str) {
    let script = format!(
        "const it = document.querySelector('#definition'); it.value = {expression}; it.dispatchEvent(new Event('input', {{ bubbles: true }}));"
    );
    page.run(&script).await;
}

#[tokio::test]
async fn a_definition_is_edited_checked_compared_and_saved_unless_it_has_changed() {
    let mut cluster = Cluster::new("editing");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let api = cluster.api.clone();
    api.create(json!({"name": "one", "kind": "ticker", "spec": {"every": "1s"}})).await;
    let page = Browser::open(&format!("{}/#/observers/one", api.url)).await;
    page.until_text("h1", "one").await;
    page.press("Edit").await;
    page.until("the form", "document.querySelector('#spec-every')?.value === '1s'").await;
    page.until("nothing to save", "document.querySelector('#save').disabled").await;
    page.fill("#spec-every", "1 parsec").await;
    // The schema says so before anything is saved.
    page.until_text("#spec-every-hint", "is not a duration").await;
    page.until("still nothing to save", "document.querySelector('#save').disabled").await;
    // The form has the fields of the form for a new observer.
    page.fill("#edit-priority", "500").await;
    page.until_text("#edit-priority-hint", "is not a whole number from -100 to 100").await;
    // The manager judges the other fields meanwhile; what it says about one ends with that value.
    page.fill("#edit-grace", "2h").await;
    page.until_text("#edit-grace-hint", "is 2h: write at most 1h").await;
    page.fill("#edit-grace", "10s").await;
    let gone = "!document.querySelector('#edit-grace-hint').textContent.includes('is 2h')";
    page.until("the complaint about the grace to go", gone).await;
    page.until_text("#spec-every-hint", "is not a duration").await;
    page.fill("#spec-every", "2s").await;
    let gone =
        "!(document.querySelector('#spec-every-hint')?.textContent ?? '').includes('is not a duration')";
    page.until("the complaint about a corrected field to go", gone).await;
    page.until_text("#edit-priority-hint", "is not a whole number from -100 to 100").await;
    page.fill("#edit-priority", "0").await;
    page.until_text(".diff ins", "every: 2s").await;
    page.until_text(".diff del", "every: 1s").await;
    page.until("the check to pass", "!document.querySelector('#save').disabled").await;
    page.until_text(".review", "Saving restarts the observer.").await;
    // The draft waits while the user looks elsewhere.
    page.view("#/topology").await;
    page.until_text("h1", "Topology").await;
    page.view("#/observers/one").await;
    page.press("Continue editing").await;
    page.until_text(".diff ins", "every: 2s").await;
    page.press("Save version 2").await;
    let changed = api.until_observer("one", |it| it.definition_version == 2).await;
    assert_eq!(changed.spec, json!({"every": "2s"}));
    page.until_text("#tab-panel", "Version 2 against 1").await;

    page.press("Edit").await;
    page.press("YAML").await;
    page.until("the text", "document.querySelector('#definition')?.value.includes('every: 2s')").await;
    retype(&page, "it.value + ' oops'").await;
    page.until_text("#definition-hint", "line ").await;
    retype(
        &page,
        "it.value.replace(' oops', '').replace('every: 2s', 'every: 3s') + 'labels:\\n  team: a\\n'",
    )
    .await;
    page.until_text(".diff", "+   team: a").await;
    // Meanwhile, somebody else changes it.
    let patch = json!({"labels": {"env": "prod"}});
    api.done::<Observer>("PATCH", "/v1/observers/one", Some(patch), 200).await;
    page.until_text(".notice", "changed this observer meanwhile").await;
    page.press("Save version 4").await;
    page.until("the refusal", "!document.querySelector('#save').disabled").await;
    assert_eq!(api.observer("one").await.spec, json!({"every": "2s"}));
    page.press("Compare with version 3").await;
    page.until_text(".diff", "env: prod").await;
    page.screenshot("editor").await;
    page.press("Save version 4").await;
    let saved = api.until_observer("one", |it| it.definition_version == 4).await;
    assert_eq!((saved.spec, saved.labels.len()), (json!({"every": "3s"}), 1));
}

#[tokio::test]
async fn back_closes_the_editor_and_cancel_leaves_no_entry_of_its_own() {
    let mut cluster = Cluster::new("leaving");
    cluster.manager().await;
    cluster.service("a", 10).await;
    cluster.api.create(json!({"name": "one", "kind": "ticker"})).await;
    let page = Browser::open(&format!("{}/#/observers", cluster.api.url)).await;
    page.until_text("tbody", "one").await;
    page.view("#/observers/one").await;
    page.until_text("h1", "one").await;
    for cancels in [false, true] {
        page.press("Edit").await;
        page.until("the form", "document.querySelector('#spec-every')").await;
        page.until("its address", "location.hash.endsWith('?edit=form')").await;
        if cancels {
            page.press("Cancel").await;
        } else {
            page.run("history.back()").await;
        }
        page.until("the page of the observer", "location.hash.endsWith('/one')").await;
        page.until("no editor", "!document.querySelector('#save')").await;
    }
    page.run("history.back()").await;
    page.until("the list", "location.hash === '#/observers'").await;
}

#[tokio::test]
async fn a_default_that_the_text_leaves_out_is_no_change() {
    let mut cluster = Cluster::new("defaults");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let api = cluster.api.clone();
    api.create(json!({"name": "one", "kind": "ticker", "spec": {"every": "1s"}, "labels": {"team": "x"}}))
        .await;
    let page = Browser::open(&format!("{}/#/observers/one?edit=yaml", api.url)).await;
    page.until("the text", "document.querySelector('#definition')?.value.includes('grace: 10s')").await;
    retype(&page, "it.value.replace('every: 1s', 'every: 4s').replace('grace: 10s\\n', '')").await;
    let counted =
        |lines: u32| format!("document.querySelectorAll('.diff ins, .diff del').length === {lines}");
    page.until("the interval as the only change", &counted(2)).await;
    page.until_text(".diff ins", "every: 4s").await;
    // The default of the labels is that there are none.
    retype(&page, "it.value.replace('labels:\\n  team: x\\n', '')").await;
    page.until_text(".diff", "+ labels: {}").await;
    page.until("the labels to go, too", &counted(5)).await;
    page.press("Save version 2").await;
    let changed = api.until_observer("one", |it| it.definition_version == 2).await;
    assert!(changed.labels.is_empty() && changed.spec == json!({"every": "4s"}), "{changed:?}");
}

#[tokio::test]
async fn a_text_for_a_new_observer_survives_a_look_elsewhere() {
    let mut cluster = Cluster::new("kept-text");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let page = Browser::open(&format!("{}/#/create?as=yaml", cluster.api.url)).await;
    page.until("the text", "document.querySelector('#definition')").await;
    retype(&page, "'name: draft-1\\nkind: ticker\\nspec:\\n  every: 9s\\n'").await;
    let is_there = "document.querySelector('#definition')?.value.includes('every: 9s')";
    let away = async || {
        page.view("#/events").await;
        page.until_text("h1", "Events").await;
        page.view("#/create").await;
    };
    away().await;
    page.until("the draft", is_there).await;
    page.until_text("main", "The text is your unsaved draft.").await;
    // The form takes the draft over, and is the draft from then on.
    page.press("Form").await;
    page.until("the form", "document.querySelector('#new-name')?.value === 'draft-1'").await;
    away().await;
    page.until_text("main", "The form shows your unsaved draft.").await;
    page.press("Discard the draft").await;
    away().await;
    page.until("an empty form", "document.querySelector('#new-name')?.value === ''").await;
}

#[tokio::test]
async fn a_clone_is_corrected_as_json_and_created() {
    let mut cluster = Cluster::new("cloning");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let api = cluster.api.clone();
    api.create(json!({"name": "one", "kind": "ticker", "spec": {"every": "3s"}})).await;
    // The first name that a clone would have is taken.
    api.create(json!({"name": "one-copy", "kind": "ticker"})).await;
    let page = Browser::open(&format!("{}/#/observers/one", api.url)).await;
    page.press("Clone").await;
    page.until(
        "the form of the copy, which takes the keys",
        "document.activeElement.id === 'new-name' && document.activeElement.value === 'one-copy-2'",
    )
    .await;
    page.press("JSON").await;
    page.until("the copy as JSON", "document.querySelector('#definition')?.value.startsWith('{')").await;
    // A member that occurs twice, and a line that is not JSON.
    retype(&page, "(window.good = it.value, it.value.replace('{', '{ \"kind\": \"exec\",'))").await;
    page.until_text("main", "kind occurs twice").await;
    retype(&page, "window.good.replace('{\\n', '{\\n oops\\n')").await;
    page.until_text("main", "line 2: this is not JSON").await;
    page.until_text(".review", "It appears here once the text is correct.").await;
    page.until("no former definition", "!document.querySelector('.diff')").await;
    retype(&page, "window.good").await;
    page.press("Create").await;
    page.until_text("h1", "one-copy-2").await;
    assert_eq!(api.observer("one-copy-2").await.spec, json!({"every": "3s"}));
}

#[tokio::test]
async fn a_new_observer_keeps_its_values_from_the_form_to_a_text_and_back() {
    let mut cluster = Cluster::new("switching");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let page = Browser::open(&format!("{}/#/create", cluster.api.url)).await;
    page.write("#new-name", "my-obs").await;
    page.write("#spec-every", "1s").await;
    page.press("YAML").await;
    page.until("the name", "document.querySelector('#definition')?.value.includes('name: my-obs')").await;
    page.until(
        "added lines alone",
        "document.querySelector('.diff ins') && !document.querySelector('.diff del')",
    )
    .await;
    page.until("one switch", "document.querySelectorAll('main .head .seg, main .panel .seg').length === 1")
        .await;
    retype(&page, "it.value.replace('every: 1s', 'every: 2s')").await;
    page.press("Form").await;
    page.until("the values of the text", "document.querySelector('#spec-every')?.value === '2s'").await;
    page.until("the name in the form", "document.querySelector('#new-name').value === 'my-obs'").await;

    // The form has no field for this member: it asks before it drops it.
    page.press("YAML").await;
    page.until("the text", "document.querySelector('#definition')?.value.includes('every: 2s')").await;
    // A misspelt member is found while the user types.
    retype(&page, "it.value + 'prioritty: 5\\n'").await;
    page.until_text(".notice", "did you mean priority?").await;
    // Each mistake is shown beside its line: those that the console knows, and those that only the manager finds.
    retype(&page, "it.value + 'grace: 2h\\noverlap: maybe\\n'").await;
    page.until_text(".notice", "/grace is 2h: write at most 1h").await;
    page.until_text(".notice", "/overlap").await;
    page.until_text(".notice", "did you mean priority?").await;
    page.until("three lines", "document.querySelectorAll('.notice .line-of').length === 3").await;
    page.until("three marks", "document.querySelectorAll('.gutter .bad').length === 3").await;
    page.screenshot("wrong-lines").await;
    page.run("document.querySelector('.notice .line-of').click()").await;
    page.until(
        "the line of the first mistake",
        "(({ value, selectionStart, selectionEnd }) => value.slice(selectionStart, selectionEnd))(document.querySelector('#definition')) === 'prioritty: 5'",
    )
    .await;
    retype(&page, "it.value.replace('grace: 2h\\noverlap: maybe\\n', '')").await;
    retype(&page, "it.value.replace('prioritty: 5', 'pool: nowhere')").await;
    page.until_text(".notice", "The manager refuses to create the observer").await;
    retype(&page, "it.value.replace('pool: nowhere', 'pool: nowhere\\non_full: queue')").await;
    page.until_text(".notice", "The observer waits until one does").await;
    retype(&page, "it.value.replace('pool: nowhere\\non_full: queue\\n', '')").await;
    // A reload does not lose the text.
    page.reopened("document.querySelector('#definition')?.value.includes('every: 2s')").await;
    retype(&page, "it.value + 'desired: paused\\n'").await;
    page.press("Form").await;
    page.until_text("#dialog", "desired").await;
    // The editor below has a button of the same name.
    page.click(Locator::Css("#dialog button[value=no]")).await;
    page.until("the text again", "document.querySelector('#definition')?.value.includes('desired: paused')")
        .await;
}

#[tokio::test]
async fn the_log_follows_after_a_dialog_and_is_searched_and_filtered() {
    let mut cluster = Cluster::new("log-tools");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let script = "n=0; while :; do n=$((n+1)); echo line $n; echo error: number $n >&2; sleep 0.2; done";
    let spec = json!({"argv": ["/bin/sh", "-c", script]});
    cluster.api.create(json!({"name": "talks", "kind": "exec", "spec": spec})).await;
    let page = Browser::open(&format!("{}/#/observers/talks", cluster.api.url)).await;
    let at_end = "(({ scrollHeight, scrollTop, clientHeight }) => scrollHeight > clientHeight && scrollHeight - scrollTop - clientHeight < 40)(document.querySelector('.logs'))";
    page.until_text(".logs", "line 20").await;
    page.until("the end in sight", at_end).await;
    page.press("Delete").await;
    page.until_text("#dialog h2", "Delete talks?").await;
    page.press("Cancel").await;
    page.until_text(".logs", "line 40").await;
    page.until("the end in sight after the dialog", at_end).await;
    page.click(Locator::Css("#log-follow")).await;
    page.run("document.querySelector('.logs').scrollTop = 0").await;
    page.until_text(".logs", "line 50").await;
    page.until("the place that was scrolled to", "document.querySelector('.logs').scrollTop < 40").await;
    page.press("stderr").await;
    page.until(
        "errors only",
        "[...document.querySelectorAll('.logs p')].every((it) => it.dataset.stream !== 'stdout')",
    )
    .await;
    page.until("the colour of errors", "document.querySelector('.logs [data-level=error]')").await;
    page.press("All").await;
    page.write(".log-tools input", "number 7").await;
    page.until(
        "what matches",
        "[...document.querySelectorAll('.logs .said')].every((it) => it.innerText.includes('number 7'))",
    )
    .await;
    page.until_text(".logs mark", "number 7").await;
}

#[tokio::test]
async fn a_script_is_edited_line_by_line_and_a_change_of_labels_restarts_nothing() {
    let mut cluster = Cluster::new("script");
    cluster.manager().await;
    cluster.service("a", 10).await;
    let script = "while true; do\n  sleep 1\ndone\n";
    let spec = json!({"argv": ["/bin/sh", "-c", script]});
    cluster.api.create(json!({"name": "loops", "kind": "exec", "spec": spec})).await;
    cluster.api.until_status("loops", "Processing").await;
    let page = Browser::open(&format!("{}/#/observers/loops?edit=yaml", cluster.api.url)).await;
    let text = "document.querySelector('#definition')?.value";
    page.until("a block", &format!("{text}.includes('- |\\n      while true; do\\n        sleep 1')")).await;
    retype(&page, "it.value.replace('sleep 1', 'sleep 2')").await;
    page.until_text(".diff ins", "sleep 2").await;
    page.until_text(".review", "Saving restarts the observer.").await;
    retype(&page, "it.value.replace('sleep 2', 'sleep 1') + 'labels:\\n  team: a\\n'").await;
    page.until_text(".review", "team: a").await;
    page.until("the check to pass", "!document.querySelector('#save').disabled").await;
    page.until("no restart", "!document.querySelector('.review').innerText.includes('restarts')").await;
    // Texts in brackets need quotes only around what YAML would read differently.
    let flow = "'name: loops\\nkind: exec\\nspec:\\n  argv: [curl, -s, https://x.org/a, \"it, too\",]\\n  exit_codes: {0: done}\\n'";
    retype(&page, flow).await;
    page.until_text(".diff", "https://x.org/a").await;
    for part in ["it, too", "\"0\": done"] {
        page.until(part, &format!("document.querySelector('.diff').textContent.includes({part:?})")).await;
    }
    page.until("the check to pass", "!document.querySelector('#save').disabled").await;
}

#[tokio::test]
async fn an_edit_without_a_pool_moves_the_observer_to_the_default_pool() {
    let mut cluster = Cluster::new("edited-pool");
    cluster.manager().await;
    cluster.service("a", 10).await;
    assert_eq!(cluster.command(&["pool", "create", "gpu"]).0, Some(0));
    cluster.extra.push(("EVERWATCH_SERVICE__POOL".to_owned(), "gpu".to_owned()));
    cluster.service("b", 10).await;
    cluster.api.create(json!({"name": "elsewhere", "kind": "ticker", "pool": "gpu"})).await;
    cluster.api.until_status("elsewhere", "Processing").await;
    let page = Browser::open(&format!("{}/#/observers/elsewhere?edit=yaml", cluster.api.url)).await;
    page.until("the pool", "document.querySelector('#definition')?.value.includes('pool: gpu')").await;
    retype(&page, "it.value.replace('pool: gpu\\n', '')").await;
    page.until_text(".diff del", "pool: gpu").await;
    page.until_text(".review", "waits for a slot of pool default").await;
}
