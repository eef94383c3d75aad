//! Hostile clients at the listeners of managers and services: whatever they send or hold open, observers keep running
//! and users get answers.

use everwatch_api::{Listed, Observer};
use everwatch_tests::beacons;
use everwatch_tests::cluster::Cluster;
use everwatch_tests::http::{Api, holder};
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use serde_json::json;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpSocket, TcpStream};
use tokio::task::JoinSet;

/// How long the hostile clients go on.
const SIEGE: Duration = Duration::from_secs(20);
/// Connections that request the event stream and then stop reading.
const IDLE_STREAMS: usize = 10_000;
/// How long a user may wait for an answer during the attack, which also keeps the machine busy.
const ANSWERED_WITHIN: Duration = Duration::from_secs(5);
/// The most memory that a manager may have taken at the end, in KiB.
const MEMORY_MAX: u64 = 800 * 1024;

/// Connects from a separate loopback address, so that hostile clients do not share the limits of ordinary users.
async fn connect(to: SocketAddr, from: u8) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.bind((Ipv4Addr::new(127, 0, 9, from), 0).into())?;
    socket.connect(to).await
}

/// Sends a text, then one byte each second until the server closes the connection.
async fn drip(to: SocketAddr, from: u8, text: String) -> io::Result<()> {
    let mut stream = connect(to, from).await?;
    stream.write_all(text.as_bytes()).await?;
    let mut ticks = tokio::time::interval(Duration::from_secs(1));
    loop {
        ticks.tick().await;
        stream.write_all(b"x").await?;
    }
}

/// Sends requests and reads no answers.
async fn ask_only(to: SocketAddr, from: u8, path: &str) -> io::Result<()> {
    let mut stream = connect(to, from).await?;
    let request = format!("GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n");
    loop {
        stream.write_all(request.as_bytes()).await?;
    }
}

/// Sends a body again and again; counts the answers by status.
async fn send(
    to: SocketAddr,
    from: u8,
    (path, body): (&str, &[u8]),
    refused: &AtomicUsize,
) -> io::Result<()> {
    loop {
        let mut stream = connect(to, from).await?;
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\n\
             Content-Length: {length}\r\n\r\n"
        );
        stream.write_all(head.as_bytes()).await?;
        stream.write_all(body).await?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await?;
        assert!(
            answer.starts_with("HTTP/1.1 422 ") || answer.starts_with("HTTP/1.1 503 "),
            "{path}: {answer}"
        );
        refused.fetch_add(1, Ordering::Relaxed);
    }
}

/// Opens one stream of events, reads the status and then idles; `true` if the stream was let in.
async fn idle_stream(to: SocketAddr, from: u8) -> io::Result<(TcpStream, bool)> {
    let mut stream = connect(to, from).await?;
    stream
        .write_all(b"GET /v1/events HTTP/1.1\r\nHost: 127.0.0.1\r\nAccept: text/event-stream\r\n\r\n")
        .await?;
    let mut head = [0; 12];
    stream.read_exact(&mut head).await?;
    Ok((stream, &head == b"HTTP/1.1 200"))
}

fn address(url: &str) -> SocketAddr {
    url.trim_start_matches("http://").parse().unwrap()
}

