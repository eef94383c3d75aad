//! Who may have a slot: blocks, admission of creates, placement, rebalancing, maintenance; how many slots are needed and how many services can be lost; what uses a pool;
//! and who may use permits of a rate.

pub mod admission;
pub mod blocks;
pub mod create_admission;
pub mod headroom;
pub mod kind_offer;
pub mod limits;
pub mod maintenance;
pub mod namespace;
pub mod placement;
pub mod pool_use;
pub mod preemption;
pub mod rate;
pub mod rebalance;
pub mod supply;
pub mod transfer;
