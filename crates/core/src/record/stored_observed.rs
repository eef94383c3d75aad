//! The stored form of [`Observed`]: an array in which each service is named once.
//!
//! Every report writes this form, and the longest part of it, the runs, contains the ids of services over and over. With
//! names of fields and repeated ids it would be three times as long. Databases of earlier versions contain the form with
//! names, which is read as well.

use crate::clock::Timestamp;
use crate::id::ServiceId;
use crate::record::observed::{
    Handover, Key, Latest, Observed, Run, RunEnding, RunPhase, Settled, Settlement, Stamped, Start,
};
use crate::wire::command::Cause;
use serde::de::value::{MapAccessDeserializer, SeqAccessDeserializer};
use serde::de::{Error, MapAccess, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use std::collections::BTreeSet;
use std::fmt;

/// The place of a service in the list of services.
type Place = u16;
/// Acquisitions and number.
type StoredKey = (u32, u64);
/// Milliseconds since 1970.
type Millis = i64;

#[derive(Serialize, Deserialize)]
struct Stored(
    Vec<ServiceId>,
    /// `begun`
    bool,
    Option<(StoredKey, Place, Millis, Settlement)>,
    /// `latest`
    Option<(StoredKey, Place, Millis, RunPhase)>,
    /// `newest_run`
    Option<StoredEnding>,
    /// `before`
    Option<StoredEnding>,
    Vec<StoredRun>,
    /// `waited`
    BTreeSet<u32>,
    /// `last_error`
    Option<(StoredKey, String)>,
    /// `errored_at`
    Option<(StoredKey, Millis)>,
    /// `started`
    Option<(StoredKey, (u32, Millis))>,
    /// `progress`
    Option<(StoredKey, String)>,
);

type StoredEnding = (StoredKey, Place, Millis, bool);
/// Acquisitions, service, start, whether it is over, handover.
type StoredRun =
    (u32, Place, Option<(StoredKey, Millis)>, bool, Option<(StoredKey, (Millis, Option<Cause>))>);

/// The services of one row, each once.
#[derive(Default)]
struct Places(Vec<ServiceId>);

impl Places {
    fn of(&mut self, service: ServiceId) -> Place {
        let place = self.0.iter().position(|it| *it == service).unwrap_or_else(|| {
            self.0.push(service);
            self.0.len() - 1
        });
        // A row contains at most a few dozen services.
        Place::try_from(place).unwrap_or(Place::MAX)
    }
}

const fn key(key: Key) -> StoredKey {
    (key.acquisitions, key.seq)
}

fn stamped<T, S>(told: Option<&Stamped<T>>, value: impl FnOnce(&T) -> S) -> Option<(StoredKey, S)> {
    told.map(|it| (key(it.key), value(&it.value)))
}

impl Stored {
    fn of(it: &Observed) -> Self {
        let mut places = Places::default();
        let settled =
            it.settled.as_ref().map(|it| (key(it.key), places.of(it.service), it.at.0, it.how.clone()));
        let latest =
            it.latest.as_ref().map(|it| (key(it.key), places.of(it.service), it.at.0, it.phase.clone()));
        let mut ending = |it: &RunEnding| (key(it.key), places.of(it.service), it.at.0, it.over);
        let (newest_run, before) = (it.newest_run.as_ref().map(&mut ending), it.before.as_ref().map(ending));
        let mut run = |it: &Run| {
            let left = stamped(it.left.as_ref(), |left| (left.at.0, left.cause));
            let started = stamped(it.started.as_ref(), |at| at.0);
            (it.acquisitions, places.of(it.service), started, it.over, left)
        };
        let runs = it.runs.iter().map(&mut run).collect();
        Self(
            places.0,
            it.begun,
            settled,
            latest,
            newest_run,
            before,
            runs,
            it.waited.clone(),
            stamped(it.last_error.as_ref(), Clone::clone),
            stamped(it.errored_at.as_ref(), |at| at.0),
            stamped(it.started.as_ref(), |start| (start.attempt, start.at.0)),
            stamped(it.progress.as_ref(), Clone::clone),
        )
    }

    /// The observed state; `None` if a place names no service.
    fn read(self) -> Option<Observed> {
        let Self(
            services,
            begun,
            settled,
            latest,
            newest_run,
            before,
            runs,
            waited,
            last_error,
            errored_at,
            started,
            progress,
        ) = self;
        let service = |place: Place| services.get(usize::from(place)).copied();
        let ending = |it: Option<StoredEnding>| match it {
            Some((key, place, at, over)) => {
                let service = service(place)?;
                Some(Some(RunEnding { key: unkey(key), service, at: Timestamp(at), over }))
            }
            None => Some(None),
        };
        let run = |(acquisitions, place, started, over, left): StoredRun| {
            let handover = |(at, cause)| Handover { at: Timestamp(at), cause };
            let (started, left) = (unstamp(started, Timestamp), unstamp(left, handover));
            Some(Run { acquisitions, service: service(place)?, started, over, left })
        };
        Some(Observed {
            settled: match settled {
                Some((key, place, at, how)) => {
                    Some(Settled { key: unkey(key), service: service(place)?, at: Timestamp(at), how })
                }
                None => None,
            },
            begun,
            latest: match latest {
                Some((key, place, at, phase)) => {
                    Some(Latest { key: unkey(key), service: service(place)?, at: Timestamp(at), phase })
                }
                None => None,
            },
            newest_run: ending(newest_run)?,
            before: ending(before)?,
            runs: runs.into_iter().map(run).collect::<Option<_>>()?,
            waited,
            last_error: unstamp(last_error, |error| error),
            errored_at: unstamp(errored_at, Timestamp),
            started: unstamp(started, |(attempt, at)| Start { attempt, at: Timestamp(at) }),
            progress: unstamp(progress, |text| text),
        })
    }
}

const fn unkey((acquisitions, seq): StoredKey) -> Key {
    Key { acquisitions, seq }
}

fn unstamp<T, S>(told: Option<(StoredKey, S)>, value: impl FnOnce(S) -> T) -> Option<Stamped<T>> {
    told.map(|(key, told)| Stamped { key: unkey(key), value: value(told) })
}

/// Writes the stored form.
pub(super) fn serialize<S: Serializer>(observed: &Observed, serializer: S) -> Result<S::Ok, S::Error> {
    Stored::of(observed).serialize(serializer)
}

/// Reads the stored form, or the form with names.
pub(super) fn deserialize<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Observed, D::Error> {
    deserializer.deserialize_any(EitherForm)
}

struct EitherForm;

impl<'de> Visitor<'de> for EitherForm {
    type Value = Observed;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the observed state as an array or as an object")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, seq: A) -> Result<Observed, A::Error> {
        let stored = Stored::deserialize(SeqAccessDeserializer::new(seq))?;
        stored.read().ok_or_else(|| A::Error::custom("a service has no place in the list of services"))
    }

    fn visit_map<A: MapAccess<'de>>(self, map: A) -> Result<Observed, A::Error> {
        Observed::deserialize(MapAccessDeserializer::new(map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;
    use uuid::Uuid;

    #[derive(Debug, PartialEq, Serialize, Deserialize)]
    struct Row {
        #[serde(with = "super")]
        observed: Observed,
    }

    fn observed() -> Observed {
        let service = |number| ServiceId(Uuid::from_u128(number));
        let key = |acquisitions| Key { acquisitions, seq: 7 };
        let run = |acquisitions, number| Run {
            acquisitions,
            service: service(number),
            started: Some(Stamped { key: key(acquisitions), value: Timestamp(5) }),
            over: true,
            left: Some(Stamped {
                key: key(acquisitions),
                value: Handover { at: Timestamp(6), cause: Some(Cause::Drain) },
            }),
        };
        let ending = |acquisitions, number| RunEnding {
            key: key(acquisitions),
            service: service(number),
            at: Timestamp(8),
            over: false,
        };
        Observed {
            settled: Some(Settled {
                key: key(2),
                service: service(2),
                at: Timestamp(9),
                how: Settlement::Failed { error: "e".into(), attempts: 3 },
            }),
            begun: true,
            latest: Some(Latest {
                key: key(2),
                service: service(2),
                at: Timestamp(8),
                phase: RunPhase::Restarting { next_at: Timestamp(10) },
            }),
            newest_run: Some(ending(2, 2)),
            before: Some(ending(1, 1)),
            runs: vec![run(0, 1), run(1, 2)],
            waited: BTreeSet::from([4, 5]),
            last_error: Some(Stamped { key: key(1), value: "e".into() }),
            errored_at: Some(Stamped { key: key(1), value: Timestamp(4) }),
            started: Some(Stamped { key: key(2), value: Start { attempt: 2, at: Timestamp(3) } }),
            progress: Some(Stamped { key: key(2), value: "half".into() }),
        }
    }

    #[test]
    fn what_is_written_is_read() {
        for observed in [observed(), Observed::default()] {
            let row = Row { observed };
            let text = serde_json::to_string(&row).unwrap();
            assert_eq!(serde_json::from_str::<Row>(&text).unwrap(), row, "{text}");
        }
    }

    #[test]
    fn the_form_with_names_is_read() {
        let text = json!({ "observed": observed() }).to_string();
        assert!(text.contains("newest_run"), "{text}");
        assert_eq!(serde_json::from_str::<Row>(&text).unwrap().observed, observed());
    }

    #[test]
    fn a_place_without_a_service_is_an_error() {
        let mut stored = json!(Row { observed: observed() });
        stored["observed"][0] = json!([]);
        let error = serde_json::from_value::<Row>(stored).unwrap_err().to_string();
        assert!(error.contains("no place"), "{error}");
    }
}
