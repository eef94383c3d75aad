//! The lines of one earlier run. The service that ran it may have died: then its next process has them, if both use the
//! folder `service.log_dir`.

use crate::context::Manager;
use crate::http::events;
use crate::http::problem::{Code, Problem};
use crate::outgoing::log_requests::{self, Unanswered};
use everwatch_api::{LogLine, Logs, Run, ServiceName};
use everwatch_core::epoch::Epoch;
use everwatch_core::id::{ObserverId, ServiceId};
use everwatch_core::record::row::Row;
use everwatch_core::record::service::ServiceRow;
use everwatch_core::wire::logs::{LINES_MAX, Line, Lines, LogCursor};
use everwatch_store::StoreError;
use std::str::FromStr;
use std::time::Duration;

/// Lines in one answer.
const PAGE: u32 = 1000;
/// Answers that are read of one service: as many lines as it keeps at most, and those of later runs.
const PAGES_MAX: u32 = 2 * LINES_MAX / PAGE;

/// Which run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WhichRun {
    /// The one before the newest.
    Previous,
    Of(Epoch),
}

impl FromStr for WhichRun {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        if text == "previous" {
            return Ok(Self::Previous);
        }
        let parts = text.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        let (generation, acquisitions) =
            parts.ok_or_else(|| "the epoch of a run, such as 3.1, or `previous`".to_owned())?;
        Ok(Self::Of(Epoch::new(generation, acquisitions)))
    }
}

/// The newest lines of a run, at most `most`.
pub(super) async fn lines(
    manager: &Manager,
    row: &Row,
    which: WhichRun,
    most: usize,
) -> Result<Logs, Problem> {
    let runs = events::runs_of_observer(&manager.records, row.id).await?;
    let run = choose(&runs, which).ok_or_else(|| unknown(row, which, &runs))?;
    let living = manager.records.services(Duration::ZERO).await?;
    let mut is_silent = None;
    for service in candidates(run, row.log_holder(), &living) {
        match of_service(manager, service, row, (run.epoch.into(), most)).await {
            Ok(lines) if lines.is_empty() => {}
            Ok(lines) => {
                let items = lines.into_iter().map(LogLine::of);
                let name = super::name(&manager.records, service).await?;
                let reason = String::new();
                return Ok(Logs { items: items.collect(), missed: 0, service: Some(name), reason });
            }
            Err(Unanswered::Gone) => {}
            Err(unanswered) => is_silent = Some((service, unanswered)),
        }
    }
    if let Some((service, unanswered)) = is_silent {
        let name = super::name(&manager.records, service).await?;
        return Err(super::unanswered(unanswered, &name));
    }
    let service = run.service.as_ref().map(|it| ServiceName { id: it.id, name: it.name.clone() });
    let on = service.as_ref().map_or_else(String::new, |it| format!(" on service {}", it.name));
    let reason = format!(
        "no lines of run {}{on} are left: it wrote none, newer lines replaced them, or the service has ended and had no \
         service.log_dir",
        run.epoch_string
    );
    Ok(Logs { items: Vec::new(), missed: 0, service, reason })
}

/// From runs, the newest first.
fn choose(runs: &[Run], which: WhichRun) -> Option<&Run> {
    match which {
        WhichRun::Previous => runs.get(1),
        WhichRun::Of(epoch) => runs.iter().find(|run| run.epoch == u64::from(epoch)),
    }
}

fn unknown(row: &Row, which: WhichRun, runs: &[Run]) -> Problem {
    let name = &row.definition.name;
    let detail = match which {
        WhichRun::Previous if runs.is_empty() => format!("observer {name} has had no run yet"),
        WhichRun::Previous => {
            format!(
                "no run of observer {name} before the newest one is known: there was none, or its events are no longer kept; \
                 attempts after an error belong to the same run, whose output `everwatch observer logs {name}` shows"
            )
        }
        WhichRun::Of(epoch) => {
            format!(
                "no run {epoch} of observer {name} is known: there was none, or its events are no longer kept; `everwatch \
                 observer describe {name}` lists its runs"
            )
        }
    };
    Problem::new(Code::NotFound, detail)
}

