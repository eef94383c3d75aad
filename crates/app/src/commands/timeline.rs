//! `everwatch timeline`: what each service held, where observers ran nowhere, and the incidents in which they moved.

use crate::cli::Timeline as Asked;
use crate::client::Client;
use crate::item::Item;
use crate::output::{self, INCIDENTS, Picture, TerminalStyle, note, print, second};
use everwatch_api::Timeline;
use everwatch_core::clock;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(server: &str, asked: &Asked) -> anyhow::Result<()> {
    let client = Client::new(server)?;
    let paper = TerminalStyle::stdout();
    let columns = Picture::columns(paper.width);
    let mut path = format!("/v1/timeline?columns={columns}&since={}", Client::part(&asked.since.to_string()));
    if let Some(until) = asked.until {
        path += &format!("&until={}", Client::part(&until.of(clock::now()).to_string()));
    }
    for service in &asked.services {
        path += &format!("&service={}", Client::part(service));
    }
    if let Some(observer) = &asked.observer {
        path += &format!("&observer={}", Client::part(observer));
        if let Some(namespace) = client.namespace() {
            path += &format!("&namespace={}", Client::part(namespace));
        }
    }
    let it: Item<Timeline> = client.read(&path).await?;
    if output::structured(&it, &asked.shown)? {
        return Ok(());
    }
    if it.lanes.is_empty() {
        note(match &asked.observer {
            Some(_) => "the observer did not run in this time",
            None => "no service ran in this time",
        });
        return Ok(());
    }
    print(&Picture::new(&it, columns, ": choose some with --service").text(paper));
    if let Some(since) = it.complete_since.filter(|since| *since > it.since) {
        note(&format!("events before {} are not kept", second(since)));
    }
    if !it.incidents.is_empty() {
        let incidents = it.incidents.iter().cloned().map(Item::new).collect::<anyhow::Result<Vec<_>>>()?;
        print("");
        print(&output::many(&INCIDENTS, &incidents, &asked.shown, (paper, clock::now()))?);
    }
    Ok(())
}