/// The most memory that a process had, in KiB.
fn peak(pid: i32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

fn besiege_manager(attackers: &mut JoinSet<io::Result<()>>, manager: SocketAddr, refused: &Arc<AtomicUsize>) {
    for from in 10..13 {
        for _ in 0..100 {
            let head = "GET / HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ".to_owned();
            attackers.spawn(drip(manager, from, head));
        }
        for _ in 0..20 {
            let post = "POST /v1/observers HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n\
                Content-Length: 1000000\r\n\r\n[";
            attackers.spawn(drip(manager, from, post.to_owned()));
            attackers.spawn(ask_only(manager, from, "/openapi.json"));
        }
    }
    let deep: Arc<[u8]> = vec![b'['; 1_000_000].into();
    let long: Arc<[u8]> = format!("[{}0]", "0,".repeat(8_000_000)).into_bytes().into();
    for (path, body) in [("/v1/observers", deep), ("/v1/observers:batch", long)] {
        for from in [20, 21] {
            let (body, refused) = (Arc::clone(&body), Arc::clone(refused));
            attackers.spawn(async move { send(manager, from, (path, &body), &refused).await });
        }
    }
}

fn besiege_service(attackers: &mut JoinSet<io::Result<()>>, service: SocketAddr) {
    for from in 30..33 {
        for _ in 0..50 {
            attackers.spawn(drip(
                service,
                from,
                "GET /livez HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Slow: ".to_owned(),
            ));
        }
        for _ in 0..5 {
            attackers.spawn(ask_only(service, from, "/metrics"));
        }
    }
}

/// The longest time that a user waited for the console, a list and a change, requested one after another
/// until the end.
async fn users_ask(api: &Api, until: Instant) -> Duration {
    let mut slowest = Duration::ZERO;
    for round in 0.. {
        if Instant::now() > until {
            break;
        }
        let (asked, name) = (Instant::now(), format!("user-{round}"));
        assert_eq!(api.call("GET", "/", None).await.0, 200);
        assert!(api.read::<Listed<Observer>>("/v1/observers?limit=10").await.total >= 10);
        let body = json!({"name": name, "kind": "ticker", "on_full": "queue"});
        api.create(body).await;
        assert_eq!(api.call("DELETE", &format!("/v1/observers/{name}"), None).await.0, 202);
        slowest = slowest.max(asked.elapsed() / 4);
    }
    slowest
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::print_stdout, reason = "the figures are the point")]
async fn hostile_clients_disturb_neither_observers_nor_users() {
    let (_, most) = getrlimit(Resource::RLIMIT_NOFILE).unwrap();
    setrlimit(Resource::RLIMIT_NOFILE, most, most).unwrap();
    let mut cluster = Cluster::new("door").with_test_kinds();
    cluster.manager().await;
    for name in ["a", "b", "c"] {
        cluster.service(name, 20).await;
        cluster.until_ready(name).await;
    }
    let (api, folder) = (cluster.api.clone(), cluster.folder("beacons"));
    for number in 0..12 {
        let spec = json!({"folder": folder});
        api.create(json!({"name": format!("o{number}"), "kind": "beacon", "spec": spec})).await;
    }
    for number in 0..12 {
        api.until_status(&format!("o{number}"), "Processing").await;
    }
    // The broker may have delivered all observers to one service.
    let holds = holder(&api.observer("o0").await).unwrap().to_owned();
    let besieged: Vec<_> = ["a", "b", "c"].into_iter().filter(|name| *name != holds).collect();
    let manager = address(&api.url);
    let (mut attackers, mut streams) = (JoinSet::new(), JoinSet::new());
    let refused = Arc::new(AtomicUsize::new(0));
    for number in 0..IDLE_STREAMS {
        streams.spawn(idle_stream(manager, u8::try_from(1 + number % 8).unwrap()));
    }
    let open: Vec<_> = streams.join_all().await.into_iter().flatten().collect();
    let let_in = open.iter().filter(|(_, let_in)| *let_in).count();
    besiege_manager(&mut attackers, manager, &refused);
    for name in &besieged {
        besiege_service(&mut attackers, cluster.health_address(name).parse().unwrap());
    }
    let until = Instant::now() + SIEGE;
    let first = users_ask(&api, Instant::now() + SIEGE / 2).await;
    let path = format!("/v1/observers?limit=100&kind=beacon&service={holds}");
    let held = api.list::<Observer>(&path).await.len();
    let killed = jiff::Timestamp::now().as_millisecond();
    cluster.kill(&holds);
    let slowest = first.max(users_ask(&api, until).await);
    let pid = cluster.family("manager")[0];
    println!(
        "{} of {IDLE_STREAMS} idle streams connected, {let_in} let in; {} bodies refused; slowest answer {slowest:?}; \
         manager at most {} MiB",
        open.len(),
        refused.load(Ordering::Relaxed),
        peak(pid) / 1024
    );
    assert!(let_in <= 2_000 && refused.load(Ordering::Relaxed) > 10);
    assert!(slowest <= ANSWERED_WITHIN, "a user waited {slowest:?} for an answer");
    assert!(peak(pid) <= MEMORY_MAX, "the manager took {} KiB", peak(pid));
    attackers.shutdown().await;
    drop(open);

    for name in &besieged {
        let registered = cluster.full_log(name).matches(" registered service=").count();
        assert_eq!(registered, 1, "{name} fenced itself and came back: {}", cluster.log(name));
    }
    let mut moved = 0;
    beacons::judge("besieged", &folder, |_| 0);
    for (name, runs) in beacons::read(&folder) {
        let early = runs.windows(2).filter(|pair| pair[1].first < killed).count();
        assert_eq!(early, 0, "{name} moved before any service was killed: {runs:?}");
        moved += runs.len() - 1;
    }
    assert_eq!(moved, held, "what the killed service held has moved, and nothing else");
}
