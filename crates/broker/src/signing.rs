//! The keys with which managers sign messages and services verify them. Their files are read again every few seconds, so
//! that new keys need no restart.

use everwatch_core::clock::{self, Timestamp};
use everwatch_core::wire::signature::{KeyId, Refused, SeenCommands, Signature, signed_bytes};
use ring::signature::{ED25519, Ed25519KeyPair, KeyPair as _, UnparsedPublicKey};
use rustls::pki_types::pem::{Error as PemError, PemObject as _};
use rustls::pki_types::{PrivatePkcs8KeyDer, SubjectPublicKeyInfoDer};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// How often the file of a key is read.
const READ_EVERY: Duration = Duration::from_secs(5);
/// The most keys of a file.
const KEYS_MAX: usize = 100;
/// What precedes the 32 bytes of an Ed25519 public key in its DER form (RFC 8410).
const ED25519_SPKI: [u8; 12] = [0x30, 0x2a, 0x30, 0x05, 0x06, 0x03, 0x2b, 0x65, 0x70, 0x03, 0x21, 0x00];

/// The private key of the managers.
struct SignKey {
    pair: Ed25519KeyPair,
    id: KeyId,
}

impl SignKey {
    fn parse(text: &str) -> Result<Self, String> {
        let cure = "create one with `openssl genpkey -algorithm ed25519`";
        let der = PrivatePkcs8KeyDer::from_pem_slice(text.as_bytes())
            .map_err(|error| format!("has no private key in PEM form ({error}): {cure}"))?;
        let pair = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der.secret_pkcs8_der())
            .map_err(|error| format!("its private key is not Ed25519 ({error}): {cure}"))?;
        let id = KeyId::of(pair.public_key().as_ref());
        Ok(Self { pair, id })
    }
}

/// The public keys that a service accepts.
type VerifyKeys = BTreeMap<KeyId, UnparsedPublicKey<Vec<u8>>>;

fn verify_keys(text: &str) -> Result<VerifyKeys, String> {
    let cure =
        "write the public key of each signing key into it, as `openssl pkey -in KEY -pubout` prints it";
    if text.contains("PRIVATE KEY") {
        return Err(format!("contains a private key, which only managers may have: {cure}"));
    }
    let keys = SubjectPublicKeyInfoDer::pem_slice_iter(text.as_bytes()).map(|read| {
        let der = read.map_err(|error: PemError| format!("cannot be read ({error}): {cure}"))?;
        let bytes = der.strip_prefix(&ED25519_SPKI[..]).filter(|bytes| bytes.len() == 32);
        let bytes = bytes.ok_or_else(|| format!("has a key that is not Ed25519: {cure}"))?;
        Ok((KeyId::of(bytes), UnparsedPublicKey::new(&ED25519, bytes.to_vec())))
    });
    let keys: VerifyKeys = keys.collect::<Result<_, String>>()?;
    match keys.len() {
        0 => Err(format!("has no public key: {cure}")),
        1..=KEYS_MAX => Ok(keys),
        _ => Err(format!("has more than {KEYS_MAX} keys: remove those with which no message is signed")),
    }
}

/// The content of a file, which is read again every [`READ_EVERY`].
struct Watched<T> {
    key: &'static str,
    file: PathBuf,
    parse: fn(&str) -> Result<T, String>,
    last: Mutex<(Instant, Arc<T>)>,
}

impl<T> Watched<T> {
    fn open(key: &'static str, file: &Path, parse: fn(&str) -> Result<T, String>) -> Result<Self, String> {
        let value = read(file, parse).map_err(|error| format!("{key}: {}: {error}", file.display()))?;
        let last = Mutex::new((Instant::now(), Arc::new(value)));
        Ok(Self { key, file: file.to_owned(), parse, last })
    }

    fn current(&self) -> Arc<T> {
        let mut last = lock(&self.last);
        if last.0.elapsed() >= READ_EVERY {
            last.0 = Instant::now();
            match read(&self.file, self.parse) {
                Ok(value) => last.1 = Arc::new(value),
                Err(error) => {
                    let (key, file) = (self.key, self.file.display());
                    tracing::warn!(key, %file, error, "file is unusable; its last valid content stays in use");
                }
            }
        }
        Arc::clone(&last.1)
    }
}

