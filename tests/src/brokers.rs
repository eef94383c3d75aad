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
    given_brokers().into_iter().map(|(version, url, _)| (version, url)).collect()
}

/// Version, AMQP URL and, where it is given, the URL of RabbitMQ's HTTP API.
fn given_brokers() -> Vec<(String, String, Option<String>)> {
    let given = std::env::var("EVERWATCH_TEST_BROKERS").unwrap_or_default();
    let one = |text: &str| {
        let (version, urls) = text.split_once('=').expect("EVERWATCH_TEST_BROKERS is version=url,...");
        let (url, management_url) = match urls.split_once('|') {
            Some((url, management_url)) => (url, Some(management_url.to_owned())),
            None => (urls, None),
        };
        (version.trim().to_owned(), url.to_owned(), management_url)
    };
    given.split(',').filter(|text| !text.is_empty()).map(one).collect()
}

/// RabbitMQ's HTTP API of a broker that the environment names.
pub(crate) fn management_url_of(broker_url: &str) -> Option<String> {
    if broker_url == from_environment("EVERWATCH_TEST_AMQP_URL") {
        return Some(from_environment("EVERWATCH_TEST_MANAGEMENT_URL"));
    }
    given_brokers().into_iter().find(|(_, url, _)| url == broker_url)?.2
}
