//! `everwatch login|logout|whoami|token|role|audit|context …`

use super::operations::{list, number_of_listed};
use super::unknown::hinted;
use crate::cli::{AccessRole as Role, Audit, Context, Login, OutputArgs, Token};
use crate::client::{Client, Failure};
use crate::contexts::{Contexts, Known};
use crate::error_wording::yaml_error;
use crate::item::Item;
use crate::output::{self, AUDIT, Output, ROLES, TOKENS, answer, note, print, yaml};
use crate::refusals::{as_flags, in_file};
use anyhow::Context as _;
use everwatch_api as api;
use everwatch_core::spelling::advice;
use everwatch_core::wording::counted;
use reqwest::Method;
use serde_json::Value;
use std::io::{IsTerminal as _, Read as _};
use std::path::Path;

const TOKENS_OF_ALL: &str = "/v1/tokens?limit=1000";

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn tokens(server: &str, verb: Token) -> anyhow::Result<()> {
    let client = &Client::new(server)?;
    match verb {
        Token::List { sessions, watched } => {
            list(client, &format!("/v1/tokens?limit=1000&sessions={sessions}"), &TOKENS, &watched).await
        }
        Token::Create { name, role, expires_in } => {
            let namespace = client.namespace().map(str::to_owned);
            let is_first =
                client.read::<api::Whoami>("/v1/whoami").await.is_ok_and(|who| !who.authentication);
            let body = serde_json::to_value(api::NewToken { name, role, namespace, expires_in })?;
            let created = client.send(Method::POST, "/v1/tokens", Some(&body)).await;
            secret(&created.map_err(as_flags)?);
            if is_first {
                note(
                    "from now on every request needs a token: store this one with `everwatch login`, which reads it from \
                     standard input, and create one for each user and program",
                );
            }
            Ok(())
        }
        Token::Rotate { token, overlap, expires_in } => {
            let body = serde_json::to_value(api::Rotation { overlap, expires_in })?;
            let path = format!("/v1/tokens/{}/rotate", Client::part(&token));
            let sent = client.send(Method::POST, &path, Some(&body));
            let sent = hinted(client, (TOKENS_OF_ALL, &token), sent).await;
            secret(&sent.map_err(as_flags)?);
            Ok(())
        }
        Token::Revoke { token } => {
            let path = format!("/v1/tokens/{}", Client::part(&token));
            hinted(client, (TOKENS_OF_ALL, &token), client.order(Method::DELETE, &path, None)).await?;
            answer(&format!("token {token} is revoked"));
            Ok(())
        }
    }
}

