//! Roles: named lists of grants, each of verbs on some namespaces, pools and kinds.

use super::verb::{Reach, Verb};
use crate::id::{Kind, Name, Namespace, Pool};
use crate::observer::definition::FieldError;
use crate::spelling::nearest;
use crate::wording::parser::{self, Wrong};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeSet;

/// The most roles.
pub const ROLES_MAX: u64 = 1000;
/// The most grants of a role, and the most verbs, pools or kinds of a grant.
pub const PART_MAX: usize = 100;

/// Verbs on some namespaces, pools and kinds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Grant {
    /// As written: a verb, `resource:*`, `*:action` or `*`. In a grant with `namespaces`, `pools` or `kinds`, a `*` stands
    /// only for verbs that can be restricted to them.
    pub verbs: Vec<String>,
    /// `None`: every namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub namespaces: Option<Vec<Namespace>>,
    /// `None`: every pool.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pools: Option<Vec<Pool>>,
    /// `None`: every kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kinds: Option<Vec<Kind>>,
}

/// A role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Role {
    pub name: Name,
    pub grants: Vec<Grant>,
}

/// The roles that every deployment has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BuiltIn {
    /// Reads everything but specs, logs, parked messages, tokens, roles and the audit log.
    Viewer,
    /// Does everything but the administration of tokens and roles, and safe mode.
    Operator,
    /// Does everything.
    Admin,
}

impl BuiltIn {
    /// Every built-in role, the least first.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// Its name.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }

    /// The built-in role of this name.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|it| it.as_str() == name)
    }

    /// As a role.
    ///
    /// # Panics
    /// Never: the names are valid.
    #[must_use]
    pub fn role(self) -> Role {
        let verbs = match self {
            Self::Admin => vec!["*".to_owned()],
            Self::Viewer | Self::Operator => {
                Verb::ALL.iter().filter(|verb| self.has(**verb)).map(ToString::to_string).collect()
            }
        };
        let name = Name::new(self.as_str()).expect("a valid name");
        Role { name, grants: vec![Grant { verbs, namespaces: None, pools: None, kinds: None }] }
    }

    fn has(self, verb: Verb) -> bool {
        use Verb::*;
        let administers = matches!(verb, TokensRead | TokensWrite | RolesRead | RolesWrite | AuditRead);
        match self {
            Self::Admin => true,
            Self::Operator => !administers && verb != SafeModeWrite,
            Self::Viewer => {
                let reads = verb.as_str().ends_with(":read");
                reads && !administers && !matches!(verb, SpecsRead | LogsRead | ParkedRead)
            }
        }
    }
}

impl Grant {
    fn fits(&self, verb: Verb) -> bool {
        let by = (self.namespaces.is_some(), self.pools.is_some(), self.kinds.is_some());
        match (verb.reach(), by) {
            (Reach::Observer, _) => true,
            (Reach::Namespace, (_, pools, kinds)) => !pools && !kinds,
            (Reach::Pool, (namespaces, _, kinds)) => !namespaces && !kinds,
            (Reach::Deployment, by) => by == (false, false, false),
        }
    }

    /// The verbs that it grants.
    fn granted(&self) -> BTreeSet<Verb> {
        let all = self.verbs.iter().flat_map(|text| Verb::matching(text));
        all.filter(|verb| self.fits(*verb)).collect()
    }

