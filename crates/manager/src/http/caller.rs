//! The principal of the request that is handled now, and the verbs of its route. A task-local, like the actor of events: the
//! functions that read an observer, service or pool for a response check it, so that no handler can forget to.

use super::problem::{Code, Problem};
use everwatch_core::access::{Principal, Rights, Scope, Target, Verb};
use everwatch_core::id::{Kind, Name, Namespace, Pool};
use everwatch_core::observer::definition::ObserverDefinition;
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

/// Whether such observers may be created.
pub(super) fn may_create(namespace: &Namespace, pool: &Pool, kind: &Kind) -> bool {
    permits(Verb::ObserversCreate, Target::Observer(namespace, pool, kind))
}

/// The observers that may be shown.
pub(super) fn scope() -> Scope {
    current().principal.and_then(|who| who.rights.scope(Verb::ObserversRead))
}

/// The namespace of names in a request that names none: the only one of the sender, otherwise `default`.
pub(super) fn namespace() -> Namespace {
    current().principal.and_then(|who| who.namespace().cloned()).unwrap_or_default()
}

fn target(definition: &ObserverDefinition) -> Target<'_> {
    Target::Observer(&definition.namespace, &definition.pool, &definition.kind)
}

/// An observer, as refusals name it.
fn told(definition: &ObserverDefinition) -> String {
    let ObserverDefinition { namespace, pool, kind, .. } = definition;
    let within = if namespace.is_default() { String::new() } else { format!(" of namespace {namespace}") };
    format!(" on kind {kind} in pool {pool}{within}")
}

/// Whether the specs of such observers may be shown.
pub(super) fn may_read_spec(definition: &ObserverDefinition) -> bool {
    permits(Verb::SpecsRead, target(definition))
}

/// Whether the specs of all observers may be shown.
pub(super) fn may_read_all_specs() -> bool {
    permits(Verb::SpecsRead, Target::Deployment)
}

/// Whether this observer may be shown.
pub(super) fn may_see(row: &Row) -> bool {
    permits(Verb::ObserversRead, target(&row.definition))
}

/// Whether services of this pool may be shown.
pub(super) fn may_see_services(pool: &Pool) -> bool {
    permits(Verb::ServicesRead, Target::Pool(pool))
}

/// Whether this pool may be shown.
pub(super) fn may_see_pool(pool: &Pool) -> bool {
    permits(Verb::PoolsRead, Target::Pool(pool))
}

/// Whether rollouts may be shown.
pub(super) fn may_read_rollouts() -> bool {
    permits(Verb::RolloutsRead, Target::Deployment)
}

/// Refuses what the sender may not do to such an observer, by the verb of the route.
pub(super) fn check_observer(definition: &ObserverDefinition) -> Result<(), Problem> {
    check(target(definition), || told(definition))
}

/// Whether the sender may do this in a namespace.
pub(super) fn may_in(verb: Verb, namespace: &Namespace) -> bool {
    permits(verb, Target::Namespace(namespace))
}

/// Refuses what the sender may not do in a namespace, by the verb of the route.
pub(super) fn check_namespace(namespace: &Namespace) -> Result<(), Problem> {
    check(Target::Namespace(namespace), || format!(" in namespace {namespace}"))
}

/// Refuses what the sender may not do to such an observer.
pub(super) fn check_verb(verb: Verb, definition: &ObserverDefinition) -> Result<(), Problem> {
    if permits(verb, target(definition)) {
        return Ok(());
    }
    Err(forbidden(&[verb], &told(definition)))
}

/// Refuses what the sender may not do to a pool or its services, by the verb of the route.
pub(super) fn check_pool(pool: &Pool) -> Result<(), Problem> {
    check(Target::Pool(pool), || format!(" on pool {pool}"))
}

/// Refuses a sender who may not see the services of a pool.
pub(super) fn check_services(pool: &Pool) -> Result<(), Problem> {
    if may_see_services(pool) {
        return Ok(());
    }
    Err(forbidden(&[Verb::ServicesRead], &format!(" on pool {pool}")))
}

/// Refuses what the sender may not do to all pools, by the verb of the route.
pub(super) fn check_all_pools() -> Result<(), Problem> {
    check(Target::Deployment, || " on all pools: name one pool".to_owned())
}

/// Refuses a request that the sender may not make for the whole deployment.
pub(super) fn check_deployment(verb: Verb, what: &str) -> Result<(), Problem> {
    if permits(verb, Target::Deployment) { Ok(()) } else { Err(forbidden(&[verb], what)) }
}

fn check(target: Target<'_>, what: impl FnOnce() -> String) -> Result<(), Problem> {
    let Caller { verbs, .. } = current();
    if verbs.is_empty() || verbs.iter().any(|verb| permits(*verb, target)) {
        return Ok(());
    }
    Err(forbidden(&verbs, &what()))
}

/// Refuses to give or take away rights that the sender does not have.
pub(super) fn check_covers(role: &Name, rights: &Rights) -> Result<(), Problem> {
    if principal().is_none_or(|who| who.rights.cover(rights)) {
        return Ok(());
    }
    let detail =
        format!("the role {role} permits more than your role does: you can give only rights that you have");
    Err(Problem::new(Code::Forbidden, detail))
}

/// Says which right is missing.
pub(super) fn forbidden(verbs: &[Verb], what: &str) -> Problem {
    let verbs = verbs.iter().map(|verb| verb.as_str()).collect::<Vec<_>>().join(" or ");
    let role = principal().map_or_else(|| "your role".to_owned(), |who| format!("the role {}", who.role));
    Problem::new(Code::Forbidden, format!("{role} does not permit {verbs}{what}"))
}
