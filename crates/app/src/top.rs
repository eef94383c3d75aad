//! `everwatch top`: shows services, observers, logs, events and the timeline on the full screen. `model` holds the state,
//! `view` draws it, `run` performs the effects.

mod body;
mod feed;
mod filter;
mod follow;
mod incident;
mod keys;
mod load;
mod misplaced;
mod model;
mod moving;
mod query;
mod run;
mod seen;
mod target;
#[cfg(test)]
mod tests;
mod timeline;
mod view;
mod views;

pub(crate) use run::run;
