//! The section `[auth.oidc]` of a configuration file.

use super::ConfigError;
use crate::settings::OidcSettings;
use everwatch_core::access::{Oidc, is_safe_url};
use everwatch_core::id::Name;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::path::PathBuf;
use url::Url;

/// The most groups with a role.
const ROLES_MAX: usize = 1000;

/// `[auth.oidc]`
#[derive(Debug, Clone, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
pub struct OidcSection {
    /// URL of the identity provider; empty: none.
    pub issuer: String,
    /// Client of the console; empty: the console offers no single sign-on.
    pub client_id: String,
    /// A file with the secret of the client.
    pub client_secret_file: Option<PathBuf>,
    /// The `aud` of tokens that programs send.
    pub audience: String,
    /// What a login requests besides `openid`.
    pub scopes: Vec<String>,
    /// The claim with the groups.
    pub roles_claim: String,
    /// The role of each group.
    pub roles: BTreeMap<String, Name>,
    /// PEM file with the CA of the provider.
    pub ca_file: Option<PathBuf>,
}

impl Default for OidcSection {
    fn default() -> Self {
        Self {
            issuer: String::new(),
            client_id: String::new(),
            client_secret_file: None,
            audience: String::new(),
            scopes: vec!["profile".to_owned(), "email".to_owned()],
            roles_claim: "groups".to_owned(),
            roles: BTreeMap::new(),
            ca_file: None,
        }
    }
}

impl OidcSection {
    /// As a manager takes it; `None` without an issuer.
    pub(super) fn settings(&self) -> Result<Option<OidcSettings>, ConfigError> {
        self.check().map_err(|rule| ConfigError(format!("auth.oidc.{rule}")))?;
        let Self { issuer, client_id, audience, roles_claim, roles, .. } = self.clone();
        if issuer.is_empty() {
            return Ok(None);
        }
        let Self { scopes, client_secret_file, ca_file, .. } = self.clone();
        let policy = Oidc { issuer, client_id, audience, roles_claim, roles };
        Ok(Some(OidcSettings { policy, scopes, client_secret_file, ca_file }))
    }

    /// The first rule that is broken, after its key.
    fn check(&self) -> Result<(), String> {
        let others = [
            ("client_id", !self.client_id.is_empty()),
            ("client_secret_file", self.client_secret_file.is_some()),
            ("audience", !self.audience.is_empty()),
            ("roles", !self.roles.is_empty()),
            ("ca_file", self.ca_file.is_some()),
        ];
        if self.issuer.is_empty() {
            let set = others.into_iter().find(|(_, is_set)| *is_set);
            return set.map_or(Ok(()), |(key, _)| {
                Err(format!("{key}: set auth.oidc.issuer too, the URL of the identity provider"))
            });
        }
        let is_url = |url: &Url| is_safe_url(url) && url.query().is_none() && url.fragment().is_none();
        if !self.issuer.parse().is_ok_and(|url| is_url(&url)) {
            return Err("issuer: must be the URL of the identity provider, such as https://login.example.org, without a \
                        query; http:// is for loopback addresses only"
                .to_owned());
        }
        let is_scope = |text: &str| {
            !text.is_empty() && text.chars().all(|c| c.is_ascii_graphic() && c != '"' && c != '\\')
        };
        let rules = [
            (
                !self.audience.is_empty(),
                "audience: set it to the `aud` of the tokens that programs send, such as \
                 https://everwatch.example.org, or to the client id",
            ),
            (
                !self.roles.is_empty(),
                "roles: give at least one group a role, such as { sre = \"admin\" }; otherwise the manager refuses every user",
            ),
            (self.roles.len() <= ROLES_MAX, "roles: at most 1000 groups"),
            (
                !self.roles_claim.is_empty(),
                "roles_claim: name the claim with the groups of a user, such as groups",
            ),
            (
                self.client_secret_file.is_none() || !self.client_id.is_empty(),
                "client_secret_file: set auth.oidc.client_id too, the client to which the secret belongs",
            ),
            (
                self.scopes.iter().all(|scope| is_scope(scope)),
                "scopes: write one scope in each item, without spaces, such as [\"profile\", \"groups\"]",
            ),
        ];
        let broken = rules.into_iter().find(|(holds, _)| !holds);
        broken.map_or(Ok(()), |(_, rule)| Err(rule.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[expect(clippy::needless_pass_by_value, reason = "written in place as a literal")]
    fn section(changes: Value) -> OidcSection {
        let mut all = json!({
            "issuer": "https://login.example.org", "audience": "everwatch", "roles": { "sre": "admin" },
        });
        for (key, value) in changes.as_object().unwrap() {
            all[key] = value.clone();
        }
        serde_json::from_value(all).unwrap()
    }

    #[test]
    fn without_an_issuer_there_is_no_provider() {
        assert!(OidcSection::default().settings().unwrap().is_none());
        let settings = section(json!({})).settings().unwrap().unwrap();
        assert_eq!(settings.policy.roles_claim, "groups");
        assert_eq!(section(json!({ "issuer": "http://[::1]:9" })).check(), Ok(()));
    }

    #[test]
    fn a_configuration_that_cannot_work_is_refused_with_its_key_and_the_cure() {
        for (changes, told) in [
            (json!({ "issuer": "" }), "auth.oidc.audience: set auth.oidc.issuer too"),
            (json!({ "issuer": "http://login.example.org" }), "auth.oidc.issuer: must be the URL"),
            (json!({ "issuer": "login.example.org" }), "auth.oidc.issuer: must be the URL"),
            (json!({ "issuer": "https://e.org/?a=b" }), "auth.oidc.issuer: must be the URL"),
            (json!({ "audience": "" }), "auth.oidc.audience: set it to the `aud`"),
            (json!({ "roles": {} }), "auth.oidc.roles: give at least one group a role"),
            (json!({ "roles_claim": "" }), "auth.oidc.roles_claim: name the claim"),
            (
                json!({ "client_secret_file": "/f" }),
                "auth.oidc.client_secret_file: set auth.oidc.client_id too",
            ),
            (json!({ "scopes": ["profile email"] }), "auth.oidc.scopes: write one scope in each item"),
        ] {
            let refused = section(changes).settings().unwrap_err().to_string();
            assert!(refused.starts_with(told), "{refused}");
        }
        let unknown: Result<OidcSection, _> = serde_json::from_value(json!({ "isuer": "x" }));
        assert!(unknown.unwrap_err().to_string().contains("`isuer`"));
    }
}
