//! An OpenID Connect provider of a test's own, and a browser without a screen that logs in at it.

use crate::cluster::from_environment;
use reqwest::header::{COOKIE, HOST, LOCATION, SET_COOKIE};
use reqwest::{Client, Response, Url, redirect};
use serde_json::Value;
use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

/// The `aud` of its tokens for programs.
pub const AUDIENCE: &str = "https://everwatch.example.org";
/// The secret of its clients `console` and `ci`.
pub const SECRET: &str = "the secret of the client";
/// The most pages between the start and the end of a login.
const PAGES_MAX: usize = 20;

/// A provider in a process of its own.
pub struct IdentityProvider {
    process: Child,
    pub issuer: String,
    client: Client,
}

impl IdentityProvider {
    /// Starts a provider that may lead browsers to these addresses.
    pub fn start(redirect_uris: &[String]) -> Self {
        let folder = PathBuf::from(from_environment("EVERWATCH_TEST_IDENTITY_PROVIDER"));
        let mut command = Command::new("node");
        command.arg("server.mjs").args(redirect_uris).current_dir(folder);
        let mut process =
            command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut issuer = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut issuer).unwrap();
        assert!(issuer.starts_with("http://"), "the identity provider did not start: {issuer}");
        let client = Client::builder().redirect(redirect::Policy::none()).build().unwrap();
        Self { process, issuer: issuer.trim().to_owned(), client }
    }

    /// The environment of a manager that uses it; `secret_file` contains [`SECRET`].
    pub fn environment(&self, secret_file: &str, roles: &[(&str, &str)]) -> Vec<(String, String)> {
        let mut all = vec![
            ("ISSUER".to_owned(), self.issuer.clone()),
            ("CLIENT_ID".to_owned(), "console".to_owned()),
            ("CLIENT_SECRET_FILE".to_owned(), secret_file.to_owned()),
            ("AUDIENCE".to_owned(), AUDIENCE.to_owned()),
        ];
        let role =
            |(group, role): &(&str, &str)| (format!("ROLES__{}", group.to_uppercase()), (*role).to_owned());
        all.extend(roles.iter().map(role));
        all.into_iter().map(|(key, value)| (format!("EVERWATCH_AUTH__OIDC__{key}"), value)).collect()
    }

    /// A token of the client `ci`, whose group is `deploy`.
    pub async fn token(&self) -> String {
        let form = format!("grant_type=client_credentials&scope=api&resource={AUDIENCE}");
        let request = self
            .client
            .post(format!("{}/token", self.issuer))
            .basic_auth("ci", Some(SECRET.replace(' ', "%20")));
        let request = request.header("content-type", "application/x-www-form-urlencoded").body(form);
        let answer: Value = request.send().await.unwrap().json().await.unwrap();
        answer["access_token"].as_str().unwrap_or_else(|| panic!("{answer}")).to_owned()
    }

    /// Replaces the key with which it signs.
    pub async fn rotate(&self) {
        self.post("rotate").await;
    }

    /// Ends the sessions of all users at the provider.
    pub async fn forget_users(&self) {
        self.post("forget").await;
    }

    async fn post(&self, path: &str) {
        let answer = self.client.post(format!("{}/{path}", self.issuer)).send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
    }

    pub fn kill(&mut self) {
        let _ended_already = self.process.kill();
        let _reaped_already = self.process.wait();
    }
}

impl Drop for IdentityProvider {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Follows redirects and keeps cookies, as a browser does.
pub struct Visitor {
    client: Client,
    /// By the host and port that set them.
    cookies: BTreeMap<String, BTreeMap<String, String>>,
}

fn authority(url: &Url) -> String {
    format!("{}:{}", url.host_str().unwrap_or_default(), url.port_or_known_default().unwrap_or_default())
}

impl Visitor {
    #[expect(clippy::new_without_default, reason = "a visitor is not a value that something has by default")]
    pub fn new() -> Self {
        let client = Client::builder().redirect(redirect::Policy::none()).build().unwrap();
        Self { client, cookies: BTreeMap::new() }
    }

    /// Loads a page, or sends a form. `through`: the address that answers in place of the one in the URL.
    async fn load(&mut self, url: &Url, form: Option<&str>, through: Option<&str>) -> Response {
        let place = authority(url);
        let mut target = url.clone();
        if let Some(other) = through {
            let other: Url = other.parse().unwrap();
            target.set_port(other.port()).unwrap();
        }
        let mut request = match form {
            Some(form) => {
                let request = self.client.post(target).body(form.to_owned());
                request.header("content-type", "application/x-www-form-urlencoded")
            }
            None => self.client.get(target),
        };
        let cookies = self.cookies.entry(place.clone()).or_default();
        let cookies: Vec<String> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        request = request.header(COOKIE, cookies.join("; ")).header(HOST, &place);
        let response = request.send().await.unwrap();
        for set in response.headers().get_all(SET_COOKIE) {
            let text = set.to_str().unwrap().split(';').next().unwrap().to_owned();
            let (name, value) = text.split_once('=').unwrap();
            self.cookies.entry(place.clone()).or_default().insert(name.to_owned(), value.to_owned());
        }
        response
    }

    /// Logs in to the console of a manager as this user. Another manager, or the same, answers the callback, as behind a
    /// load balancer. Returns the last response of that manager.
    pub async fn log_in(&mut self, manager: &str, other: &str, user: &str) -> Response {
        let mut url: Url = format!("{manager}/v1/session/oidc").parse().unwrap();
        for _ in 0..PAGES_MAX {
            let is_callback = url.path() == "/v1/session/oidc/callback";
            let mut response = self.load(&url, None, is_callback.then_some(other)).await;
            if is_callback {
                return response;
            }
            if response.status().is_success() {
                let page = response.text().await.unwrap();
                let form = if page.contains("name=\"login\"") {
                    format!("prompt=login&login={}&password=x", user.replace('+', "%2B"))
                } else {
                    "prompt=consent".to_owned()
                };
                response = self.load(&url, Some(&form), None).await;
            }
            let place = response.headers().get(LOCATION).map(|it| it.to_str().unwrap().to_owned());
            url = url
                .join(&place.unwrap_or_else(|| panic!("{url} led nowhere: {}", response.status())))
                .unwrap();
        }
        panic!("the login did not end, last at {url}")
    }

    /// The JSON at an address of a manager.
    pub async fn get(&mut self, url: &str) -> (u16, Value) {
        let response = self.load(&url.parse().unwrap(), None, None).await;
        let status = response.status().as_u16();
        (status, response.json().await.unwrap_or_default())
    }

    /// The cookie of the session, as a header.
    pub fn session(&self, manager: &str) -> String {
        let cookies = &self.cookies[&authority(&manager.parse().unwrap())];
        format!("__Host-everwatch={}", cookies["__Host-everwatch"])
    }
}
