//! `everwatch top`: shows services and observers on the full screen. `model` holds the state, `view` draws
//! it, `run` performs the effects.

mod keys;
mod load;
mod model;
mod run;
mod seen;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use run::run;
