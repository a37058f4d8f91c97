//! Credentials for the API server: the key that signs service account tokens, the admin's token, and kubeconfig files.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use k8s_openapi::ByteString;
use pem::Pem;
use ring::error::Unspecified;
use ring::rand::{SecureRandom, SystemRandom};
use ring::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use serde_json::json;

/// The bytes before the public point in a DER `SubjectPublicKeyInfo` of a P-256 key (RFC 5480): two sequences, the
/// object ids of `ecPublicKey` and `prime256v1`, and the header of a 66-byte bit string.
const P256_PUBLIC_KEY_HEADER: [u8; 26] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a, 0x86,
    0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00,
];

/// The key pair of service account tokens, as PEM: the API server signs with one half and checks with the other.
pub(crate) struct ServiceAccountKey {
    pub(crate) private: String,
    pub(crate) public: String,
}

impl ServiceAccountKey {
    pub(crate) fn generate() -> io::Result<Self> {
        let random = SystemRandom::new();
        let algorithm = &ECDSA_P256_SHA256_FIXED_SIGNING;
        let private = EcdsaKeyPair::generate_pkcs8(algorithm, &random).map_err(no_randomness)?;
        let pair = EcdsaKeyPair::from_pkcs8(algorithm, private.as_ref(), &random)
            .map_err(|rejected| io::Error::other(rejected.to_string()))?;
        let public = [&P256_PUBLIC_KEY_HEADER, pair.public_key().as_ref()].concat();
        Ok(Self {
            private: pem::encode(&Pem::new("PRIVATE KEY", private.as_ref())),
            public: pem::encode(&Pem::new("PUBLIC KEY", public)),
        })
    }
}

/// 32 random hexadecimal digits.
pub(crate) fn random_token() -> io::Result<String> {
    let mut bytes = [0; 16];
    SystemRandom::new().fill(&mut bytes).map_err(no_randomness)?;
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// The address of the API server and its certificate, without a user.
#[derive(Debug)]
pub(crate) struct Endpoint {
    /// `https://127.0.0.1:PORT`.
    pub(crate) server: String,
    /// The file with the server's certificate, followed by that of the generated authority that signed it.
    pub(crate) certificate: PathBuf,
}

impl Endpoint {
    /// Writes a kubeconfig file with a token. Only its owner can read it.
    pub(crate) fn write_kubeconfig(&self, file: &Path, token: &str, namespace: &str) -> io::Result<()> {
        let authority = ByteString(fs::read(&self.certificate)?);
        // JSON is YAML, and quotes all characters of a token.
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{
                "name": "sandbox",
                "cluster": { "server": self.server, "certificate-authority-data": authority },
            }],
            "users": [{ "name": "sandbox", "user": { "token": token } }],
            "contexts": [{
                "name": "sandbox",
                "context": { "cluster": "sandbox", "user": "sandbox", "namespace": namespace },
            }],
            "current-context": "sandbox",
        });
        write_private(file, &format!("{kubeconfig:#}\n"))
    }
}

/// Writes a file that only its owner can read.
pub(crate) fn write_private(file: &Path, text: &str) -> io::Result<()> {
    fs::File::options()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o600)
        .open(file)?
        .write_all(text.as_bytes())
}

fn no_randomness(_: Unspecified) -> io::Error {
    io::Error::other("the operating system returned no random bytes")
}
