//! `observer get` and `service get`: shows objects by their names.

use super::unknown::hinted;
use super::{fan_out, watch};
use crate::cli::Watched;
use crate::client::{Client, Failure};
use crate::item::Item;
use crate::output::{self, Root, View};
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(super) async fn run<T: Clone + DeserializeOwned + Serialize>(
    client: &Client,
    view: &View<T>,
    (names, path, list): (&[String], fn(&str) -> String, &str),
    watched: &Watched,
) -> anyhow::Result<()> {
    let one = |name| {
        let path = path(name);
        async move { client.read::<Item<T>>(&path).await }
    };
    if let [name] = names {
        if watched.watch {
            let load = async |_| Ok(vec![one(name).await?]);
            return watch::run(client, (view, Root::Object), &watched.shown, load).await;
        }
        return output::show_one(view, &hinted(client, (list, name), one(name)).await?, &watched.shown);
    }
    let (found, failed) = fan_out::read(names, |name| hinted(client, (list, name), one(name))).await;
    if found.is_empty() {
        return failed;
    }
    if !watched.watch {
        output::show(view, &found, &watched.shown)?;
        return failed;
    }
    match failed {
        Err(error) if !is_absent(&error) => return Err(error),
        Err(error) => output::note(&format!("{error:#}")),
        Ok(()) => {}
    }
    let load = async |_| {
        let mut all = Vec::new();
        for name in names {
            match one(name).await {
                Ok(it) => all.push(it),
                Err(error) if is_absent(&error) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(all)
    };
    watch::run(client, (view, Root::List), &watched.shown, load).await
}

fn is_absent(error: &anyhow::Error) -> bool {
    matches!(error.downcast_ref(), Some(Failure::NotFound(_)))
}
