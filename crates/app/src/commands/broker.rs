//! `everwatch broker`: how to set up RabbitMQ. Connects to nothing.

use crate::cli::Broker;
use crate::output::print;
use everwatch::dev::Settings;
use everwatch_broker::Permissions;

pub(crate) fn run(settings: &Settings, verb: &Broker) -> anyhow::Result<()> {
    let Broker::Permissions { pools, vhost } = verb;
    let prefix = &settings.broker.prefix;
    let vhost = match vhost {
        Some(vhost) => vhost.clone(),
        None => settings.broker.inspectable()?.vhost(),
    };
    let deployment = prefix.trim_end_matches(['.', '-', '_']);
    let deployment = if deployment.is_empty() { "everwatch" } else { deployment };
    let mut users = vec![(
        "# The user of the managers".to_owned(),
        format!("{deployment}-manager"),
        Permissions::of_managers(prefix),
    )];
    users.extend(pools.iter().map(|pool| {
        let title = format!("# The user of the services of pool {pool}");
        (title, format!("{deployment}-service-{pool}"), Permissions::of_services(prefix, pool))
    }));
    let paragraphs: Vec<String> = users
        .into_iter()
        .map(|(title, user, permissions)| {
            [vec![title], permissions.commands(&vhost, &user)].concat().join("\n")
        })
        .collect();
    print(&paragraphs.join("\n\n"));
    Ok(())
}
