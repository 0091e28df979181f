//! A client with TLS, and the certificates of `tests/tls`.

use std::{
    net::TcpStream,
    path::{Path, PathBuf},
    sync::Arc,
};

use rustls::{
    ClientConfig, ClientConnection, RootCertStore, StreamOwned,
    pki_types::{CertificateDer, pem::PemObject},
};

/// A connection with TLS.
pub(crate) type Secured = StreamOwned<ClientConnection, TcpStream>;

/// A file of `tests/tls`.
pub(crate) fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/tls").join(name)
}

/// `[api] tls` with the certificate and key of this name.
pub(crate) fn section(name: &str) -> String {
    let file = |end: &str| file(&format!("{name}.{end}"));
    format!(
        "api.tls = {{ certificate = {:?}, key = {:?} }}\n",
        file("pem"),
        file("key")
    )
}

/// TLS over a connection to 127.0.0.1; the certificate must be from `ca.pem`.
pub(crate) fn secured(stream: TcpStream) -> Secured {
    let mut roots = RootCertStore::empty();
    roots
        .add(CertificateDer::from_pem_file(file("ca.pem")).unwrap())
        .unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap();
    let config = config.with_root_certificates(roots).with_no_client_auth();
    let connection = ClientConnection::new(Arc::new(config), "127.0.0.1".try_into().unwrap()).unwrap();
    StreamOwned::new(connection, stream)
}
