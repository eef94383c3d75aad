//! An identity provider in this process, whose keys and tokens a test chooses.

use axum::extract::{Form, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use everwatch_core::clock;
use everwatch_door::serve::{Limits, serve};
use everwatch_door::tls::{Files, Tls};
use ring::rand::SystemRandom;
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair, KeyPair as _};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

pub(super) const CLIENT: &str = "console";
pub(super) const AUDIENCE: &str = "https://everwatch.example.org";
pub(super) const SECRET: &str = "a secret: of the client";

pub(super) enum Signer {
    Ed(Ed25519KeyPair),
    Ec(EcdsaKeyPair),
}

impl Signer {
    pub(super) fn ed() -> Self {
        let key = Ed25519KeyPair::generate_pkcs8(&SystemRandom::new()).unwrap();
        Self::Ed(Ed25519KeyPair::from_pkcs8(key.as_ref()).unwrap())
    }
    pub(super) fn ec() -> Self {
        let random = SystemRandom::new();
        let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
        Self::Ec(EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, key.as_ref(), &random).unwrap())
    }
    pub(super) fn public(&self, id: &str) -> Value {
        match self {
            Self::Ed(key) => {
                json!({"kty": "OKP", "crv": "Ed25519", "kid": id, "use": "sig", "x": encoded(key.public_key().as_ref())})
            }
            Self::Ec(key) => {
                let (x, y) = key.public_key().as_ref()[1..].split_at(32);
                json!({"kty": "EC", "crv": "P-256", "kid": id, "alg": "ES256", "x": encoded(x), "y": encoded(y)})
            }
        }
    }
    /// A token with this header, to which the algorithm of the key is added, and these claims.
    pub(super) fn sign(&self, mut header: Value, claims: &Value) -> String {
        header["alg"] = match self {
            Self::Ed(_) => json!("EdDSA"),
            Self::Ec(_) => json!("ES256"),
        };
        let message = unsigned(&header, claims);
        let signature = match self {
            Self::Ed(key) => encoded(key.sign(message.as_bytes()).as_ref()),
            Self::Ec(key) => encoded(key.sign(&SystemRandom::new(), message.as_bytes()).unwrap().as_ref()),
        };
        format!("{message}.{signature}")
    }
}

pub(super) fn encoded(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// The first two parts of a token.
pub(super) fn unsigned(header: &Value, claims: &Value) -> String {
    format!("{}.{}", encoded(header.to_string().as_bytes()), encoded(claims.to_string().as_bytes()))
}

pub(super) fn seconds(from_now: i64) -> i64 {
    clock::now().0 / 1000 + from_now
}

#[derive(Default)]
struct Shared {
    issuer: String,
    keys: Mutex<Vec<Value>>,
    /// How often the keys were fetched.
    fetches: AtomicUsize,
    is_down: Mutex<bool>,
    /// The token of each code.
    id_tokens: Mutex<BTreeMap<String, String>>,
    /// What was last posted to the token endpoint.
    exchanged: Mutex<BTreeMap<String, String>>,
}

pub(super) struct Provider {
    shared: Arc<Shared>,
    _serving: JoinSet<()>,
}

impl Provider {
    pub(super) async fn start(keys: Vec<Value>) -> Self {
        Self::listening(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap(), keys)
    }

    /// Answers by HTTPS, with this certificate of `localhost`.
    pub(super) async fn secure(files: Files, keys: Vec<Value>) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let issuer = format!("https://localhost:{}", listener.local_addr().unwrap().port());
        let (shared, app) = app(issuer, keys);
        let tls = Some(Arc::new(Tls::read(files).unwrap()));
        let mut serving = JoinSet::new();
        serving.spawn(serve(listener, tls, app, Limits::default(), CancellationToken::new()));
        Self { shared, _serving: serving }
    }

    /// Answers at an address that was bound before.
    pub(super) fn listening(listener: TcpListener, keys: Vec<Value>) -> Self {
        let (shared, app) = app(issuer_at(listener.local_addr().unwrap()), keys);
        let mut serving = JoinSet::new();
        serving.spawn(async move { axum::serve(listener, app).await.unwrap() });
        Self { shared, _serving: serving }
    }

    pub(super) fn issuer(&self) -> &str {
        &self.shared.issuer
    }
    pub(super) fn fetches(&self) -> usize {
        self.shared.fetches.load(Ordering::Relaxed)
    }
    pub(super) fn set_keys(&self, keys: Vec<Value>) {
        *self.shared.keys.lock().unwrap() = keys;
    }
    pub(super) fn set_down(&self, is_down: bool) {
        *self.shared.is_down.lock().unwrap() = is_down;
    }
    /// The token that this code is exchanged for.
    pub(super) fn set_id_token(&self, code: &str, token: String) {
        self.shared.id_tokens.lock().unwrap().insert(code.to_owned(), token);
    }
    pub(super) fn exchanged(&self, name: &str) -> String {
        self.shared.exchanged.lock().unwrap().get(name).cloned().unwrap_or_default()
    }

    /// The claims of a valid token of a request, with these changes.
    #[expect(clippy::needless_pass_by_value, reason = "written in place as a literal")]
    pub(super) fn claims(&self, changes: Value) -> Value {
        let mut claims = json!({
            "iss": self.issuer(), "aud": AUDIENCE, "sub": "1", "preferred_username": "jane", "exp": seconds(300),
            "groups": ["sre"],
        });
        for (name, value) in changes.as_object().unwrap() {
            claims[name] = value.clone();
        }
        claims
    }
}

fn app(issuer: String, keys: Vec<Value>) -> (Arc<Shared>, Router) {
    let shared = Arc::new(Shared { issuer, keys: Mutex::new(keys), ..Shared::default() });
    let app = Router::new()
        .route("/.well-known/openid-configuration", get(discovery))
        .route("/keys", get(keys_of))
        .route("/token", post(token))
        .with_state(Arc::clone(&shared));
    (shared, app)
}

pub(super) fn issuer_at(addr: SocketAddr) -> String {
    format!("http://{addr}")
}

async fn discovery(State(shared): State<Arc<Shared>>) -> Response {
    if *shared.is_down.lock().unwrap() {
        return StatusCode::BAD_GATEWAY.into_response();
    }
    let issuer = &shared.issuer;
    Json(json!({
        "issuer": issuer, "jwks_uri": format!("{issuer}/keys"), "token_endpoint": format!("{issuer}/token"),
        "authorization_endpoint": format!("{issuer}/authorize?theme=dark"),
    }))
    .into_response()
}

async fn keys_of(State(shared): State<Arc<Shared>>) -> Json<Value> {
    shared.fetches.fetch_add(1, Ordering::Relaxed);
    Json(json!({ "keys": *shared.keys.lock().unwrap() }))
}

async fn token(
    State(shared): State<Arc<Shared>>,
    headers: HeaderMap,
    Form(mut form): Form<BTreeMap<String, String>>,
) -> Response {
    let sent = headers[header::AUTHORIZATION].to_str().unwrap().strip_prefix("Basic ").unwrap();
    let pair = String::from_utf8(STANDARD.decode(sent).unwrap()).unwrap();
    form.insert("basic".to_owned(), pair);
    let found = shared.id_tokens.lock().unwrap().remove(&form["code"]);
    *shared.exchanged.lock().unwrap() = form;
    match found {
        Some(token) => Json(json!({ "id_token": token, "token_type": "Bearer" })).into_response(),
        None => {
            let body = json!({ "error": "invalid_grant", "error_description": "the code is not valid" });
            (StatusCode::BAD_REQUEST, Json(body)).into_response()
        }
    }
}
