//! The keys of an identity provider, and the tokens that are signed with them.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use everwatch_core::access::{ALGORITHMS, JWT_MAX, OidcRefusal};
use jsonwebtoken::errors::ErrorKind;
use jsonwebtoken::jwk::{AlgorithmParameters, EllipticCurve, Jwk, PublicKeyUse};
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde::Deserialize;
use serde_json::{Map, Value};

/// The most keys that a manager reads.
const KEYS_MAX: usize = 100;
/// The longest text of a token that a refusal repeats, in characters.
const SHOWN: usize = 100;

/// What the first part of a token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Header {
    pub(super) algorithm: Algorithm,
    pub(super) key: Option<String>,
    /// In lower case, without `application/`.
    pub(super) media_type: Option<String>,
}

/// One public key.
#[derive(Debug, Clone)]
struct Key {
    id: Option<String>,
    /// `None`: any that suits the key.
    algorithm: Option<String>,
    key: DecodingKey,
}

/// The public keys of a provider.
#[derive(Debug, Clone, Default)]
pub(super) struct Keys(Vec<Key>);

impl Header {
    /// Reads the first part of a token, whose signature is not verified yet.
    pub(super) fn read(token: &str) -> Result<Self, OidcRefusal> {
        #[derive(Deserialize)]
        struct Raw {
            alg: String,
            kid: Option<String>,
            typ: Option<String>,
            crit: Option<Value>,
        }
        if token.len() > JWT_MAX {
            return Err(OidcRefusal::TooLong(token.len()));
        }
        let malformed = |why: &str| OidcRefusal::Malformed(why.to_owned());
        let first = token.split('.').next().unwrap_or_default();
        let first = URL_SAFE_NO_PAD.decode(first).map_err(|_| malformed("its header is not base64"))?;
        let raw: Raw = serde_json::from_slice(&first).map_err(|_| malformed("its header is not readable"))?;
        if raw.crit.is_some() {
            return Err(malformed("its header has `crit`, which managers do not support"));
        }
        let algorithm = raw.alg.parse().ok().filter(|_| ALGORITHMS.contains(&raw.alg.as_str()));
        let algorithm = algorithm.ok_or_else(|| OidcRefusal::Algorithm(shown(&raw.alg)))?;
        let media_type = raw.typ.map(|it| {
            let text = it.to_ascii_lowercase();
            text.strip_prefix("application/").unwrap_or(&text).to_owned()
        });
        Ok(Self { algorithm, key: raw.kid, media_type })
    }
}

impl Keys {
    /// Reads a JSON Web Key Set. Keys that cannot verify a signature are left out.
    pub(super) fn read(set: &Value) -> Result<Self, String> {
        let keys = set.get("keys").and_then(Value::as_array).ok_or("its key set has no list `keys`")?;
        if keys.len() > KEYS_MAX {
            return Err(format!("its key set has {} keys: a manager reads at most {KEYS_MAX}", keys.len()));
        }
        let keys: Vec<Key> = keys.iter().filter_map(Key::read).collect();
        if keys.is_empty() {
            Err("its key set has no key that verifies signatures".to_owned())
        } else {
            Ok(Self(keys))
        }
    }

    /// Whether another fetch of the keys cannot help.
    pub(super) fn settles(&self, header: &Header) -> bool {
        !matches!(self.find(header), Ok(None))
    }

    /// The key of a token; `Ok(None)` if the provider may have one that is not known yet.
    pub(super) fn find(&self, header: &Header) -> Result<Option<&DecodingKey>, OidcRefusal> {
        let mut suitable = self.0.iter().filter(|key| key.suits(header.algorithm));
        match &header.key {
            Some(id) => Ok(suitable.find(|key| key.id.as_ref() == Some(id)).map(|it| &it.key)),
            None => match (suitable.next(), suitable.next()) {
                (Some(only), None) => Ok(Some(&only.key)),
                (Some(_), Some(_)) => Err(OidcRefusal::KeyUnnamed),
                (None, _) => Ok(None),
            },
        }
    }
}

impl Key {
    fn read(value: &Value) -> Option<Self> {
        let jwk = Jwk::deserialize(value).ok()?;
        let signs = jwk.common.public_key_use.as_ref().is_none_or(|it| *it == PublicKeyUse::Signature);
        let is_known = match &jwk.algorithm {
            AlgorithmParameters::RSA(_) => true,
            AlgorithmParameters::EllipticCurve(it) => {
                matches!(it.curve, EllipticCurve::P256 | EllipticCurve::P384)
            }
            AlgorithmParameters::OctetKeyPair(it) => it.curve == EllipticCurve::Ed25519,
            // A secret.
            AlgorithmParameters::OctetKey(_) => false,
        };
        if !signs || !is_known {
            return None;
        }
        let algorithm = value.get("alg").and_then(Value::as_str).map(str::to_owned);
        Some(Self { id: jwk.common.key_id.clone(), algorithm, key: DecodingKey::from_jwk(&jwk).ok()? })
    }

