//! Rollouts over HTTP: start, read, and steer them. `loops::rollouts` takes their steps.

use super::body::{JsonBody, parsed};
use super::caller;
use super::filter::sort_value;
use super::idempotency::{self, Identities};
use super::limits;
use super::namespaces;
use super::pagination::Part;
use super::problem::{Code, Problem};
use super::query::{Params, bad};
use crate::context::Manager;
use crate::context::records::Records;
use crate::events::actor;
use crate::fleet::kind_check::{self, Unfit};
use axum::Json;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use everwatch_api::{Listed, NewRollout, ProblemBody, Rollout, RolloutMember, RolloutSelector};
use everwatch_core::clock::{parse_duration, show};
use everwatch_core::id::{Name, Namespace, RolloutId, RolloutRef};
use everwatch_core::observer::definition::FieldError;
use everwatch_core::record::row::{Desired, Row};
use everwatch_core::rollout::{
    ENDED_KEPT, HEALTHY_FOR_MIN, MEMBERS_MAX, Member, MemberState, NotNow, OPEN_MAX, PARALLEL_MAX,
    RolloutAction, RolloutState, Step, TIMEOUT_MAX, {self as core},
};
use everwatch_store::{Filter, ListCursor, MembersPart, RolloutCreated};
use serde_json::Value;
use std::collections::BTreeSet;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;
use tracing::info;
use uuid::Uuid;

type Shared = State<Arc<Manager>>;

/// As responses show it: without the patch, which may contain parts of specs, unless the role of the sender permits to read
/// specs.
fn shown(rollout: everwatch_core::rollout::Rollout) -> Rollout {
    let mut shown = Rollout::from(rollout);
    if !caller::may_read_all_specs() {
        shown.patch = Value::Null;
    }
    shown
}

const PAGE: usize = 1000;
const LIMIT_DEFAULT: usize = 20;
const LIMIT_MAX: usize = ENDED_KEPT + OPEN_MAX;

fn wrong(pointer: &str, detail: impl Into<String>) -> Problem {
    Problem::invalid(vec![FieldError { pointer: pointer.to_owned(), detail: detail.into() }])
}

/// Start a rollout: change all observers that match the selector by one patch, a few at a time.
///
/// The rollout takes its members, at most 10,000, when it starts. Managers change the next one only if fewer than
/// `max_parallel` are changed and not yet healthy.
#[utoipa::path(post, path = "/v1/rollouts", tag = "rollouts", security(("token" = ["rollouts:write"])), request_body = NewRollout,
    params(("dry_run" = Option<bool>, Query, description = "true: check the request, and start nothing; the name, and whether members are in other rollouts, are checked only at the start"),
    ("idempotency-key" = Option<String>, Header, description = "a request that is repeated with its key returns the rollout that the first one started")),
    responses((status = 201, body = Rollout), (status = 200, body = Rollout, description = "with `dry_run`: what would start"),
    (status = 400, body = ProblemBody, description = "bad-header, bad-query"),
    (status = 409, body = ProblemBody, description = "in-rollout, name-exists, too-many-rollouts"),
    (status = 422, body = ProblemBody, description = "idempotency-key-reused, limit-unknown, pool-not-allowed")))]
