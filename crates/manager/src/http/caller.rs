//! The principal of the request that is handled now, and the verbs of its route. A task-local, like the actor of events: the
//! functions that read an observer, service or pool for a response check it, so that no handler can forget to.

use super::problem::{Code, Problem};
use everwatch_core::access::{Principal, Role, Scope, Target, Verb};
use everwatch_core::id::{Kind, Pool};
use everwatch_core::record::row::Row;
use std::sync::Arc;

/// The sender of a request, and the verbs of its route.
#[derive(Debug, Clone, Default)]
pub(crate) struct Caller {
    /// `None`: requests need no token.
    pub(super) principal: Option<Arc<Principal>>,
    /// The verbs of the route: one of them is needed. Empty: any authenticated principal may use it.
    pub(super) verbs: Vec<Verb>,
}

tokio::task_local! {
    static CALLER: Caller;
}

/// Handles a request on behalf of its sender.
pub(super) async fn calling<T>(caller: Caller, handling: impl Future<Output = T>) -> T {
    CALLER.scope(caller, handling).await
}

fn current() -> Caller {
    CALLER.try_with(Clone::clone).unwrap_or_default()
}

/// The sender; `None` if requests need no token.
pub(super) fn principal() -> Option<Arc<Principal>> {
    current().principal
}

fn permits(verb: Verb, target: Target<'_>) -> bool {
    current().principal.is_none_or(|who| who.rights.permits(verb, target))
}

/// The observers that may be shown.
pub(super) fn scope() -> Scope {
    current().principal.and_then(|who| who.rights.scope(Verb::ObserversRead))
}

/// Whether the specs of such observers may be shown.
pub(super) fn may_read_spec(pool: &Pool, kind: &Kind) -> bool {
    permits(Verb::SpecsRead, Target::Observer(pool, kind))
}

/// Whether the specs of all observers may be shown.
pub(super) fn may_read_all_specs() -> bool {
    permits(Verb::SpecsRead, Target::Deployment)
}

/// Whether this observer may be shown.
pub(super) fn may_see(row: &Row) -> bool {
    permits(Verb::ObserversRead, Target::Observer(&row.definition.pool, &row.definition.kind))
}

/// Whether services of this pool may be shown.
pub(super) fn may_see_services(pool: &Pool) -> bool {
    permits(Verb::ServicesRead, Target::Pool(pool))
}

/// Whether this pool may be shown.
pub(super) fn may_see_pool(pool: &Pool) -> bool {
    permits(Verb::PoolsRead, Target::Pool(pool))
}

/// Refuses what the sender may not do to such an observer, by the verb of the route.
pub(super) fn check_observer(pool: &Pool, kind: &Kind) -> Result<(), Problem> {
    check(Target::Observer(pool, kind), || format!(" on kind {kind} in pool {pool}"))
}

/// Refuses what the sender may not do to such an observer.
pub(super) fn check_verb(verb: Verb, pool: &Pool, kind: &Kind) -> Result<(), Problem> {
    if permits(verb, Target::Observer(pool, kind)) {
        return Ok(());
    }
    Err(forbidden(&[verb], &format!(" on kind {kind} in pool {pool}")))
}

/// Refuses what the sender may not do to a pool or its services, by the verb of the route.
pub(super) fn check_pool(pool: &Pool) -> Result<(), Problem> {
    check(Target::Pool(pool), || format!(" on pool {pool}"))
}

/// Refuses what the sender may not do to all pools, by the verb of the route.
pub(super) fn check_all_pools() -> Result<(), Problem> {
    check(Target::Deployment, || " on all pools: name one pool".to_owned())
}

fn check(target: Target<'_>, what: impl FnOnce() -> String) -> Result<(), Problem> {
    let Caller { verbs, .. } = current();
    if verbs.is_empty() || verbs.iter().any(|verb| permits(*verb, target)) {
        return Ok(());
    }
    Err(forbidden(&verbs, &what()))
}

/// Refuses to give or take away rights that the sender does not have.
pub(super) fn check_covers(role: &Role) -> Result<(), Problem> {
    if principal().is_none_or(|who| who.rights.cover(&role.rights())) {
        return Ok(());
    }
    let detail = format!(
        "the role {} permits more than your role does: you can give only rights that you have",
        role.name
    );
    Err(Problem::new(Code::Forbidden, detail))
}

/// Says which right is missing.
pub(super) fn forbidden(verbs: &[Verb], what: &str) -> Problem {
    let verbs = verbs.iter().map(|verb| verb.as_str()).collect::<Vec<_>>().join(" or ");
    let role = principal().map_or_else(|| "your role".to_owned(), |who| format!("the role {}", who.role));
    Problem::new(Code::Forbidden, format!("{role} does not permit {verbs}{what}"))
}