    fn check(&self, at: &str, errors: &mut Vec<FieldError>) {
        let mut wrong = |member: &str, detail: String| {
            errors.push(FieldError { pointer: format!("{at}/{member}"), detail });
        };
        let lengths = [
            ("verbs", Some(self.verbs.len())),
            ("namespaces", self.namespaces.as_ref().map(Vec::len)),
            ("pools", self.pools.as_ref().map(Vec::len)),
            ("kinds", self.kinds.as_ref().map(Vec::len)),
        ];
        for (member, length) in lengths {
            if length.is_some_and(|length| !(1..=PART_MAX).contains(&length)) {
                wrong(member, format!("must have 1 to {PART_MAX} items"));
            }
        }
        for (place, text) in self.verbs.iter().enumerate() {
            let verbs = Verb::matching(text);
            let shown: String = text.chars().take(100).collect();
            let member = format!("verbs/{place}");
            if verbs.is_empty() {
                let known: Vec<&str> = Verb::ALL.iter().map(|verb| verb.as_str()).collect();
                let cure = match nearest(&shown, known.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("verbs: {}; or resource:*, *:action, *", known.join(", ")),
                };
                wrong(&member, format!("`{shown}` is not a verb; {cure}"));
            } else if !verbs.iter().any(|verb| self.fits(*verb)) {
                let has = |reach| verbs.iter().any(|verb| verb.reach() == reach);
                let why = if has(Reach::Pool) && self.namespaces.is_none() {
                    "cannot be restricted to kinds: move it to a grant without `kinds`"
                } else if has(Reach::Pool) {
                    "concerns pools, which namespaces share: move it to a grant without `namespaces` and `kinds`"
                } else if has(Reach::Namespace) {
                    "can be restricted only to namespaces: move it to a grant without `pools` and `kinds`"
                } else if self.namespaces.is_none() {
                    "concerns the whole deployment: move it to a grant without `pools` and `kinds`"
                } else {
                    "concerns the whole deployment: move it to a grant without `namespaces`, `pools` and `kinds`"
                };
                wrong(&member, format!("`{shown}` {why}"));
            }
        }
    }
}

impl Role {
    /// Reads the body of a role.
    ///
    /// # Errors
    /// Each member that is wrong, with the reason and the cure.
    pub fn parse(name: Name, body: Value) -> Result<Self, Vec<FieldError>> {
        #[derive(Deserialize)]
        #[serde(deny_unknown_fields)]
        struct Body {
            grants: Vec<Grant>,
        }
        let at = |pointer: &str, detail: String| FieldError { pointer: pointer.to_owned(), detail };
        // The parser would read a list as the members in their order.
        if !body.is_object() {
            return Err(vec![at("", "the role must be a JSON object".to_owned())]);
        }
        let wrong = |Wrong { pointer, detail, .. }: Wrong| {
            let subject = if pointer.is_empty() { "the role " } else { "" };
            vec![at(&pointer, format!("{subject}{detail}"))]
        };
        let Body { grants } = parser::read(body).map_err(wrong)?;
        let mut errors = Vec::new();
        if BuiltIn::named(name.as_str()).is_some() {
            errors.push(at("", format!("{name} is built in and cannot be changed: choose another name")));
        }
        if !(1..=PART_MAX).contains(&grants.len()) {
            errors.push(at("/grants", format!("must have 1 to {PART_MAX} items")));
        }
        for (place, grant) in grants.iter().enumerate() {
            grant.check(&format!("/grants/{place}"), &mut errors);
        }
        if errors.is_empty() { Ok(Self { name, grants }) } else { Err(errors) }
    }

    /// What it permits.
    #[must_use]
    pub fn rights(&self) -> Rights {
        let grants = self.grants.iter();
        Rights(grants.map(|it| (it.granted(), ScopePart::of(it))).filter(|it| !it.0.is_empty()).collect())
    }
}

