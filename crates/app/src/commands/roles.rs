//! `everwatch run manager|service`: runs a role; the first signal stops it gracefully, the second at once.

use crate::cli::Role;
use everwatch::dev::Settings;
use everwatch::host::{self, Teller, on_signals};
use everwatch::kinds::built_in;
use std::path::Path;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

pub(crate) fn configured(config: Option<&Path>) -> anyhow::Result<Settings> {
    Ok(Settings::load(config)?)
}

pub(crate) fn run(config: Option<&Path>, role: Role) -> anyhow::Result<()> {
    let settings = configured(config)?;
    let instance = settings.service.instance();
    let teller = match role {
        Role::Manager { .. } => Teller { role: "everwatch-manager", instance: &settings.manager.listen },
        Role::Service => Teller { role: "everwatch-service", instance: &instance },
    };
    let _telling = host::init_telemetry(&settings.log, &settings.telemetry, teller)?;
    match role {
        Role::Manager { adopt } => manager(&settings, adopt),
        Role::Service => service(&settings),
    }
}

fn manager(settings: &Settings, adopt: bool) -> anyhow::Result<()> {
    let mut manager = settings.manager()?;
    manager.adopt = adopt;
    let broker = Arc::new(settings.broker.for_manager()?);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    runtime.block_on(async {
        let (stop, hard) = (CancellationToken::new(), CancellationToken::new());
        let work = async {
            let opening = settings.store.open(settings.manager.row_policy(), &stop);
            let listening = |address| tracing::info!(%address, "listening");
            everwatch_manager::run(manager, opening, broker, axum::Router::new(), stop.clone(), listening)
                .await?;
            anyhow::Ok(())
        };
        tokio::select! {
            ended = work => ended,
            Err(error) = on_signals(stop.clone(), hard.clone()) => Err(error.into()),
            () = hard.cancelled() => Ok(()),
        }
    })
}

fn service(settings: &Settings) -> anyhow::Result<()> {
    let registry =
        built_in(settings.service.kind_settings(&settings.broker)).secrets(settings.service.secrets());
    Ok(host::run(&settings.broker, &settings.service, registry)?)
}
