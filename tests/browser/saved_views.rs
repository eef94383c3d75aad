//! A user saves views of the list of observers, opens them from chips and from the palette, renames and deletes them.

use crate::browser::Browser;
use everwatch_tests::cluster::Cluster;
use serde_json::json;

/// Presses a key on the page itself.
const PALETTE: &str = "document.body.dispatchEvent(new KeyboardEvent('keydown', { key: 'k', ctrlKey: true, bubbles: true, cancelable: true }))";
const ENTER: &str = "\u{e007}";

async fn named(page: &Browser, button: &str, name: &str) {
    page.press(button).await;
    page.until("the dialog", "document.querySelector('#dialog[open] input[name=name]')").await;
    page.run("document.querySelector('#dialog input').value = ''").await;
    // The keyboard alone answers the dialog, because its field has the focus.
    page.write("#dialog input", &format!("{name}{ENTER}")).await;
}

/// Waits until the chips above the list are these, and the one that is open is this.
async fn until_chips(page: &Browser, names: &[&str], open: &str) {
    let expression = format!(
        "JSON.stringify([...document.querySelectorAll('.views .chip')].map((it) => it.innerText)) === JSON.stringify({}) && (document.querySelector('.views [aria-current]')?.innerText ?? '') === {}",
        json!(names),
        json!(open)
    );
    page.until(&format!("the views {names:?} with {open:?} open"), &expression).await;
}

#[tokio::test]
async fn a_view_is_saved_found_renamed_and_deleted() {
    let mut cluster = Cluster::new("views");
    cluster.manager().await;
    cluster.service("a", 10).await;
    for (name, team) in [("feed-1", "red"), ("feed-2", "blue"), ("probe", "red")] {
        cluster.api.create(json!({"name": name, "kind": "ticker", "labels": {"team": team}})).await;
    }
    let page = Browser::open(&format!("{}/#/observers", cluster.api.url)).await;
    page.until("three rows", "document.querySelectorAll('tbody tr').length === 3").await;
    assert_eq!(page.run("return document.querySelector('.views')").await, json!(null));
    // A filter, a sort order and columns.
    page.view("#/observers?q=feed&sort=-name").await;
    page.until("two rows", "document.querySelectorAll('tbody tr').length === 2").await;
    page.run("document.querySelector('details.menu').open = true").await;
    for column in ["Labels", "Last started"] {
        let click = format!(
            "[...document.querySelectorAll('details.menu label')].find((it) => it.innerText.trim() === '{column}').querySelector('input').click()"
        );
        page.run(&click).await;
        page.until(
            column,
            &format!("[...document.querySelectorAll('th')].some((it) => it.innerText === '{column}') === ('{column}' === 'Labels')"),
        )
        .await;
    }
    named(&page, "Save view", "Feeds").await;
    until_chips(&page, &["Feeds"], "Feeds").await;
    page.view("#/observers").await;
    page.until("all rows", "document.querySelectorAll('tbody tr').length === 3").await;
    until_chips(&page, &["Feeds"], "").await;
    page.reopened("document.querySelector('.views .chip')").await;
    page.press("Feeds").await;
    page.until(
        "the filter",
        "location.hash.includes('q=feed') && document.querySelectorAll('tbody tr').length === 2",
    )
    .await;
    page.until_text("tbody tr:first-child", "feed-2").await;
    page.until_text("tbody tr:first-child", "team=blue").await;

    page.view("#/safe-mode").await;
    page.until_text("h1", "Safe mode").await;
    page.run(PALETTE).await;
    page.write("#palette input", "feeds").await;
    page.until_text("#found li[aria-selected=true]", "Feeds").await;
    page.write("#palette input", ENTER).await;
    until_chips(&page, &["Feeds"], "Feeds").await;
    page.screenshot("saved-view").await;
    named(&page, "Rename", "Sources").await;
    until_chips(&page, &["Sources"], "Sources").await;
    page.press("Delete").await;
    page.until_text("#dialog", "The observers remain").await;
    page.press("Delete view").await;
    until_chips(&page, &[], "").await;
    assert_eq!(page.run("return localStorage.getItem('views')").await, "[]");
}

/// The browser reports the end of a dialog in a later task, when the next one may be open.
#[tokio::test]
async fn a_dialog_that_opens_while_the_former_one_closes_is_answered() {
    let mut cluster = Cluster::new("views-again");
    cluster.manager().await;
    let page = Browser::open(&format!("{}/#/observers?q=x", cluster.api.url)).await;
    page.until_text("main .head", "Save view").await;
    let again = "const button = document.querySelector('main [data-key=save-view]');
        button.click();
        document.querySelector('#dialog[open] button[value=no]').click();
        button.click()";
    page.run(again).await;
    page.write("#dialog input", &format!("Second{ENTER}")).await;
    until_chips(&page, &["Second"], "Second").await;
}

#[tokio::test]
async fn the_number_of_views_and_their_names_are_limited() {
    let mut cluster = Cluster::new("views-limits");
    cluster.manager().await;
    let page = Browser::open(&format!("{}/#/observers?q=x", cluster.api.url)).await;
    page.press("Save view").await;
    page.until("the dialog", "document.querySelector('#dialog[open] input[name=name]')").await;
    page.write("#dialog input", ENTER).await;
    page.until_text("#asked-name-hint", "A name has 1 to 40 characters; this one has 0.").await;
    page.write("#dialog input", &"n".repeat(41)).await;
    page.confirm().await;
    page.until_text("#asked-name-hint", "this one has 41").await;
    page.press("Cancel").await;
    // Entries that the console could not have written do not count.
    let fill = "const all = Array.from({ length: 29 }, (_, at) => ({ name: `view ${at}`, search: `q=${at}` }));
        localStorage.setItem('views', JSON.stringify([...all, null, { name: 'x'.repeat(50), search: '' }, { name: 7 }]))";
    page.run(fill).await;
    page.reopened("document.querySelectorAll('.views .chip').length === 29").await;
    named(&page, "Save view", "VIEW 3").await;
    page.until_text("#asked-name-hint", "A view “VIEW 3” exists").await;
    page.press("Cancel").await;
    named(&page, "Save view", "the last").await;
    page.until("thirty chips", "document.querySelectorAll('.views .chip').length === 30").await;
    page.view("#/observers?q=y").await;
    page.press("Save view").await;
    page.until_text("#toasts", "This browser keeps at most 30 views: delete one, then save this one.").await;
    page.narrow().await;
    page.until("the list on a phone", "document.documentElement.scrollWidth <= innerWidth").await;
}