/// The services that may have the lines: the one that ran it, the one with the newest lines, and the next processes of the
/// former.
fn candidates(run: &Run, newest: Option<ServiceId>, living: &[ServiceRow]) -> Vec<ServiceId> {
    let ran = run.service.as_ref();
    let is_next = |it: &&ServiceRow| ran.is_some_and(|ran| it.registration.name.as_str() == ran.name);
    let next = living.iter().filter(is_next).map(|it| it.id);
    let mut all: Vec<ServiceId> = Vec::new();
    for service in ran.map(|it| ServiceId(it.id)).into_iter().chain(newest).chain(next) {
        if !all.contains(&service) {
            all.push(service);
        }
    }
    all
}

/// The lines that the next process of a service has, if it has any: the newest, or those after a place.
pub(super) async fn next_process(
    manager: &Manager,
    id: ObserverId,
    former: &ServiceName,
    (after, most): (Option<LogCursor>, u32),
) -> Result<Option<Lines>, StoreError> {
    let living = manager.records.services(Duration::ZERO).await?;
    let next = living.iter().find(|it| it.registration.name.as_str() == former.name && it.id.0 != former.id);
    let Some(next) = next else { return Ok(None) };
    let lines = log_requests::logs(manager, next.id, (id, after, most)).await.ok();
    Ok(lines.filter(|it| !it.lines.is_empty()))
}

async fn of_service(
    manager: &Manager,
    service: ServiceId,
    row: &Row,
    (epoch, most): (Epoch, usize),
) -> Result<Vec<Line>, Unanswered> {
    let mut found: Vec<Line> = Vec::new();
    let mut after = LogCursor { epoch, seq: 0 };
    for _ in 0..PAGES_MAX {
        let answer = log_requests::logs(manager, service, (row.id, Some(after), PAGE)).await?;
        let is_over = answer.lines.last().is_none_or(|line| line.place.epoch > epoch);
        if let Some(last) = answer.lines.last() {
            after = last.place;
        }
        found.extend(answer.lines.into_iter().filter(|line| line.place.epoch == epoch));
        found.drain(..found.len().saturating_sub(most));
        if is_over || !answer.more {
            break;
        }
    }
    Ok(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use everwatch_api::NamedThing;
    use everwatch_core::clock::Timestamp;
    use uuid::Uuid;

    fn run(acquisitions: u32, service: Option<u128>) -> Run {
        let epoch = Epoch::new(3, acquisitions);
        Run {
            epoch: epoch.into(),
            epoch_string: epoch.to_string(),
            generation: 3,
            acquisitions,
            service: service.map(|id| NamedThing {
                id: Uuid::from_u128(id),
                name: "a".to_owned(),
                namespace: None,
            }),
            started_at: Timestamp(1),
            ended_at: None,
            ended: None,
            attempts: 1,
            gap_ms: None,
            gap_is_bound: false,
        }
    }

    #[test]
    fn a_run_is_named_by_its_epoch_or_as_the_previous_one() {
        let runs = [run(2, None), run(1, None), run(0, None)];
        let chosen = |text: &str| choose(&runs, text.parse().unwrap()).map(|run| run.epoch_string.clone());
        assert_eq!(chosen("previous").as_deref(), Some("3.1"));
        assert_eq!(chosen("3.0").as_deref(), Some("3.0"));
        assert_eq!(chosen("4.0"), None);
        assert_eq!(choose(&runs[..1], WhichRun::Previous), None);
        for wrong in ["", "3", "3.x", "3.1.2", "last"] {
            assert!(wrong.parse::<WhichRun>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn each_service_that_may_have_the_lines_is_asked_once() {
        let (ran, newest) = (ServiceId(Uuid::from_u128(1)), ServiceId(Uuid::from_u128(2)));
        assert_eq!(candidates(&run(1, Some(1)), Some(newest), &[]), [ran, newest]);
        assert_eq!(candidates(&run(1, Some(1)), Some(ran), &[]), [ran]);
        assert_eq!(candidates(&run(1, None), Some(newest), &[]), [newest]);
    }
}