pub(crate) async fn start(
    State(manager): Shared,
    mut params: Params,
    headers: HeaderMap,
    JsonBody(body): JsonBody,
) -> Result<Response, Problem> {
    let dry_run = params.parsed("dry_run")?.unwrap_or(false);
    params.finish()?;
    let records = &manager.records;
    let wanted: NewRollout = parsed(body.clone())?;
    let draft = checked(wanted, &body)?;
    let filter = selected(&draft.selector)?;
    if dry_run {
        let members = members_of(&manager, &filter, &draft.patch).await?;
        let rollout = draft.rollout(RolloutId(Uuid::nil()), &body["selector"], records);
        return Ok(Json(shown(with_pending(rollout, &members))).into_response());
    }
    let members = if idempotency::is_used(records, &headers).await? {
        None
    } else {
        Some(members_of(&manager, &filter, &draft.patch).await?)
    };
    let (id, again) = Identities::reserve(records, &headers, (&Namespace::default(), &body)).await?.single();
    let id = RolloutId(id);
    if again && let Some(known) = records.store.rollout(&RolloutRef::Id(id)).await? {
        return Ok(created(known));
    }
    let members = match members {
        Some(members) => members,
        None => members_of(&manager, &filter, &draft.patch).await?,
    };
    let rollout = with_pending(draft.rollout(id, &body["selector"], records), &members);
    let refused = |code: Code, detail: String| Err(Problem::new(code, detail));
    match records.store.create_rollout(&rollout, &members).await? {
        RolloutCreated::Done => {
            info!(rollout = %rollout.name, members = members.len(), "rollout started");
            if let Some((kind, text)) = rollout.event(None) {
                records.events.tell_all(kind, text);
            }
            records.note_change();
            Ok(created(rollout))
        }
        RolloutCreated::Exists => Ok(created(find(records, &id.to_string()).await?)),
        RolloutCreated::NameTaken => {
            let cure = "wait for its end, or use another name";
            refused(Code::NameExists, format!("a rollout named {} is not over: {cure}", rollout.name))
        }
        RolloutCreated::Busy { observer, rollout } => {
            let cure = "wait for its end, or cancel it";
            refused(Code::InRollout, format!("observer {observer} is a member of rollout {rollout}: {cure}"))
        }
        RolloutCreated::TooMany => {
            let cure = "wait until one of them is over, or cancel one";
            refused(Code::TooManyRollouts, format!("{OPEN_MAX} rollouts are not over: {cure}"))
        }
    }
}

fn with_pending(rollout: core::Rollout, members: &[Member]) -> core::Rollout {
    let pending = u32::try_from(members.len()).unwrap_or(u32::MAX);
    core::Rollout { counts: [(MemberState::Pending, pending)].into(), ..rollout }
}

fn created(rollout: core::Rollout) -> Response {
    let place = [(header::LOCATION, format!("/v1/rollouts/{}", rollout.id))];
    (StatusCode::CREATED, place, Json(shown(rollout))).into_response()
}

/// A checked request.
struct Draft {
    name: Option<Name>,
    selector: RolloutSelector,
    patch: Value,
    max_parallel: u32,
    healthy_for: Duration,
    timeout: Duration,
    on_failure: core::OnFailure,
}

fn checked(wanted: NewRollout, body: &Value) -> Result<Draft, Problem> {
    let name = wanted.name.as_deref().map(Name::new).transpose();
    let name = name.map_err(|error| wrong("/name", error.to_string()))?;
    if !(1..=PARALLEL_MAX).contains(&wanted.max_parallel) {
        return Err(wrong("/max_parallel", format!("is {}: 1 to {PARALLEL_MAX}", wanted.max_parallel)));
    }
    let time = |pointer: &str, text: &str| parse_duration(text).map_err(|error| wrong(pointer, error));
    let healthy_for = time("/healthy_for", &wanted.healthy_for)?;
    let timeout = time("/timeout", &wanted.timeout)?;
    if healthy_for < HEALTHY_FOR_MIN {
        return Err(wrong("/healthy_for", format!("at least {}", show(HEALTHY_FOR_MIN))));
    }
    if timeout > TIMEOUT_MAX {
        return Err(wrong("/timeout", format!("at most {}", show(TIMEOUT_MAX))));
    }
    if timeout <= healthy_for {
        let detail =
            format!("is {}: it must be longer than healthy_for, {}", show(timeout), show(healthy_for));
        return Err(wrong("/timeout", detail));
    }
    let Some(members) = body["patch"].as_object().filter(|members| !members.is_empty()) else {
        return Err(wrong("/patch", "must be a JSON object with at least one member"));
    };
    if members.contains_key("name") {
        return Err(wrong("/patch/name", "a name cannot be changed: remove it"));
    }
    if members.contains_key("desired") {
        let cure = "use `everwatch observer pause` or `resume` with a filter";
        return Err(wrong("/patch/desired", format!("a rollout changes definitions only: {cure}")));
    }
    let (selector, patch) = (wanted.selector, wanted.patch);
    let (max_parallel, on_failure) = (wanted.max_parallel, wanted.on_failure);
    Ok(Draft { name, selector, patch, max_parallel, healthy_for, timeout, on_failure })
}

