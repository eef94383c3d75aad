//! Who asks, while a request is handled: what happens meanwhile is recorded with it. A task-local, as a tracing
//! span is, because every handler would otherwise carry it to every place that tells an event.

use axum::extract::{ConnectInfo, Request};
use axum::http::{HeaderMap, HeaderName, header};
use axum::middleware::Next;
use axum::response::Response;
use everwatch_door::quota::Client;
use everwatch_store::By;
use std::net::{IpAddr, SocketAddr};

/// Says who asks. A claim of the client as long as no proxy sets it.
pub(crate) const WHO: HeaderName = HeaderName::from_static("everwatch-actor");
const TEXT_MAX: usize = 128;

tokio::task_local! {
    static BY: By;
    static PRINCIPAL: String;
}

/// The user whose request is handled now; `None` if the manager acts on its own.
pub(crate) fn by() -> Option<By> {
    BY.try_with(Clone::clone).ok()
}

/// How objects name the user whose request is handled now: its `everwatch-actor` header, or the address of its client.
pub(crate) fn name() -> Option<String> {
    by().and_then(|by| by.who.or(by.from))
}

/// Whom the limits of a manager count for the request that is handled now: its principal, or its address if requests need no
/// credentials.
pub(crate) fn client() -> Client {
    let address = || by()?.from?.parse::<IpAddr>().ok();
    PRINCIPAL.try_with(|name| Client::Principal(name.clone())).unwrap_or_else(|_| Client::from(address()))
}

/// Acts for the user of a request that another task handles.
pub(crate) fn on_behalf<T>(by: Option<By>, act: impl FnOnce() -> T) -> T {
    match by {
        Some(by) => BY.sync_scope(by, act),
        None => act(),
    }
}

/// Acts for a user or a part of the manager, until the future is done.
pub(crate) async fn acting<T>(by: By, act: impl Future<Output = T>) -> T {
    BY.scope(by, act).await
}

/// Handles a request of an authenticated principal: events name it, with what the client says about its user. `account` tells
/// principals of the same name apart.
pub(crate) async fn known_as<T>((name, account): (&str, String), handling: impl Future<Output = T>) -> T {
    let by = by().unwrap_or(By { who: None, from: None, with: None });
    let who = by.who.map_or_else(|| name.to_owned(), |claim| format!("{name} ({claim})"));
    PRINCIPAL.scope(account, BY.scope(By { who: Some(who), ..by }, handling)).await
}

/// Remembers who asks until the request is answered.
pub(crate) async fn remember(request: Request, next: Next) -> Response {
    let from = request.extensions().get::<ConnectInfo<SocketAddr>>().map(|ConnectInfo(addr)| addr.ip());
    let from = from.map(|addr| addr.to_canonical().to_string());
    let by =
        By { who: text(request.headers(), &WHO), from, with: text(request.headers(), &header::USER_AGENT) };
    BY.scope(by, next.run(request)).await
}

/// Printable and short, whatever was sent.
fn text(headers: &HeaderMap, name: &HeaderName) -> Option<String> {
    let sent = headers.get(name)?.to_str().ok()?.trim();
    (!sent.is_empty()).then(|| sent.chars().take(TEXT_MAX).collect())
}
