//! Namespaces: the quotas and pools of each, and what of them a create uses.

use crate::capacity::limits::{Limit, MAX_MAX};
use crate::clock::Timestamp;
use crate::id::{LimitKey, Namespace, Pool};
use crate::observer::definition::FieldError;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// The most namespaces, besides `default`.
pub const NAMESPACES_MAX: u64 = 1000;
/// The most pools that a namespace names.
pub const POOLS_MAX: usize = 100;
/// The highest quota.
pub const QUOTA_MAX: u32 = 1_000_000;
/// One create, in the unit in which a bucket counts: the part of a create that a quota of one per minute refills in 1 ms.
const CREATE: u64 = 60_000;

/// What a namespace may use; `None`: as much as there is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Quotas {
    /// Its observers that are not deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observers: Option<u32>,
    /// Its observers that have a slot at once.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<u32>,
    /// The creates that are available at once. Used creates return evenly, the full quota within one minute.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub creates_per_minute: Option<u32>,
}

/// What users set of a namespace.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NamespaceSettings {
    #[serde(default)]
    pub quotas: Quotas,
    /// The pools that its observers may use; `None`: every pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pools: Option<Vec<Pool>>,
}

impl NamespaceSettings {
    /// Reads the body of a namespace.
    ///
    /// # Errors
    /// Each member that is wrong, with the reason and the cure.
    pub fn parse(namespace: &Namespace, body: Value) -> Result<Self, Vec<FieldError>> {
        let wrong = |pointer: &str, detail: String| FieldError { pointer: pointer.to_owned(), detail };
        // As a list, the members would have no names.
        for (pointer, value) in [("", Some(&body)), ("/quotas", body.get("quotas"))] {
            if value.is_some_and(|value| !value.is_object()) {
                return Err(vec![wrong(pointer, "must be a JSON object".to_owned())]);
            }
        }
        let settings: Self =
            serde_json::from_value(body).map_err(|error| vec![wrong("", error.to_string())])?;
        let mut errors = Vec::new();
        let Quotas { observers, running, creates_per_minute } = settings.quotas;
        let quotas =
            [("observers", observers), ("running", running), ("creates_per_minute", creates_per_minute)];
        for (member, quota) in quotas {
            if let Some(quota) = quota.filter(|quota| !(1..=QUOTA_MAX).contains(quota)) {
                let detail = format!("is {quota}: must be 1 to {QUOTA_MAX}, or leave it out");
                errors.push(wrong(&format!("/quotas/{member}"), detail));
            }
        }
        if running.is_some() && namespace.is_default() {
            let cure = "give the observers a namespace of their own, or name a limit in each";
            errors.push(wrong("/quotas/running", format!("cannot be set for the namespace default: {cure}")));
        }
        if settings.pools.as_ref().is_some_and(|pools| !(1..=POOLS_MAX).contains(&pools.len())) {
            errors.push(wrong("/pools", format!("must have 1 to {POOLS_MAX} items, or leave it out")));
        }
        if errors.is_empty() { Ok(settings) } else { Err(errors) }
    }

    /// Whether its observers may use this pool.
    #[must_use]
    pub fn has_pool(&self, pool: &Pool) -> bool {
        includes(self.pools.as_deref(), pool)
    }
}

/// Whether a list of pools includes this one; no list includes every pool.
fn includes(pools: Option<&[Pool]>, pool: &Pool) -> bool {
    pools.is_none_or(|pools| pools.contains(pool))
}

/// A stored namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamespaceRow {
    pub name: Namespace,
    pub settings: NamespaceSettings,
    pub creates: Creates,
}

/// The creates that a namespace has left, as a bucket that its quota refills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Creates {
    /// The creates that were used and not refilled yet, in units of [`CREATE`].
    used: u64,
    /// When they were counted, by the database's clock.
    at: Timestamp,
}

impl Creates {
    /// None is used yet.
    #[must_use]
    pub fn unused(now: Timestamp) -> Self {
        Self { used: 0, at: now }
    }

    fn used_at(self, per_minute: u32, now: Timestamp) -> u64 {
        let passed = u64::try_from(now.0.saturating_sub(self.at.0)).unwrap_or(0);
        self.used.saturating_sub(passed.saturating_mul(per_minute.into()))
    }

    /// The creates that are left.
    #[must_use]
    pub fn left(self, per_minute: u32, now: Timestamp) -> u64 {
        let size = u64::from(per_minute) * CREATE;
        size.saturating_sub(self.used_at(per_minute, now)) / CREATE
    }

    /// After this number of creates.
    #[must_use]
    pub fn after(self, creates: u64, per_minute: u32, now: Timestamp) -> Self {
        let used = self.used_at(per_minute, now).saturating_add(creates.saturating_mul(CREATE));
        Self { used, at: self.at.max(now) }
    }
}

impl NamespaceRow {
    /// A new namespace.
    #[must_use]
    pub fn new(name: Namespace, settings: NamespaceSettings, now: Timestamp) -> Self {
        Self { name, settings, creates: Creates::unused(now) }
    }

    /// What of it the creates of a transaction may use, if it has this number of observers.
    #[must_use]
    pub fn room(&self, observers: u64, now: Timestamp) -> NamespaceRoom {
        let Quotas { observers: most, creates_per_minute, .. } = self.settings.quotas;
        NamespaceRoom {
            pools: self.settings.pools.clone(),
            observers: most.map(|most| u64::from(most).saturating_sub(observers)),
            creates: creates_per_minute.map(|per_minute| self.creates.left(per_minute, now)),
        }
    }