/// Only the secret goes to standard output, so that it can be redirected to a file.
fn secret(created: &api::CreatedToken) {
    let api::CreatedToken { token, id, name, role, namespace, expires_at, previous_until } = created;
    let within = namespace.as_ref().map_or_else(String::new, |it| format!(" in namespace {it}"));
    if let Some(until) = previous_until {
        note(&format!("the secret before it is valid until {until}"));
    }
    note(&format!(
        "token {id} of {name}, role {role}{within}, valid until {expires_at}; it is not shown again:"
    ));
    print(token);
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn roles(server: &str, verb: Role) -> anyhow::Result<()> {
    let client = &Client::new(server)?;
    let path = |role: &str| format!("/v1/roles/{}", Client::part(role));
    match verb {
        Role::List(watched) => list(client, "/v1/roles", &ROLES, &watched).await,
        Role::Get { role, shown } => {
            let path = path(&role);
            let it: Item<api::Role> = hinted(client, ("/v1/roles", &role), client.read(&path)).await?;
            // YAML is what `role apply` reads.
            if shown.output == Output::Yaml || !output::structured(&it, &shown)? {
                print(yaml(&api::RoleSettings { grants: it.grants.clone() })?.trim_end());
            }
            Ok(())
        }
        Role::Apply { role, file } => {
            let body = document(&file)?;
            let sent = client.send::<api::Role>(Method::PUT, &path(&role), Some(&body)).await;
            let it = sent.map_err(|error| in_file(error, &file))?;
            answer(&format!("role {} is applied: {}", it.name, counted(it.grants.len() as u64, "grant")));
            Ok(())
        }
        Role::Delete { role } => {
            let path = path(&role);
            hinted(client, ("/v1/roles", &role), client.order(Method::DELETE, &path, None)).await?;
            answer(&format!("role {role} is deleted"));
            Ok(())
        }
    }
}

/// A YAML or JSON document; `-` is standard input.
pub(super) fn document(file: &Path) -> anyhow::Result<Value> {
    let text = if file == Path::new("-") {
        std::io::read_to_string(std::io::stdin()).context("standard input cannot be read")?
    } else {
        std::fs::read_to_string(file)
            .map_err(|error| Failure::Usage(format!("{}: {error}", file.display())))?
    };
    let wrong = |why: String| Failure::Usage(format!("{}: {why}", file.display()));
    Ok(serde_saphyr::from_str(&text).map_err(|error| wrong(yaml_error(&error)))?)
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn audit(server: &str, verb: Audit) -> anyhow::Result<()> {
    let Audit::List { principal, limit, watched } = verb;
    let principal = principal.map(|name| format!("&principal={}", Client::part(&name))).unwrap_or_default();
    let client = &Client::new(server)?;
    let path = format!("/v1/audit?limit={limit}{principal}");
    if number_of_listed(client, &path, &AUDIT, &watched).await? == 0
        && client.read::<api::Whoami>("/v1/whoami").await.is_ok_and(|who| !who.authentication)
    {
        note(
            "the audit log begins when requests need a token: `everwatch token create` creates the first one",
        );
    }
    Ok(())
}

#[tokio::main(flavor = "current_thread")]
pub(crate) async fn whoami(server: &str, shown: &OutputArgs) -> anyhow::Result<()> {
    let who: Item<api::Whoami> = Client::new(server)?.read("/v1/whoami").await?;
    match shown.output {
        Output::Name => print(who.name.as_deref().unwrap_or("-")),
        _ if output::structured(&who, shown)? => {}
        _ => print(&told(server, &who)),
    }
    Ok(())
}

fn told(server: &str, who: &api::Whoami) -> String {
    if !who.authentication {
        return format!("{server} needs no token: everybody who reaches it may do everything");
    }
    let text = |it: &Option<String>| it.clone().unwrap_or_else(|| "-".to_owned());
    let within = who.namespace.as_ref().map_or_else(String::new, |it| format!(" in namespace {it}"));
    let until = who.expires_at.map_or_else(String::new, |at| format!(", valid until {at}"));
    format!(
        "{}, role {}{within}, at {server}{until}\nmay: {}",
        text(&who.name),
        text(&who.role),
        who.verbs.join(", ")
    )
}

/// Stores a token for a manager, after the manager has accepted it.
#[tokio::main(flavor = "current_thread")]
pub(crate) async fn login(server: &str, login: Login) -> anyhow::Result<()> {
    let mut contexts = Contexts::load()?;
    let token = read_token()?;
    let client = Client::with_token(server, Some(token.clone()))?;
    let who: api::Whoami = client.read("/v1/whoami").await?;
    if !who.authentication {
        return Err(Failure::Failed(format!("{server} needs no token: there is nothing to log in to")).into());
    }
    let name = login.context.unwrap_or_else(|| host(server));
    contexts.contexts.insert(
        name.clone(),
        Known {
            server: server.to_owned(),
            token: Some(token),
            namespace: client.namespace().map(str::to_owned),
        },
    );
    contexts.current = Some(name.clone());
    contexts.save()?;
    answer(&format!("logged in to {server} as {}; the context is {name}", who.name.unwrap_or_default()));
    Ok(())
}

fn host(server: &str) -> String {
    server.split("://").last().unwrap_or(server).trim_end_matches('/').to_owned()
}

/// From standard input; a terminal is asked, and shows nothing of it.
fn read_token() -> anyhow::Result<String> {
    let mut text = String::new();
    if std::io::stdin().is_terminal() {
        let _hidden = Hidden::begin();
        note("token (it is not shown):");
        std::io::stdin().read_line(&mut text)?;
    } else {
        std::io::stdin().take(10_000).read_to_string(&mut text)?;
    }
    let token = text.trim().to_owned();
    if token.is_empty() {
        return Err(Failure::Usage(
            "no token was given: type it, or redirect a file to standard input".to_owned(),
        )
        .into());
    }
    Ok(token)
}

/// While it lives, the terminal does not show what is typed.
struct Hidden(Option<nix::sys::termios::Termios>);

impl Hidden {
    fn begin() -> Self {
        use nix::sys::termios::{LocalFlags, SetArg, tcgetattr, tcsetattr};
        let Ok(before) = tcgetattr(std::io::stdin()) else { return Self(None) };
        let mut hidden = before.clone();
        hidden.local_flags.remove(LocalFlags::ECHO);
        Self(tcsetattr(std::io::stdin(), SetArg::TCSANOW, &hidden).is_ok().then_some(before))
    }
}

impl Drop for Hidden {
    fn drop(&mut self) {
        use nix::sys::termios::{SetArg, tcsetattr};
        if let Some(before) = &self.0 {
            let _closed = tcsetattr(std::io::stdin(), SetArg::TCSANOW, before);
        }
    }
}

/// Deletes the token of this manager from the file. It stays valid.
pub(crate) fn logout(server: &str) -> anyhow::Result<()> {
    let mut contexts = Contexts::load()?;
    let mut forgotten = 0;
    for known in contexts.contexts.values_mut().filter(|known| known.server == server) {
        forgotten += usize::from(known.token.take().is_some());
    }
    if forgotten == 0 {
        return Err(Failure::NotFound(format!("no token is stored for {server}")).into());
    }
    contexts.save()?;
    answer(&format!(
        "logged out of {server}; the token itself stays valid: `everwatch token revoke` ends it"
    ));
    Ok(())
}

pub(crate) fn contexts(verb: Context) -> anyhow::Result<()> {
    let mut contexts = Contexts::load()?;
    match verb {
        Context::List => {
            for (name, known) in &contexts.contexts {
                let mark = if contexts.current.as_ref() == Some(name) { "*" } else { " " };
                let token = if known.token.is_some() { "" } else { "  (no token)" };
                print(&format!("{mark} {name}  {}{token}", known.server));
            }
            if contexts.contexts.is_empty() {
                print("no contexts: `everwatch login --server URL` makes one");
            }
            return Ok(());
        }
        Context::Use { context } => {
            check(&contexts, &context)?;
            answer(&format!("the context is {context}"));
            contexts.current = Some(context);
        }
        Context::Delete { context } => {
            check(&contexts, &context)?;
            contexts.contexts.remove(&context);
            contexts.current = contexts.current.filter(|current| *current != context);
            answer(&format!("context {context} is deleted"));
        }
    }
    contexts.save()
}

fn check(contexts: &Contexts, name: &str) -> anyhow::Result<()> {
    if contexts.contexts.contains_key(name) {
        return Ok(());
    }
    let known: Vec<&str> = contexts.contexts.keys().map(String::as_str).collect();
    let advice = advice(name, "contexts", &known);
    Err(Failure::NotFound(format!("there is no context `{name}`; {advice}")).into())
}