fn read<T>(file: &Path, parse: fn(&str) -> Result<T, String>) -> Result<T, String> {
    std::fs::read_to_string(file).map_err(|error| error.to_string()).and_then(|text| parse(&text))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// What a client of the broker does with signatures.
#[derive(Clone, Default)]
pub(crate) struct Signing {
    pub(crate) signer: Option<Arc<Signer>>,
    pub(crate) verifier: Option<Arc<Verifier>>,
}

/// Signs the messages of a manager.
pub(crate) struct Signer(Watched<SignKey>);

impl Signer {
    pub(crate) fn open(file: &Path) -> Result<Self, String> {
        Watched::open("broker.sign_key_file", file, SignKey::parse).map(Self)
    }

    pub(crate) fn sign(&self, way: (&str, &str), body: &[u8]) -> Signature {
        let (key, at) = (self.0.current(), clock::now());
        let bytes = key.pair.sign(&signed_bytes(way, at, body)).as_ref().to_vec();
        Signature { key: key.id.clone(), at, bytes }
    }
}

/// Verifies the messages of managers.
pub(crate) struct Verifier {
    keys: Watched<VerifyKeys>,
    commands: Mutex<SeenCommands>,
}

/// A message as the broker delivered it.
pub(crate) struct Received<'a> {
    /// The exchange and the routing key through which it came.
    pub(crate) way: (&'a str, &'a str),
    pub(crate) signature: Option<&'a str>,
    pub(crate) body: &'a [u8],
    pub(crate) is_command: bool,
}

impl Verifier {
    pub(crate) fn open(file: &Path) -> Result<Self, String> {
        let keys = Watched::open("broker.verify_keys_file", file, verify_keys)?;
        Ok(Self { keys, commands: Mutex::default() })
    }

    pub(crate) fn check(&self, received: &Received<'_>) -> Result<(), Refused> {
        self.check_at(received, clock::now())
    }

