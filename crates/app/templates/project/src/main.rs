//! A service that runs observers of the kind `my-project`. Each observer logs and emits a greeting at an interval.

use everwatch::{Context, Error, Exit, Observer, Service};
use schemars::JsonSchema;
use serde::Deserialize;
use serde_json::json;
use std::process::ExitCode;
use std::time::Duration;

/// The arguments of an observer: its `spec`. Managers check each spec, and the console shows a form
/// with the comments of the fields.
#[derive(Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct Greeter {
    /// Whom to greet.
    whom: String,
    /// Time between two greetings, in seconds.
    #[serde(default = "one")]
    #[schemars(range(min = 1, max = 86_400))]
    every_seconds: u64,
}

fn one() -> u64 {
    1
}

impl Observer for Greeter {
    const KIND: &'static str = "my-project";

    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        ctx.periodic(Duration::from_secs(self.every_seconds), || async {
            ctx.log(&format!("hello {}", self.whom));
            ctx.emit(json!({ "hello": self.whom })).await
        })
        .await
    }
}

fn main() -> ExitCode {
    Service::new().observer::<Greeter>().main()
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwatch::testing::Trial;

    #[tokio::test(start_paused = true)]
    async fn it_greets_until_it_is_stopped() {
        let mut trial = Trial::start(Greeter {
            whom: "you".to_owned(),
            every_seconds: 5,
        });
        assert_eq!(trial.emitted().await.unwrap(), json!({ "hello": "you" }));
        assert_eq!(trial.emitted().await.unwrap(), json!({ "hello": "you" }));
        assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Stopped);
    }
}
