//! Requests of one principal beyond its rate.

use super::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_principal_that_sends_too_many_requests_is_told_to_wait_wherever_they_come_from() {
    let dir = tempfile::tempdir().unwrap();
    let requests_per_second = std::num::NonZeroU32::new(10);
    let auth = crate::AuthSettings { requests_per_second, ..crate::AuthSettings::default() };
    let stage = Stage::guarded_with(dir.path(), auth).await;
    let (flooding, calm) = (stage.token("flooding", "admin").await, stage.token("calm", "viewer").await);
    let mut from = (1..=255).cycle().map(|last| std::net::SocketAddr::from(([10, 0, 0, last], 9)));
    let mut sent = async |token: &str, method: &str, path: &str| {
        let request = Request::builder().method(method).uri(path);
        let request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
        let peer = axum::extract::ConnectInfo(from.next().unwrap());
        stage.ask(request.extension(peer).body(Body::empty()).unwrap()).await
    };
    let mut admitted = 0;
    let refused = loop {
        let answer = sent(&flooding, "DELETE", "/v1/observers/none").await;
        if answer.status == 429 {
            break answer;
        }
        admitted += 1;
    };
    assert!(admitted >= 20, "a burst of two seconds: {admitted}");
    assert_eq!(refused.headers["retry-after"], "1");
    assert!(refused.refused(429, "too-many-requests").detail.contains("auth.requests_per_second"));
    assert_eq!(sent(&calm, "GET", "/v1/observers").await.status, 200, "others are still served");
    let audit = stage.sent_by(BOOTSTRAP, "GET", "/v1/audit?limit=1000", None).await;
    let entries = audit.read::<Listed<AuditEntry>>(200).items;
    let noted = entries.iter().filter(|it| it.principal.as_deref() == Some("flooding")).count();
    assert_eq!(noted, admitted, "a refused request is not written");
}