/// What a request is about.
#[derive(Debug, Clone, Copy)]
pub enum Target<'a> {
    Observer(&'a Namespace, &'a Pool, &'a Kind),
    Namespace(&'a Namespace),
    Pool(&'a Pool),
    Deployment,
}

/// Namespaces, pools and kinds; `None`: all.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct ScopePart {
    pub namespaces: Option<Vec<Namespace>>,
    pub pools: Option<Vec<Pool>>,
    pub kinds: Option<Vec<Kind>>,
}

/// The observers that a principal may know; `None`: all.
pub type Scope = Option<Vec<ScopePart>>;

impl ScopePart {
    fn of(grant: &Grant) -> Self {
        let Grant { namespaces, pools, kinds, .. } = grant.clone();
        Self { namespaces, pools, kinds }
    }

    fn has_pool(&self, pool: &Pool) -> bool {
        self.pools.as_ref().is_none_or(|pools| pools.contains(pool))
    }

    /// Whether it includes observers of this namespace.
    #[must_use]
    pub fn has_namespace(&self, namespace: &Namespace) -> bool {
        self.namespaces.as_ref().is_none_or(|namespaces| namespaces.contains(namespace))
    }

    /// Whether it has observers of this namespace, pool and kind.
    #[must_use]
    pub fn has(&self, namespace: &Namespace, pool: &Pool, kind: &Kind) -> bool {
        let has_kind = self.kinds.as_ref().is_none_or(|kinds| kinds.contains(kind));
        self.has_namespace(namespace) && self.has_pool(pool) && has_kind
    }

    fn is_all(&self) -> bool {
        *self == Self::default()
    }

    fn covers(&self, other: &Self) -> bool {
        fn all<T: PartialEq>(mine: Option<&Vec<T>>, others: Option<&Vec<T>>) -> bool {
            mine.is_none_or(|mine| others.is_some_and(|others| others.iter().all(|it| mine.contains(it))))
        }
        all(self.namespaces.as_ref(), other.namespaces.as_ref())
            && all(self.pools.as_ref(), other.pools.as_ref())
            && all(self.kinds.as_ref(), other.kinds.as_ref())
    }
}

/// What a principal may do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Rights(Vec<(BTreeSet<Verb>, ScopePart)>);

impl Rights {
    /// Whether it permits this verb on this target.
    #[must_use]
    pub fn permits(&self, verb: Verb, target: Target<'_>) -> bool {
        self.parts(verb).any(|part| match target {
            Target::Observer(namespace, pool, kind) => part.has(namespace, pool, kind),
            Target::Namespace(namespace) => part.has_namespace(namespace),
            Target::Pool(pool) => part.has_pool(pool),
            Target::Deployment => part.is_all(),
        })
    }

    /// Whether it permits this verb on any target.
    #[must_use]
    pub fn permits_some(&self, verb: Verb) -> bool {
        self.parts(verb).next().is_some()
    }

    /// The observers on which it permits this verb.
    #[must_use]
    pub fn scope(&self, verb: Verb) -> Scope {
        if self.parts(verb).any(ScopePart::is_all) {
            return None;
        }
        Some(self.parts(verb).cloned().collect())
    }

    /// The rights that remain in one namespace. Verbs on pools and on the whole deployment are removed, except
    /// [shared](Verb::is_shared) ones.
    #[must_use]
    pub fn within(&self, namespace: &Namespace) -> Self {
        let mut within = Vec::new();
        for (verbs, part) in &self.0 {
            let of = |keeps: &dyn Fn(Verb) -> bool| -> BTreeSet<Verb> {
                verbs.iter().copied().filter(|verb| keeps(*verb)).collect()
            };
            let own = of(&|verb| matches!(verb.reach(), Reach::Observer | Reach::Namespace));
            if part.has_namespace(namespace) {
                within.push((own, ScopePart { namespaces: Some(vec![namespace.clone()]), ..part.clone() }));
            }
            within.push((of(&Verb::is_shared), part.clone()));
        }
        within.retain(|(verbs, _)| !verbs.is_empty());
        Self(within)
    }

    /// The namespace of all observers on which it permits anything, or of all that it permits in namespaces if it permits
    /// nothing on observers; `None` if there are several, or any.
    #[must_use]
    pub fn only_namespace(&self) -> Option<&Namespace> {
        let has = |verbs: &BTreeSet<Verb>, reach| verbs.iter().any(|verb| verb.reach() == reach);
        let any_of_observers = self.0.iter().any(|(verbs, _)| has(verbs, Reach::Observer));
        let reach = if any_of_observers { Reach::Observer } else { Reach::Namespace };
        let mut parts =
            self.0.iter().filter(|(verbs, _)| has(verbs, reach)).map(|(_, part)| &part.namespaces);
        let first = parts.clone().next()?;
        let [only] = first.as_deref()? else { return None };
        parts.all(|namespaces| namespaces == first).then_some(only)
    }

    /// Whether it permits everything that `other` permits. Users can give only rights that they have.
    #[must_use]
    pub fn cover(&self, other: &Self) -> bool {
        other
            .0
            .iter()
            .all(|(verbs, part)| verbs.iter().all(|verb| self.parts(*verb).any(|mine| mine.covers(part))))
    }

    /// The verbs that it permits on some target.
    #[must_use]
    pub fn verbs(&self) -> BTreeSet<Verb> {
        self.0.iter().flat_map(|(verbs, _)| verbs.iter().copied()).collect()
    }

    fn parts(&self, verb: Verb) -> impl Iterator<Item = &ScopePart> {
        self.0.iter().filter(move |(verbs, _)| verbs.contains(&verb)).map(|(_, part)| part)
    }
}