    fn check_at(&self, received: &Received<'_>, now: Timestamp) -> Result<(), Refused> {
        let signature: Signature = received.signature.ok_or(Refused::Unsigned)?.parse()?;
        let keys = self.keys.current();
        let key = keys.get(&signature.key).ok_or_else(|| Refused::UnknownKey(signature.key.clone()))?;
        let signed = signed_bytes(received.way, signature.at, received.body);
        key.verify(&signed, &signature.bytes).map_err(|_| Refused::Altered)?;
        if received.is_command { lock(&self.commands).accept(&signature, now) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write as _;
    use std::process::{Command, Stdio};
    use tempfile::TempDir;

    /// A private key and its public key, as openssl writes them.
    fn key() -> (String, String) {
        let private = openssl(&["genpkey", "-algorithm", "ed25519"], "");
        let public = openssl(&["pkey", "-pubout"], &private);
        (private, public)
    }

    fn openssl(arguments: &[&str], input: &str) -> String {
        let mut child = Command::new("openssl")
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "openssl {arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    struct Files(TempDir);

    impl Files {
        fn new(private: &str, public: &str) -> Self {
            let files = Self(tempfile::tempdir().unwrap());
            files.write("private", private);
            files.write("public", public);
            files
        }
        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }
        fn write(&self, name: &str, text: &str) {
            std::fs::write(self.path(name), text).unwrap();
        }
        fn signer(&self) -> Signer {
            Signer::open(&self.path("private")).unwrap()
        }
        fn verifier(&self) -> Verifier {
            Verifier::open(&self.path("public")).unwrap()
        }
    }

    const WAY: (&str, &str) = ("e.work", "e.work.a");

    fn check(verifier: &Verifier, way: (&str, &str), signature: &str, body: &str) -> Result<(), Refused> {
        verifier.check(&Received {
            way,
            signature: Some(signature),
            body: body.as_bytes(),
            is_command: false,
        })
    }

    #[test]
    fn only_what_a_manager_signed_for_this_way_is_genuine() {
        let (private, public) = key();
        let files = Files::new(&private, &public);
        let (signer, verifier) = (files.signer(), files.verifier());
        let signature = signer.sign(WAY, b"body").to_string();
        assert_eq!(check(&verifier, WAY, &signature, "body"), Ok(()));
        assert_eq!(check(&verifier, WAY, &signature, "body"), Ok(()), "work may be redelivered");
        assert_eq!(check(&verifier, WAY, &signature, "bodY"), Err(Refused::Altered));
        assert_eq!(check(&verifier, ("e.work", "e.work.b"), &signature, "body"), Err(Refused::Altered));
        assert_eq!(check(&verifier, ("", "e.work.a"), &signature, "body"), Err(Refused::Altered));
        assert_eq!(check(&verifier, WAY, "nonsense", "body"), Err(Refused::Malformed));
        let unsigned = Received { way: WAY, signature: None, body: b"body", is_command: false };
        assert_eq!(verifier.check(&unsigned), Err(Refused::Unsigned));
        let (other, _) = key();
        let forged = Files::new(&other, &public).signer().sign(WAY, b"body");
        let refused = check(&verifier, WAY, &forged.to_string(), "body");
        assert_eq!(refused, Err(Refused::UnknownKey(forged.key.clone())));
        let renamed = Signature { key: signer.sign(WAY, b"").key, ..forged };
        assert_eq!(check(&verifier, WAY, &renamed.to_string(), "body"), Err(Refused::Altered));
    }

    /// The test of services in Python verifies the same signature.
    #[test]
    fn a_signature_of_a_manager_fits() {
        let key = "MCowBQYDK2VwAyEAA6EHv/POEL4dcN0Y50vAmWfk1jCbpQ1fHdyGZBJVMbg=";
        let public = format!("-----BEGIN PUBLIC KEY-----\n{key}\n-----END PUBLIC KEY-----\n");
        let signature = concat!(
            "56475aa75463474c.1700000000000.",
            "Gzj1yPYcVFr0M89SEncW7jUxr_FDXfDGvdPagl4GUgooDZ7IrYx3ROk0pTzrbNPxBzRRiAm834VOf5afWmQEDw"
        );
        let verifier = Files::new("", &public).verifier();
        let way = ("everwatch.work", "everwatch.work.default");
        assert_eq!(check(&verifier, way, signature, r#"{"v":1}"#), Ok(()));
    }

    #[test]
    fn a_command_is_genuine_once() {
        let (private, public) = key();
        let files = Files::new(&private, &public);
        let (signer, verifier) = (files.signer(), files.verifier());
        let way = ("e.commands.a", "all");
        let signature = signer.sign(way, b"body");
        let text = signature.to_string();
        let command = Received { way, signature: Some(&text), body: b"body", is_command: true };
        let late = signature.at.plus(Duration::from_secs(301));
        assert_eq!(verifier.check_at(&command, late), Err(Refused::NotCurrent));
        assert_eq!(verifier.check_at(&command, signature.at), Ok(()));
        assert_eq!(verifier.check_at(&command, signature.at), Err(Refused::Replayed));
    }

    #[test]
    fn a_key_is_rotated_without_a_gap() {
        let ((old, old_public), (new, new_public)) = (key(), key());
        let files = Files::new(&old, &old_public);
        let (signer, verifier) = (files.signer(), files.verifier());
        let stored = signer.sign(WAY, b"body").to_string();
        let read_again = || {
            let past = Instant::now().checked_sub(READ_EVERY).unwrap();
            lock(&signer.0.last).0 = past;
            lock(&verifier.keys.last).0 = past;
        };
        files.write("public", &format!("{old_public}{new_public}"));
        read_again();
        assert_eq!(check(&verifier, WAY, &stored, "body"), Ok(()));
        files.write("private", &new);
        read_again();
        let fresh = signer.sign(WAY, b"body").to_string();
        assert_ne!(fresh[..16], stored[..16]);
        assert_eq!(check(&verifier, WAY, &fresh, "body"), Ok(()));
        assert_eq!(check(&verifier, WAY, &stored, "body"), Ok(()), "older messages stay genuine");
        files.write("public", "half a fil");
        read_again();
        assert_eq!(check(&verifier, WAY, &fresh, "body"), Ok(()), "an unusable file changes nothing");
        files.write("public", &new_public);
        read_again();
        assert!(matches!(check(&verifier, WAY, &stored, "body"), Err(Refused::UnknownKey(_))));
    }

    #[test]
    fn an_unusable_file_is_refused_with_its_cure() {
        let (private, public) = key();
        let rsa = openssl(&["genpkey", "-algorithm", "rsa", "-pkeyopt", "rsa_keygen_bits:2048"], "");
        let rsa_public = openssl(&["pkey", "-pubout"], &rsa);
        let files = Files::new("", "");
        for (text, word) in
            [("", "no private key"), (public.as_str(), "no private key"), (rsa.as_str(), "not Ed25519")]
        {
            files.write("private", text);
            let error = Signer::open(&files.path("private")).err().unwrap();
            assert!(error.contains(word) && error.contains("openssl genpkey"), "{error}");
            assert!(error.starts_with("broker.sign_key_file: "), "{error}");
        }
        for (text, word) in [
            ("", "no public key"),
            (private.as_str(), "contains a private key"),
            (rsa_public.as_str(), "not Ed25519"),
        ] {
            files.write("public", text);
            let error = Verifier::open(&files.path("public")).err().unwrap();
            assert!(error.contains(word) && error.contains("-pubout"), "{error}");
        }
        assert!(Signer::open(&files.path("missing")).err().unwrap().contains("missing"));
    }
}
