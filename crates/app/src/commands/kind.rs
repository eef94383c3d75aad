//! `everwatch kind …`

use super::operations::list;
use crate::cli::Kind;
use crate::client::{Client, Failure};
use crate::item::Item;
use crate::output::{self, KINDS, print};
use everwatch_api::{self as api, Listed};
use everwatch_core::spelling::advice;

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn run(server: &str, verb: Kind) -> anyhow::Result<()> {
    let client = &Client::new(server)?;
    match verb {
        Kind::List(watched) => list(client, "/v1/kinds", &KINDS, &watched).await,
        Kind::Describe { name, shown } => {
            let all: Listed<Item<api::Kind>> = client.read("/v1/kinds").await?;
            let Some(kind) = all.items.iter().find(|it| it.name == name) else {
                let known: Vec<&str> = all.items.iter().map(|it| it.name.as_str()).collect();
                let advice = advice(&name, "kinds", &known);
                let text = format!("no living service can run the kind `{name}`; {advice}");
                return Err(Failure::NotFound(text).into());
            };
            if !output::structured(kind, &shown)? {
                print(&output::describe_kind(kind));
            }
            Ok(())
        }
    }
}
