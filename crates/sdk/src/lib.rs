//! Write observers: tasks that run until they are told to stop, on whichever service has room.
//!
//! ```no_run
//! use everwatch::{Context, Error, Exit, Observer};
//!
//! #[derive(serde::Deserialize, schemars::JsonSchema)]
//! struct Hello { every_seconds: u64 }
//!
//! impl Observer for Hello {
//!     const KIND: &'static str = "hello";
//!     async fn run(self, ctx: Context) -> Result<Exit, Error> {
//!         let pause = std::time::Duration::from_secs(self.every_seconds);
//!         while ctx.until_cancelled(tokio::time::sleep(pause)).await.is_some() {
//!             ctx.emit(serde_json::json!({"hello": ctx.name()})).await?;
//!         }
//!         Ok(Exit::Stopped)
//!     }
//! }
//! ```

#![warn(missing_docs)]

mod boot_clock;
#[cfg(feature = "dev")]
pub mod dev;
mod error;
mod freeze;
mod handle;
pub mod host;
mod host_info;
pub mod kinds;
mod limit_text;
mod metric;
mod reconnect;
mod runtime;
mod safety;
mod service;
mod session;
mod settings;
mod tasks;
pub mod testing;

pub use error::{Error, OrPermanent, Permanent};
pub use everwatch_core::run::slots::CancelReason;
pub use freeze::FreezeProof;
pub use handle::Handle;
pub use host_info::{FenceOn, Machine};
pub use metric::described_metrics;
pub use reconnect::Reconnect;
pub use runtime::{RunError, run};
pub use service::Service;
pub use settings::{Capacity, ServiceSettings};
pub use tasks::context::{Context, PendingEmission, Restored};
pub use tasks::exit::Exit;
pub use tasks::measures::{Counter, Gauge};
pub use tasks::observer::Observer;
pub use tasks::permits::PendingPermits;
pub use tasks::readiness::Readiness;
pub use tasks::registry::{Registry, RunFuture};
pub use tasks::secrets::SecretsSettings;
pub use tasks::threads::Threads;