impl Draft {
    fn rollout(self, id: RolloutId, selector: &Value, records: &Records) -> core::Rollout {
        let now = records.clock.now();
        let generated = || {
            let id = id.0.simple().to_string();
            Name::new(&format!("rollout-{}", &id[..12])).expect("hexadecimal digits are legal in a name")
        };
        core::Rollout {
            id,
            version: 1,
            name: self.name.unwrap_or_else(generated),
            selector: selector.clone(),
            patch: self.patch,
            max_parallel: self.max_parallel,
            healthy_for: self.healthy_for,
            timeout: self.timeout,
            on_failure: self.on_failure,
            state: RolloutState::Running,
            reason: None,
            by: actor::name(),
            created_at: now,
            modified_at: now,
            resumed_at: None,
            ended_at: None,
            counts: [].into(),
        }
    }
}

fn selected(selector: &RolloutSelector) -> Result<Filter, Problem> {
    fn word<T: FromStr<Err: ToString>>(member: &str, text: Option<&String>) -> Result<Option<T>, Problem> {
        let read = text.map(|text| text.parse()).transpose();
        read.map_err(|error: T::Err| wrong(&format!("/selector/{member}"), error.to_string()))
    }
    let status = selector.status.iter().map(|text| text.parse());
    let status = status.collect::<Result<_, String>>().map_err(|error| wrong("/selector/status", error))?;
    let filter = Filter {
        status,
        namespace: word("namespace", selector.namespace.as_ref())?,
        kind: word("kind", selector.kind.as_ref())?,
        pool: word("pool", selector.pool.as_ref())?,
        labels: selector.labels.clone(),
        selector: word("label_selector", selector.label_selector.as_ref())?.unwrap_or_default(),
        q: selector.q.clone(),
        ..Filter::default()
    };
    if filter == Filter::default() {
        return Err(wrong(
            "/selector",
            "give at least one of labels, label_selector, namespace, kind, pool, status and q",
        ));
    }
    Ok(filter)
}

/// The members: the observers that match, in the order of their names. The patch is tried on the first one of each kind and
/// pool, so that a mistake in it starts nothing.
async fn members_of(manager: &Manager, filter: &Filter, patch: &Value) -> Result<Vec<Member>, Problem> {
    let records = &manager.records;
    let (mut members, mut after) = (Vec::new(), None::<ListCursor>);
    let mut tried = BTreeSet::new();
    loop {
        let page = records.store.list(filter, after.as_ref(), PAGE).await?;
        if page.total > MEMBERS_MAX as u64 {
            let detail = format!("{} observers match: at most {MEMBERS_MAX} in one rollout", page.total);
            return Err(wrong("/selector", detail));
        }
        for row in page.rows.iter().filter(|row| row.desired != Desired::Deleted) {
            if tried.insert((row.definition.kind.clone(), row.definition.pool.clone())) {
                try_patch(manager, row, patch).await?;
            }
            let place = u32::try_from(members.len()).unwrap_or(u32::MAX);
            let (name, version) = (row.definition.name.clone(), row.revision().number);
            members.push(Member::pending(place, row.id, name, version));
        }
        let Some(last) = page.rows.last().filter(|_| page.more) else { break };
        after = Some(ListCursor { value: sort_value(filter, last), id: last.id });
    }
    if members.is_empty() {
        return Err(wrong("/selector", "no observer matches"));
    }
    Ok(members)
}

async fn try_patch(manager: &Manager, row: &Row, patch: &Value) -> Result<(), Problem> {
    let records = &manager.records;
    let tried = row.definition.patched(patch).and_then(|definition| {
        definition.check_limits(&row.definition).map_err(|error| vec![error])?;
        Ok(definition)
    });
    let definition = match tried {
        Ok(definition) => definition,
        Err(errors) => return Err(of_member(errors, row)),
    };
    namespaces::check_pool(records, &definition, &row.definition).await?;
    limits::check_known(records, &definition).await?;
    let pool = &definition.pool;
    if *pool != row.definition.pool && !kind_check::has_service(manager, pool).await? {
        let detail = format!("has no service: start a service of pool {pool} first");
        return Err(of_member(vec![FieldError { pointer: "/pool".to_owned(), detail }], row));
    }
    match kind_check::check(manager, &definition).await? {
        Err(Unfit::Spec(errors)) => Err(of_member(errors, row)),
        Err(Unfit::Weight(detail)) if definition.weight != row.definition.weight => {
            Err(of_member(vec![FieldError { pointer: "/weight".to_owned(), detail }], row))
        }
        Err(Unfit::Kind(detail)) if definition.kind != row.definition.kind => {
            let detail = format!("is not offered: {detail}");
            Err(of_member(vec![FieldError { pointer: "/kind".to_owned(), detail }], row))
        }
        Err(Unfit::Kind(detail)) if definition.pool != row.definition.pool => {
            let detail = format!("does not fit: {detail}");
            Err(of_member(vec![FieldError { pointer: "/pool".to_owned(), detail }], row))
        }
        // A service that offers the kind may come back before the rollout changes this member.
        Ok(()) | Err(Unfit::Kind(_) | Unfit::Weight(_)) => Ok(()),
    }
}

