//! Connections that others on the network can read.

use super::*;

#[test]
fn connections_without_tls_are_reported_beyond_loopback() {
    let listens = |facts: &mut Facts| facts.manager.listen = "0.0.0.0:7700".parse().ok();
    assert_eq!(found(listens), ["Warning api-plain this manager"]);
    let both = |facts: &mut Facts| {
        listens(facts);
        facts.manager.tls = true;
    };
    assert!(found(both).is_empty());
    let broker = |facts: &mut Facts| server(facts).plain_over_network = true;
    assert_eq!(found(broker), ["Warning broker-plain mq:5672"]);
    let database =
        |url: &'static str| found(move |facts| facts.manager.database = DatabaseLink::of(url, None));
    for url in [
        "postgres://u:secret@db/x",
        "postgres://db:5433/x?sslmode=require",
        "postgresql://db/x?sslmode=verify-ca&sslrootcert=/ca.crt",
        "postgres://localhost/x?host=10.0.0.7",
    ] {
        assert_eq!(database(url), ["Warning database-plain database"], "{url}");
    }
    for url in [
        "postgres://db/x?sslmode=verify-full",
        "postgres://localhost/x",
        "postgres://127.0.0.1:5433/x?sslmode=disable",
        "postgres://[::1]/x",
        "postgres:///x?host=/run/postgresql",
        "postgres://%2Frun%2Fpostgresql/x",
        "sqlite://x.db",
    ] {
        assert!(database(url).is_empty(), "{url}");
    }
    let mut facts = healthy();
    facts.manager.database = DatabaseLink::of("postgres://u:secret@db:1/x?sslkey=secret", Some("require"));
    let told = format!("{:?}", diagnose(&facts));
    assert!(told.contains("db:1 uses sslmode require") && !told.contains("secret"), "{told}");
}
