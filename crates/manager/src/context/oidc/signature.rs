//! Signatures of tokens: the library `jsonwebtoken` checks the form of a token and the family of its key, and ring, which
//! the process uses for TLS too, verifies the signature.

use jsonwebtoken::crypto::{CryptoProvider, JwkUtils, JwtVerifier};
use jsonwebtoken::errors::{ErrorKind, new_error};
use jsonwebtoken::jwk::ThumbprintHash;
use jsonwebtoken::signature::{Error, Verifier};
use jsonwebtoken::{Algorithm, DecodingKey, DecodingKeyKind, EncodingKey};
use ring::{digest, signature};

static PROVIDER: CryptoProvider = CryptoProvider {
    signer_factory: |_: &Algorithm, _: &EncodingKey| Err(new_error(ErrorKind::InvalidAlgorithm)),
    verifier_factory: |algorithm, key| {
        if algorithm.family() != key.family() {
            return Err(new_error(ErrorKind::InvalidKeyFormat));
        }
        Ok(Box::new(Signed { algorithm: *algorithm, key: key.clone() }) as Box<dyn JwtVerifier>)
    },
    jwk_utils: JwkUtils {
        extract_rsa_public_key_components: |_| Err(new_error(ErrorKind::InvalidKeyFormat)),
        extract_ec_public_key_coordinates: |_, _| Err(new_error(ErrorKind::InvalidKeyFormat)),
        compute_digest: |data, hash| {
            let algorithm = match hash {
                ThumbprintHash::SHA256 => &digest::SHA256,
                ThumbprintHash::SHA384 => &digest::SHA384,
                ThumbprintHash::SHA512 => &digest::SHA512,
            };
            digest::digest(algorithm, data).as_ref().to_vec()
        },
    },
};

/// Makes ring verify the signatures of this process.
pub(super) fn use_ring() {
    let _used_already = PROVIDER.install_default();
}

/// One key and the algorithm that a token names.
struct Signed {
    algorithm: Algorithm,
    key: DecodingKey,
}

impl JwtVerifier for Signed {
    fn algorithm(&self) -> Algorithm {
        self.algorithm
    }
}

impl Verifier<Vec<u8>> for Signed {
    fn verify(&self, message: &[u8], signature: &Vec<u8>) -> Result<(), Error> {
        let is_valid = match self.key.kind() {
            DecodingKeyKind::RsaModulusExponent { n, e } => {
                let key = signature::RsaPublicKeyComponents { n, e };
                rsa(self.algorithm).is_some_and(|rule| key.verify(rule, message, signature).is_ok())
            }
            DecodingKeyKind::SecretOrDer(bytes) => curve(self.algorithm).is_some_and(|rule| {
                signature::UnparsedPublicKey::new(rule, bytes).verify(message, signature).is_ok()
            }),
        };
        if is_valid { Ok(()) } else { Err(Error::new()) }
    }
}

/// At least 2048 bits.
fn rsa(algorithm: Algorithm) -> Option<&'static signature::RsaParameters> {
    match algorithm {
        Algorithm::RS256 => Some(&signature::RSA_PKCS1_2048_8192_SHA256),
        Algorithm::RS384 => Some(&signature::RSA_PKCS1_2048_8192_SHA384),
        Algorithm::RS512 => Some(&signature::RSA_PKCS1_2048_8192_SHA512),
        Algorithm::PS256 => Some(&signature::RSA_PSS_2048_8192_SHA256),
        Algorithm::PS384 => Some(&signature::RSA_PSS_2048_8192_SHA384),
        Algorithm::PS512 => Some(&signature::RSA_PSS_2048_8192_SHA512),
        Algorithm::ES256 | Algorithm::ES384 | Algorithm::EdDSA => None,
        Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => None,
    }
}

fn curve(algorithm: Algorithm) -> Option<&'static dyn signature::VerificationAlgorithm> {
    match algorithm {
        Algorithm::ES256 => Some(&signature::ECDSA_P256_SHA256_FIXED),
        Algorithm::ES384 => Some(&signature::ECDSA_P384_SHA384_FIXED),
        Algorithm::EdDSA => Some(&signature::ED25519),
        Algorithm::RS256 | Algorithm::RS384 | Algorithm::RS512 => None,
        Algorithm::PS256 | Algorithm::PS384 | Algorithm::PS512 => None,
        Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => None,
    }
}