/// The refusal of a patch because of what it makes of this observer.
fn of_member(errors: Vec<FieldError>, row: &Row) -> Problem {
    let at = |error: FieldError| FieldError {
        pointer: format!("/patch{}", error.pointer),
        detail: format!("{} (observer {})", error.detail, row.definition.name),
    };
    Problem::invalid(errors.into_iter().map(at).collect())
}

async fn find(records: &Records, key: &str) -> Result<core::Rollout, Problem> {
    let missing = || {
        let key: String = key.chars().take(140).collect();
        Problem::new(Code::NotFound, format!("there is no rollout `{key}`"))
    };
    let Ok(which) = key.parse::<RolloutRef>() else { return Err(missing()) };
    records.store.rollout(&which).await?.ok_or_else(missing)
}

/// List rollouts, the newest first. Managers keep the last 100 that are over.
#[utoipa::path(get, path = "/v1/rollouts", tag = "rollouts", security(("token" = ["rollouts:read"])),
    params(("limit" = Option<u32>, Query, description = "the number of rollouts, 1 to 200 (default 20)")),
    responses((status = 200, body = Listed<Rollout>)))]
pub(crate) async fn list(
    State(manager): Shared,
    mut params: Params,
) -> Result<Json<Listed<Rollout>>, Problem> {
    let limit = params.parsed("limit")?.unwrap_or(LIMIT_DEFAULT);
    if !(1..=LIMIT_MAX).contains(&limit) {
        return Err(bad("limit", format!("1 to {LIMIT_MAX}")));
    }
    params.finish()?;
    let mut all = manager.records.store.rollouts(LIMIT_MAX).await?;
    let total = all.len() as u64;
    all.truncate(limit);
    Ok(Json(Listed { items: all.into_iter().map(shown).collect(), next_cursor: None, total }))
}

/// The rollouts that are not over and that the sender may read.
pub(super) async fn open(records: &Records) -> Result<Vec<Rollout>, Problem> {
    if !caller::may_read_rollouts() {
        return Ok(Vec::new());
    }
    let all = records.store.rollouts(LIMIT_MAX).await?;
    Ok(all.into_iter().filter(|it| !it.state.is_over()).map(shown).collect())
}

/// Read a rollout.
#[utoipa::path(get, path = "/v1/rollouts/{key}", tag = "rollouts", security(("token" = ["rollouts:read"])),
    params(("key" = String, Path, description = "id, or name (the newest of that name)")),
    responses((status = 200, body = Rollout), (status = 404, body = ProblemBody, description = "not-found")))]
pub(crate) async fn read(
    State(manager): Shared,
    Path(key): Path<String>,
    params: Params,
) -> Result<Json<Rollout>, Problem> {
    params.finish()?;
    Ok(Json(shown(find(&manager.records, &key).await?)))
}

/// List the members of a rollout, in the order in which they are changed.
#[utoipa::path(get, path = "/v1/rollouts/{key}/members", tag = "rollouts", security(("token" = ["rollouts:read"])),
    params(("key" = String, Path, description = "id, or name (the newest of that name)"),
    ("state" = Option<String>, Query, description = "pending, changed, done, skipped, failed, reverting, reverted"),
    ("limit" = Option<u32>, Query, description = "1 to 1,000, 100 by default"),
    ("cursor" = Option<String>, Query,
        description = "where the page starts: next_cursor of the page before")),
    responses((status = 200, body = Listed<RolloutMember>),
        (status = 404, body = ProblemBody, description = "not-found")))]
