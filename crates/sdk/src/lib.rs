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
//!         Ok(Exit::Done)
//!     }
//! }
//! ```

mod context;
mod fence;
mod frost;
pub mod host;
pub mod kinds;
mod logs;
mod machine;
mod metric;
mod mouth;
mod observer;
mod proof;
mod pulse;
mod registry;
mod reporter;
mod runtime;
mod session;
mod settings;
pub mod testing;
mod unit;

pub use context::Context;
pub use frost::Frost;
pub use host::Service;
pub use machine::{FenceOn, Machine};
pub use observer::{Error, Exit, Observer};
pub use registry::Registry;
pub use runtime::{Handle, RunError, run};
pub use settings::{Capacity, ServiceSettings};
