//! Tests of `postgres-listen` with a real server, which the tests also kill.

use super::*;
use crate::kinds::trial::Kept;
use crate::kinds::trial::{shared, start, until, until_logged, with};
use crate::testing::Trial;
use sqlx::{Connection as _, Executor as _, PgConnection};
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

/// A server of the test's own.
struct Server {
    folder: tempfile::TempDir,
    url: String,
    kept: Arc<Kept>,
}

impl Server {
    fn new() -> Self {
        let folder = tempfile::Builder::new().prefix("everwatch-postgres").tempdir().unwrap();
        // The server runs as a user of its own.
        let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(folder.path(), open).unwrap();
        let mut this = Self { folder, url: String::new(), kept: Arc::default() };
        this.url = this.script("start");
        this
    }
    fn script(&self, verb: &str) -> String {
        let script = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../tests/postgres");
        let done = Command::new(script).arg(verb).arg(self.folder.path().join("data")).output().unwrap();
        assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
        String::from_utf8(done.stdout).unwrap().trim().to_owned()
    }
    async fn client(&self) -> PgConnection {
        PgConnection::connect(&self.url).await.unwrap()
    }
    fn start(&self, more: Value) -> Trial {
        let reconnect = json!({"first": "50ms", "max": "200ms", "attempts": 100});
        let spec = with(json!({"url": self.url, "reconnect": reconnect}), more);
        let any = PostgresSettings { allow: vec!["*".to_owned()] };
        let files = FilesSettings { read: vec!["*".to_owned()], write: Vec::new() };
        start::<PostgresListen>(spec, &self.kept, vec![shared(any), shared(files)])
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.script("kill");
    }
}

async fn told(mut trial: Trial) -> String {
    let ended = trial.ended().await.unwrap();
    ended.map_or_else(|error| error.to_string(), |exit| format!("{exit:?}"))
}

/// Notifies until the observer, which may still be connecting, emits this payload.
async fn until_notified(client: &mut PgConnection, trial: &mut Trial, payload: &str) {
    let begun = tokio::time::Instant::now();
    loop {
        assert!(begun.elapsed() < Duration::from_secs(20), "`{payload}` is not emitted");
        let notify = sqlx::query("SELECT pg_notify('plain', $1)").bind(payload.to_owned());
        notify.execute(&mut *client).await.unwrap();
        let next = tokio::time::timeout(Duration::from_millis(200), trial.emitted()).await;
        if let Ok(emitted) = next
            && emitted.unwrap()["payload"] == payload
        {
            return;
        }
    }
}

#[tokio::test]
async fn notifications_are_emitted_also_after_the_server_was_killed() {
    let server = Server::new();
    let mut trial = server.start(json!({"channels": ["plain", "Two words"], "json": true}));
    until("readiness", || server.kept.is_ready()).await;
    let mut client = server.client().await;
    client.execute("NOTIFY plain, 'a text'").await.unwrap();
    client.execute("NOTIFY \"Two words\", '{\"of\": 1}'").await.unwrap();
    client.execute("NOTIFY other, 'not asked for'").await.unwrap();
    client.execute("NOTIFY plain").await.unwrap();
    assert_eq!(trial.emitted().await.unwrap(), json!({"channel": "plain", "payload": "a text"}));
    assert_eq!(trial.emitted().await.unwrap(), json!({"channel": "Two words", "payload": {"of": 1}}));
    assert_eq!(trial.emitted().await.unwrap(), json!({"channel": "plain", "payload": ""}));
    // Its backend is ended, and then the whole server.
    client
        .execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'everwatch'",
        )
        .await
        .unwrap();
    until_logged(&trial, "connecting again in").await;
    until_notified(&mut client, &mut trial, "second").await;
    let lost = || trial.logged().iter().filter(|line| line.contains("connecting again in")).count();
    let before = lost();
    server.script("kill");
    until("another loss", || lost() > before).await;
    server.script("start");
    until_notified(&mut server.client().await, &mut trial, "third").await;
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
}

#[tokio::test]
async fn rows_beyond_the_watermark_are_emitted_once_across_runs() {
    let server = Server::new();
    let mut client = server.client().await;
    client.execute("CREATE TABLE orders (id bigint PRIMARY KEY, name text)").await.unwrap();
    client
        .execute("INSERT INTO orders SELECT id, 'n' || id FROM generate_series(1, 25) AS id")
        .await
        .unwrap();
    let query = json!({"sql": "SELECT id, name FROM orders WHERE id > $1::bigint ORDER BY id;", "watermark": "id",
        "batch": 10, "every": "1h", "start": "2"});
    let spec = json!({"channels": ["orders"], "query": query});
    let mut trial = server.start(spec.clone());
    for id in 3..=25 {
        assert_eq!(trial.emitted().await.unwrap(), json!({"id": id, "name": format!("n{id}")}));
    }
    until("readiness", || server.kept.is_ready()).await;
    // A notification makes the query run at once.
    client.execute("INSERT INTO orders VALUES (100, 'late'); NOTIFY orders").await.unwrap();
    assert_eq!(trial.emitted().await.unwrap()["id"], 100);
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
    assert_eq!(server.kept.value().unwrap(), json!({"watermark": "100"}));
    client.execute("INSERT INTO orders VALUES (101, 'missed')").await.unwrap();
    let mut trial = server.start(spec);
    assert_eq!(trial.emitted().await.unwrap()["id"], 101);
    assert_eq!(trial.stop().await.unwrap().unwrap(), Exit::Done);
}