pub(crate) async fn members(
    State(manager): Shared,
    Path(key): Path<String>,
    mut params: Params,
) -> Result<Json<Listed<RolloutMember>>, Problem> {
    let states = params.many("state");
    let states = states.iter().flat_map(|text| text.split(','));
    let states = states.map(|text| text.trim().parse().map_err(|error| bad("state", error)));
    let states = states.collect::<Result<Vec<MemberState>, _>>()?;
    let part: Part<u32> = Part::read(&mut params)?;
    params.finish()?;
    let rollout = find(&manager.records, &key).await?;
    let wanted =
        MembersPart { rollout: rollout.id, states: &states, after: part.after, most: part.limit + 1 };
    let mut found = manager.records.store.rollout_members(&wanted).await?;
    let more = found.len() > part.limit;
    found.truncate(part.limit);
    let next_cursor = found.last().filter(|_| more).and_then(|last| part.cursor(last.place));
    let total = if states.is_empty() {
        rollout.total()
    } else {
        let states: BTreeSet<_> = states.into_iter().collect();
        states.into_iter().map(|state| rollout.count(state)).sum()
    };
    let items = found.into_iter().map(RolloutMember::from).collect();
    Ok(Json(Listed { items, next_cursor, total: total.into() }))
}

macro_rules! action {
    ($name:ident, $path:literal, $action:path, $doc:literal) => {
        #[doc = $doc]
        #[utoipa::path(post, path = $path, tag = "rollouts", security(("token" = ["rollouts:write"])),
            params(("key" = String, Path, description = "id, or name (the newest of that name)")),
            responses((status = 200, body = Rollout, description = "done, or nothing to do"),
                (status = 404, body = ProblemBody, description = "not-found"),
                (status = 409, body = ProblemBody, description = "rollout-over, rollout-reverting, changed-too-often")))]
        pub(crate) async fn $name(
            State(manager): Shared,
            Path(key): Path<String>,
            params: Params,
        ) -> Result<Json<Rollout>, Problem> {
            params.finish()?;
            act(&manager, &key, $action).await
        }
    };
}

action!(
    pause,
    "/v1/rollouts/{key}/pause",
    RolloutAction::Pause,
    "Pause a rollout: managers change no further member."
);
action!(
    resume,
    "/v1/rollouts/{key}/resume",
    RolloutAction::Resume,
    "Resume a paused rollout: managers try its failed members again, and go on."
);
action!(
    revert,
    "/v1/rollouts/{key}/revert",
    RolloutAction::Revert,
    "Revert a rollout: managers restore the recorded versions of the members that it has changed."
);
action!(
    cancel,
    "/v1/rollouts/{key}/cancel",
    RolloutAction::Cancel,
    "Cancel a rollout: it is over, and the members that it has changed stay changed."
);

async fn act(manager: &Manager, key: &str, action: RolloutAction) -> Result<Json<Rollout>, Problem> {
    let (records, by) = (&manager.records, actor::name());
    for _ in 0..crate::commit::CAS_TRIES {
        let before = find(records, key).await?;
        let mut rollout = before.clone();
        match rollout.act(action, by.as_deref(), records.clock.now()) {
            Err(NotNow(state)) => return Err(not_now(&before, state)),
            Ok(false) => return Ok(Json(shown(before))),
            Ok(true) => {}
        }
        let step = Step { rollout, members: Vec::new() };
        if let Some(saved) = records.store.save_step(&step).await? {
            if let Some((kind, text)) = saved.rollout.event(Some(&before)) {
                records.events.tell_all(kind, text);
            }
            records.note_change();
            return Ok(Json(shown(saved.rollout)));
        }
    }
    Err(Problem::new(Code::Contended, format!("rollout `{key}` keeps changing: read it again and retry")))
}

fn not_now(rollout: &core::Rollout, state: RolloutState) -> Problem {
    let name = &rollout.name;
    if state == RolloutState::Reverting {
        let detail = format!("rollout {name} is being reverted: wait for its end, or cancel it");
        return Problem::new(Code::RolloutReverting, detail);
    }
    let cure = "start another rollout; `everwatch observer revert` restores one observer";
    Problem::new(Code::RolloutOver, format!("rollout {name} is {state}: {cure}"))
}