    fn suits(&self, algorithm: Algorithm) -> bool {
        let is_named = self.algorithm.as_ref().is_none_or(|name| name.parse() == Ok(algorithm));
        is_named && self.key.family() == algorithm.family()
    }
}

/// Verifies the signature of a token, and nothing else; returns its claims.
pub(super) fn verified(
    token: &str,
    algorithm: Algorithm,
    key: &DecodingKey,
) -> Result<Map<String, Value>, OidcRefusal> {
    // `core` decides about the claims.
    let mut validation = Validation::new(algorithm);
    (validation.validate_exp, validation.validate_aud) = (false, false);
    validation.required_spec_claims.clear();
    match jsonwebtoken::decode(token, key, &validation) {
        Ok(token) => Ok(token.claims),
        Err(error) => Err(match error.kind() {
            ErrorKind::InvalidSignature | ErrorKind::InvalidAlgorithm | ErrorKind::InvalidKeyFormat => {
                OidcRefusal::Signature
            }
            _ => OidcRefusal::Malformed(shown(&error.to_string())),
        }),
    }
}

pub(super) fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(SHOWN).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn token(header: &Value) -> String {
        format!("{}.e30.c2ln", URL_SAFE_NO_PAD.encode(header.to_string()))
    }

    fn header(header: &Value) -> Header {
        Header::read(&token(header)).unwrap()
    }

    fn rsa(id: Option<&str>, more: &Value) -> Value {
        let mut key = json!({ "kty": "RSA", "n": URL_SAFE_NO_PAD.encode([7; 256]), "e": "AQAB", "kid": id });
        for (name, value) in more.as_object().unwrap() {
            key[name] = value.clone();
        }
        key
    }

    fn keys(keys: &[Value]) -> Result<Keys, String> {
        Keys::read(&json!({ "keys": keys }))
    }

    #[test]
    fn only_signatures_without_a_shared_secret_are_accepted() {
        for name in ALGORITHMS {
            assert_eq!(format!("{:?}", header(&json!({ "alg": name })).algorithm), name);
        }
        for name in ["none", "None", "HS256", "HS384", "HS512", "ES512", "RS1", "", "rs256"] {
            let refused = Header::read(&token(&json!({ "alg": name })));
            assert_eq!(refused, Err(OidcRefusal::Algorithm(name.to_owned())));
        }
        for malformed in ["", "..", "e30.e30.", "bm8.e30.x", "=.=.="] {
            assert!(matches!(Header::read(malformed), Err(OidcRefusal::Malformed(_))), "{malformed}");
        }
        let critical = token(&json!({ "alg": "RS256", "crit": ["b64"] }));
        assert!(matches!(Header::read(&critical), Err(OidcRefusal::Malformed(_))));
        let typed = header(&json!({ "alg": "RS256", "typ": "application/AT+JWT" }));
        assert_eq!(typed.media_type.as_deref(), Some("at+jwt"));
        assert_eq!(Header::read(&"x".repeat(JWT_MAX + 1)), Err(OidcRefusal::TooLong(JWT_MAX + 1)));
    }

    #[test]
    fn a_key_is_found_by_its_id_and_algorithm() {
        let all = [
            rsa(Some("a"), &json!({})),
            rsa(Some("b"), &json!({ "alg": "PS256" })),
            rsa(Some("enc"), &json!({ "use": "enc" })),
            json!({ "kty": "oct", "k": "c2VjcmV0", "kid": "secret" }),
            json!({ "kty": "EC", "crv": "secp256k1", "x": "AA", "y": "AA", "kid": "curve" }),
            json!({ "kty": "future", "kid": "new" }),
            json!(7),
        ];
        let known = keys(&all).unwrap();
        assert_eq!(known.0.len(), 2, "the others verify no signature");
        let finds = |alg: &str, kid: Option<&str>| {
            let found = known.find(&header(&json!({ "alg": alg, "kid": kid })));
            found.map(|key| key.is_some())
        };
        assert_eq!((finds("RS256", Some("a")), finds("PS512", Some("a"))), (Ok(true), Ok(true)));
        assert_eq!((finds("PS256", Some("b")), finds("RS256", Some("b"))), (Ok(true), Ok(false)));
        assert_eq!((finds("ES256", Some("a")), finds("RS256", Some("enc"))), (Ok(false), Ok(false)));
        assert_eq!((finds("RS256", None), finds("PS256", None)), (Ok(true), Err(OidcRefusal::KeyUnnamed)));
        assert_eq!(finds("EdDSA", None), Ok(false));
    }

    #[test]
    fn a_set_without_a_usable_key_is_told() {
        assert!(Keys::read(&json!({})).unwrap_err().contains("no list `keys`"));
        assert!(keys(&[]).unwrap_err().contains("no key"));
        let many: Vec<Value> = (0..=KEYS_MAX).map(|_| rsa(None, &json!({}))).collect();
        assert!(keys(&many).unwrap_err().contains("101 keys"));
    }
}
