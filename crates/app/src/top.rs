//! `everwatch top`: services and observers on the full screen. The model decides, the view draws, the loop carries out.

mod keys;
mod load;
mod model;
mod run;
mod seen;
#[cfg(test)]
mod tests;
mod view;

pub(crate) use run::run;
