//! Trials of observers.

use super::*;
use crate::kinds::{ExecSettings, Ticker};

#[tokio::test]
async fn a_ticker_ticks_until_it_is_stopped() {
    let ticker: Ticker = serde_json::from_str(r#"{"every": "10ms"}"#).unwrap();
    let mut trial = Trial::start(ticker);
    assert_eq!(trial.emitted().await.unwrap()["tick"], 1);
    assert_eq!(trial.emitted().await.unwrap()["tick"], 2);
    assert_eq!(trial.logged()[..2], ["tick 1", "tick 2"]);
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
}

#[derive(serde::Deserialize, schemars::JsonSchema)]
struct Talks {}

impl Observer for Talks {
    const KIND: &'static str = "talks";
    async fn run(self, ctx: Context) -> Result<Exit, Error> {
        ctx.log("said\nby itself");
        tracing::info!(size = 3, "looked");
        tracing::debug!("not asked for");
        tokio::task::yield_now().await;
        tracing::info!(target: crate::tasks::logs::OUTPUT, "kept already");
        tracing::warn!("it is late");
        Ok(Exit::Done)
    }
}

#[tokio::test]
async fn what_is_logged_and_what_is_traced_are_lines() {
    use tracing_subscriber::layer::SubscriberExt as _;
    let log = tracing_subscriber::fmt().with_writer(std::io::sink).finish();
    let _here = tracing::subscriber::set_default(log.with(crate::tasks::log_capture::LogCaptureLayer));
    let mut trial = Trial::start(Talks {});
    tracing::info!("by nobody");
    assert_eq!(trial.ended().await.unwrap().unwrap(), Exit::Done);
    assert_eq!(trial.logged(), ["said", "by itself", "INFO looked size=3", "WARN it is late"]);
}

#[tokio::test]
async fn exec_refuses_what_is_not_allowed_and_names_the_cure() {
    let exec: crate::kinds::Exec = serde_json::from_str(r#"{"argv": ["/bin/true"]}"#).unwrap();
    let settings = ExecSettings { allow: vec!["/bin/false".to_owned()], ..ExecSettings::default() };
    let mut trial = Trial::builder(exec).share(settings).start();
    let Exit::Failed(reason) = trial.ended().await.unwrap().unwrap() else { panic!("it ran") };
    assert!(reason.contains("/bin/true") && reason.contains("[service.exec] allow"), "{reason}");
}