#[tokio::test]
async fn a_wrong_query_ends_the_attempt_with_its_reason() {
    let server = Server::new();
    let mut client = server.client().await;
    client
        .execute("CREATE TABLE t (id bigint, same int); INSERT INTO t VALUES (1, 7), (2, 7), (3, NULL)")
        .await
        .unwrap();
    for (sql, watermark, expected) in [
        (
            "SELECT id FROM missing WHERE id > $1::bigint",
            "id",
            "`query`: relation \"missing\" does not exist",
        ),
        (
            "SELECT id FROM t WHERE id > $1::bigint ORDER BY id",
            "name",
            "`query`: column everwatch_row.name does not exist",
        ),
        ("SELECT id FROM t WHERE id > $1 ORDER BY id", "id", "`query`: operator does not exist"),
        ("SELECT same FROM t WHERE same > $1::int ORDER BY same", "same", "two rows have the watermark 7"),
        (
            "SELECT id, same FROM t WHERE $1 = '0' AND id = 3",
            "same",
            "`same` is null in {\"id\":3,\"same\":null}",
        ),
        ("DELETE FROM t WHERE $1 = '' RETURNING id", "id", "`query`: syntax error"),
        ("WITH d AS (DELETE FROM t WHERE $1 = '0' RETURNING id) SELECT id FROM d", "id", "`query`: "),
    ] {
        let query = json!({"sql": sql, "watermark": watermark, "batch": 1});
        let told = told(server.start(json!({ "query": query }))).await;
        assert!(told.contains(expected), "{sql}: {told}");
    }
    let left: i64 = sqlx::query_scalar("SELECT count(*) FROM t").fetch_one(&mut client).await.unwrap();
    assert_eq!(left, 3);
}

#[tokio::test]
async fn a_refusal_names_its_cure_and_no_password() {
    let server = Server::new();
    let (_, address) = server.url.rsplit_once('@').unwrap();
    let address = address.split('/').next().unwrap();
    let start_with = |url: String, allow: &[&str]| {
        let allow = allow.iter().map(|it| (*it).to_owned()).collect();
        let spec = json!({"url": url, "channels": ["x"]});
        told(start::<PostgresListen>(spec, &Arc::default(), vec![shared(PostgresSettings { allow })]))
    };
    for (url, allow, expected) in [
        (
            format!("postgres://me:hunter2@{address}/postgres"),
            vec![],
            format!("`{address}` is not in [service.postgres] allow"),
        ),
        (
            format!("postgres://me:hunter2@{address}/postgres"),
            vec![address],
            "role \"me\" does not exist".to_owned(),
        ),
        (
            format!("postgres://everwatch@{address}/other"),
            vec!["*"],
            "database \"other\" does not exist".to_owned(),
        ),
        (format!("postgres://{address}/postgres"), vec!["*"], "names no user".to_owned()),
        ("postgres://u@h".to_owned(), vec!["*"], "names no database".to_owned()),
        (
            "postgres://u@h/d?sslkey=/etc/passwd".to_owned(),
            vec!["*"],
            "parameter `sslkey` is not supported".to_owned(),
        ),
        ("postgres://u@h/d?sslmode=maybe".to_owned(), vec!["*"], "`maybe` is no sslmode".to_owned()),
    ] {
        let told = start_with(url, &allow).await;
        assert!(told.contains(&expected) && !told.contains("hunter2"), "{told}");
    }
    let told = told(start::<PostgresListen>(json!({"url": server.url}), &Arc::default(), Vec::new())).await;
    assert!(told.contains("set `channels`, `query` or both"), "{told}");
}

#[tokio::test]
async fn a_server_that_says_nothing_is_left_after_a_while() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("postgres://u@{}/d", listener.local_addr().unwrap());
    let any = PostgresSettings { allow: vec!["*".to_owned()] };
    let spec = json!({"url": url, "channels": ["x"], "timeout": "200ms", "reconnect": {"attempts": 1}});
    let told = told(start::<PostgresListen>(spec, &Arc::default(), vec![shared(any)])).await;
    assert!(told.contains("no answer within `timeout`, 200ms") || told.contains("no connection"), "{told}");
}
