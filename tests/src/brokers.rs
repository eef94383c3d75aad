//! The brokers and other servers that `tests/run` prepares, as the environment names them.

/// A URL from the environment that `tests/run` prepares.
pub fn from_environment(variable: &str) -> String {
    std::env::var(variable).unwrap_or_else(|_| panic!("{variable} is not set: run ./tests/run"))
}

/// The default broker, then every further version that is given, each with its label.
pub fn brokers() -> Vec<(String, String)> {
    let mut all = vec![("default".to_owned(), from_environment("EVERWATCH_TEST_AMQP_URL"))];
    all.extend(further_brokers());
    all
}

/// The versions that are given besides the default broker.
pub fn further_brokers() -> Vec<(String, String)> {
    urls("EVERWATCH_TEST_BROKERS")
}

/// The URLs of a variable, each with its version.
fn urls(variable: &str) -> Vec<(String, String)> {
    let given = std::env::var(variable).unwrap_or_default();
    let one = |text: &str| {
        let (version, url) = text.split_once('=').unwrap_or_else(|| panic!("{variable} is version=url,..."));
        (version.trim().to_owned(), url.to_owned())
    };
    given.split(',').filter(|text| !text.is_empty()).map(one).collect()
}

/// RabbitMQ's HTTP API of a broker that the environment names.
pub(crate) fn management_url_of(broker_url: &str) -> Option<String> {
    if broker_url == from_environment("EVERWATCH_TEST_AMQP_URL") {
        return Some(from_environment("EVERWATCH_TEST_MANAGEMENT_URL"));
    }
    let (version, _) = further_brokers().into_iter().find(|(_, url)| url == broker_url)?;
    let all = urls("EVERWATCH_TEST_BROKERS_MANAGEMENT");
    all.into_iter().find(|(of, _)| *of == version).map(|(_, management_url)| management_url)
}