    /// The limit of its observers that have a slot at once; the default namespace has none.
    #[must_use]
    pub fn limit(&self) -> Option<Limit> {
        let max = self.settings.quotas.running.unwrap_or(MAX_MAX);
        Some(Limit { key: LimitKey::of_namespace(&self.name)?.into(), max, enforce: false })
    }

    /// The row after a request sets `settings`: a new one if there is none. The creates that were used stay used. `None`: there
    /// are [`NAMESPACES_MAX`] others besides `default` already.
    #[must_use]
    pub fn set(
        before: Option<Self>,
        (name, settings): (&Namespace, NamespaceSettings),
        others: u64,
        now: Timestamp,
    ) -> Option<Self> {
        match before {
            Some(before) => Some(Self { settings, ..before }),
            None if others >= NAMESPACES_MAX && !name.is_default() => None,
            None => Some(Self::new(name.clone(), settings, now)),
        }
    }

    /// Whether its observers prevent its deletion. `default` only loses its quotas and pools.
    #[must_use]
    pub fn is_in_use(name: &Namespace, observers: u64) -> bool {
        observers > 0 && !name.is_default()
    }

    /// After this number of creates.
    #[must_use]
    pub fn after(&self, creates: u64, now: Timestamp) -> Self {
        let per_minute = self.settings.quotas.creates_per_minute;
        let creates = per_minute.map_or(self.creates, |quota| self.creates.after(creates, quota, now));
        Self { creates, ..self.clone() }
    }
}

/// What the creates of a transaction may use of a namespace; `None`: as much as there is.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct NamespaceRoom {
    /// The pools that its observers may use.
    pub pools: Option<Vec<Pool>>,
    pub observers: Option<u64>,
    pub creates: Option<u64>,
}

impl NamespaceRoom {
    pub(crate) fn has_pool(&self, pool: &Pool) -> bool {
        includes(self.pools.as_deref(), pool)
    }

    pub(crate) fn take(&mut self) {
        for number in [&mut self.observers, &mut self.creates].into_iter().flatten() {
            *number = number.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn at(secs: i64) -> Timestamp {
        Timestamp(secs * 1000)
    }

    #[test]
    fn creates_are_refilled_evenly() {
        let creates = Creates::unused(at(0)).after(6, 6, at(0));
        let left = |secs| creates.left(6, at(secs));
        assert_eq!([left(0), left(9), left(10), left(59), left(60), left(600)], [0, 0, 1, 5, 6, 6]);
        let again = creates.after(2, 6, at(20));
        assert_eq!((again.left(6, at(20)), again.left(6, at(30))), (0, 1));
        // A clock that was set back refills nothing twice.
        assert_eq!(again.after(0, 6, at(10)).left(6, at(30)), 1);
        // A lower quota leaves nothing until the creates are refilled.
        assert_eq!((again.left(1, at(20)), again.left(12, at(20))), (0, 6));
    }

    #[test]
    fn a_maximum_of_namespaces_concerns_new_ones_other_than_the_default_one() {
        let (team, default) = (Namespace::new("team").unwrap(), Namespace::default());
        let settings =
            NamespaceSettings { pools: Some(vec![Pool::default()]), ..NamespaceSettings::default() };
        let set = |before, name, others| NamespaceRow::set(before, (name, settings.clone()), others, at(9));
        let new = set(None, &team, NAMESPACES_MAX - 1).unwrap();
        assert_eq!((&new.settings, new.creates), (&settings, Creates::unused(at(9))));
        assert_eq!(set(None, &team, NAMESPACES_MAX), None);
        assert!(set(None, &default, NAMESPACES_MAX).is_some());
        let used = NamespaceRow { creates: Creates::unused(at(0)).after(3, 6, at(5)), ..new };
        let changed = set(Some(used.clone()), &team, NAMESPACES_MAX).unwrap();
        assert_eq!(changed.creates, used.creates, "the creates that were used stay used");
        let in_use = |name, observers| NamespaceRow::is_in_use(name, observers);
        assert_eq!([in_use(&team, 0), in_use(&team, 1), in_use(&default, 1)], [false, true, false]);
    }

    #[test]
    fn settings_are_checked() {
        let team = Namespace::new("team").unwrap();
        let errors = |namespace: &Namespace, body| NamespaceSettings::parse(namespace, body).unwrap_err();
        let body = json!({"quotas": {"observers": 0, "creates_per_minute": 7}, "pools": []});
        let pointers: Vec<String> = errors(&team, body).into_iter().map(|it| it.pointer).collect();
        assert_eq!(pointers, ["/quotas/observers", "/pools"]);
        let running = json!({"quotas": {"running": 3}});
        assert_eq!(errors(&Namespace::default(), running.clone())[0].pointer, "/quotas/running");
        assert_eq!(NamespaceSettings::parse(&team, running).unwrap().quotas.running, Some(3));
        assert!(errors(&team, json!({"quota": {}}))[0].detail.contains("quota"));
        for (body, pointer) in [(json!([]), ""), (json!({"quotas": [3]}), "/quotas")] {
            assert_eq!(errors(&team, body)[0].pointer, pointer);
        }
        assert_eq!(NamespaceSettings::parse(&team, json!({})), Ok(NamespaceSettings::default()));
    }
}
