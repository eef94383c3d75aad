//! Who may have a slot: blocks, admission of creates, placement, rebalancing, maintenance.

pub mod admission;
pub mod blocks;
pub mod create_admission;
pub mod kind_offer;
pub mod limits;
pub mod maintenance;
pub mod placement;
pub mod rebalance;
#[cfg(test)]
mod test_services;
