//! TLS 1.2 and 1.3 for the API and its clients, by rustls with ring: configurations from PEM files, and errors with advice.

use std::{
    fmt,
    io::{self, Read},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use rustls::{
    AlertDescription, CertificateError, ClientConfig, Error, RootCertStore, ServerConfig,
    client::verify_server_cert_signed_by_trust_anchor,
    crypto::CryptoProvider,
    pki_types::{
        CertificateDer, PrivateKeyDer, ServerName, UnixTime,
        pem::{self, PemObject},
    },
    server::{ParsedCertificate, WebPkiClientVerifier},
};

use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use runtime::lock::lock;

/// Maximum length of a PEM file, bytes.
const MAX_FILE: u64 = 1 << 20;

/// A certificate and its private key, both in PEM files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Identity {
    /// PEM file with the certificate, followed by those of the intermediate authorities.
    pub certificate: PathBuf,
    /// PEM file with the private key of the certificate.
    pub key: PathBuf,
}

/// A fault in a PEM file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The purpose of the file.
    pub file: Part,
    /// The fault and its remedy, in one sentence.
    pub message: String,
}

/// Purpose of a PEM file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Part {
    /// The certificate that this side presents.
    Certificate,
    /// The private key of the certificate.
    Key,
    /// Authorities that must have signed the certificate of the other side.
    Authorities,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

/// Returns a server configuration. With `authorities`, clients must present a certificate signed by one of them.
///
/// # Errors
/// Returns the file that cannot be used, and why.
pub fn server(identity: &Identity, authorities: Option<&Path>) -> Result<Arc<ServerConfig>, Problem> {
    let provider = provider();
    let (chain, key) = identity.read()?;
    let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|error| identity.wrong(&error))?;
    let builder = match authorities {
        None => builder.with_no_client_auth(),
        Some(file) => {
            let roots = Arc::new(self::authorities(file)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
            let verifier = verifier.map_err(|error| unusable(Part::Authorities, file, &error))?;
            builder.with_client_cert_verifier(verifier)
        }
    };
    let mut config = builder
        .with_single_cert(chain, key)
        .map_err(|error| identity.wrong(&error))?;
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(Arc::new(config))
}

/// Returns whether rustls refuses this as a server certificate because it is a CA certificate. curl and browsers accept it.
fn is_of_authority(certificate: &CertificateDer<'_>) -> bool {
    let mut roots = RootCertStore::empty();
    let (Ok(()), Ok(parsed)) = (
        roots.add(certificate.clone().into_owned()),
        ParsedCertificate::try_from(certificate),
    ) else {
        return false;
    };
    let supported = provider().signature_verification_algorithms.all;
    let verified =
        verify_server_cert_signed_by_trust_anchor(&parsed, &roots, &[], UnixTime::now(), supported);
    matches!(&verified, Err(Error::InvalidCertificate(problem)) if is_authority_as_server(problem))
}

/// Detects the error for a CA certificate in place of a server's, for which rustls has no public variant.
fn is_authority_as_server(problem: &CertificateError) -> bool {
    matches!(problem, CertificateError::Other(other) if other.to_string().contains("CaUsedAsEndEntity"))
}

/// Returns a client configuration that trusts only servers with a certificate signed by one of `authorities`; the authorities
/// of the system are not trusted. The client presents `identity`, if given.
///
/// # Errors
/// Returns the file that cannot be used, and why.
pub fn client(authorities: &Path, identity: Option<&Identity>) -> Result<Arc<ClientConfig>, Problem> {
    let roots = self::authorities(authorities)?;
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(Part::Authorities, authorities, &error))?
        .with_root_certificates(roots);
    let config = match identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let (chain, key) = identity.read()?;
            builder
                .with_client_auth_cert(chain, key)
                .map_err(|error| identity.wrong(&error))?
        }
    };
    Ok(Arc::new(config))
}

/// Splits a URL: returns whether it requires TLS, and its `host:port`.
pub fn authority(url: &str) -> (bool, &str) {
    let (is_secure, rest) = match url.strip_prefix("https://") {
        Some(rest) => (true, rest),
        None => (false, url.strip_prefix("http://").unwrap_or(url)),
    };
    (is_secure, rest.trim_end_matches('/'))
}

/// Returns the name that the certificate of `authority` (`host:port`) must have; `None` if the host is neither a name nor an
/// address.
pub fn server_name(authority: &str) -> Option<ServerName<'static>> {
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let host = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'))
        .unwrap_or(host);
    ServerName::try_from(host.to_owned()).ok()
}

/// Returns whether `authority` (`host`, with or without a port) is this host, so that data sent to it does not pass a network.
pub fn is_loopback(authority: &str) -> bool {
    let host = match authority.strip_prefix('[') {
        Some(rest) => rest.split_once(']').map_or("", |(host, _)| host),
        None => authority.rsplit_once(':').map_or(authority, |(host, _)| host),
    };
    let address = host.parse::<std::net::IpAddr>();
    address.map_or_else(
        |_| host.eq_ignore_ascii_case("localhost"),
        |ip| ip.to_canonical().is_loopback(),
    )
}

/// A byte stream, with or without TLS.
pub trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Stream for T {}

/// Performs the client's TLS handshake on a connection to `authority`. Without `config`, returns the stream as it is.
///
/// # Errors
/// Returns one sentence that states the problem and the remedy.
pub async fn secure(
    config: Option<Arc<ClientConfig>>,
    authority: &str,
    stream: TcpStream,
) -> Result<Box<dyn Stream>, String> {
    let Some(config) = config else {
        return Ok(Box::new(stream));
    };
    let name =
        server_name(authority).ok_or_else(|| format!("{authority}: this is not a name or an address"))?;
    match TlsConnector::from(config).connect(name, stream).await {
        Ok(stream) => Ok(Box::new(stream)),
        Err(error) => Err(reason(&error, authority)),
    }
}

/// Returns the reason why a connection to `authority` ended, with advice if there is any.
pub fn reason(error: &(dyn std::error::Error + 'static), authority: &str) -> String {
    let causes = std::iter::successors(Some(error), |error: &&(dyn std::error::Error + 'static)| {
        (*error).source()
    });
    let explained = causes
        .filter_map(|error| error.downcast_ref())
        .find_map(|error| explain(error, authority));
    explained.unwrap_or_else(|| format!("{authority}: {error}"))
}

/// Returns the TLS fault and its remedy if `error` comes from TLS; otherwise `None`.
pub fn explain(error: &io::Error, authority: &str) -> Option<String> {
    let host = authority.rsplit_once(':').map_or(authority, |(host, _)| host);
    let error = error.get_ref()?.downcast_ref::<Error>()?;
    Some(match error {
        Error::InvalidCertificate(problem) => invalid(problem, authority, host),
        Error::AlertReceived(
            AlertDescription::CertificateRequired
            | AlertDescription::HandshakeFailure
            | AlertDescription::UnknownCA
            | AlertDescription::BadCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::CertificateExpired,
        ) => format!(
            "{authority} asks for a certificate of the client and does not accept this one; use one of the authorities in its `client_ca`"
        ),
        Error::InvalidMessage(_) => {
            format!("{authority} does not speak TLS; write http:// in place of https://")
        }
        other => format!("no TLS connection to {authority}: {other}"),
    })
}

fn invalid(problem: &CertificateError, authority: &str, host: &str) -> String {
    use CertificateError as E;
    match problem {
        E::UnknownIssuer | E::BadSignature => format!(
            "the certificate of {authority} is not from an authority that is trusted here; name the file with the authority's certificate as the CA"
        ),
        E::NotValidForName | E::NotValidForNameContext { .. } => format!(
            "the certificate of {authority} is for another name; make one whose subjectAltName has {host}, or use the name that it has"
        ),
        E::Expired | E::ExpiredContext { .. } => {
            format!(
                "the certificate of {authority} has expired; renew it there, and reload the configuration"
            )
        }
        E::NotValidYet | E::NotValidYetContext { .. } => {
            format!("the certificate of {authority} is not valid yet; check the clocks")
        }
        problem if is_authority_as_server(problem) => format!(
            "the certificate of {authority} is that of an authority; make one for the server that this authority signs"
        ),
        other => format!("the certificate of {authority} cannot be used: {other}"),
    }
}

impl Identity {
    /// Returns the identity in these two files, or `None` if neither is named.
    ///
    /// # Errors
    /// Returns an error if only one of them is named.
    pub fn from_files(certificate: Option<&Path>, key: Option<&Path>) -> Result<Option<Self>, Problem> {
        match (certificate, key) {
            (None, None) => Ok(None),
            (Some(certificate), Some(key)) => Ok(Some(Self {
                certificate: certificate.to_owned(),
                key: key.to_owned(),
            })),
            (Some(_), None) => Err(Problem {
                file: Part::Key,
                message: "a certificate needs its key; name that file, too".to_owned(),
            }),
            (None, Some(_)) => Err(Problem {
                file: Part::Certificate,
                message: "a key needs its certificate; name that file, too".to_owned(),
            }),
        }
    }

    fn read(&self) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Problem> {
        let chain = certificates(Part::Certificate, &self.certificate)?;
        let text = text(Part::Key, &self.key)?;
        let key = PrivateKeyDer::from_pem_slice(&text).map_err(|error| {
            let message = match error {
                pem::Error::NoItemsFound => {
                    format!(
                        "there is no private key in {}; write the PEM file with the key, without a password",
                        self.key.display()
                    )
                }
                error => format!("{} is not PEM: {error}", self.key.display()),
            };
            Problem {
                file: Part::Key,
                message,
            }
        })?;
        Ok((chain, key))
    }

    /// Returns a warning if the certificate is a CA certificate; `None` if it is not, or cannot be read.
    pub fn authority_warning(&self) -> Option<String> {
        let chain = certificates(Part::Certificate, &self.certificate).ok()?;
        chain.first().is_some_and(is_of_authority).then(|| {
            format!(
                "{} is the certificate of an authority, which hopwise's own commands refuse as that of a server, and curl and browsers accept; make one for this server that the authority signs",
                self.certificate.display()
            )
        })
    }

    /// Describes why rustls refuses the certificate or the key.
    fn wrong(&self, error: &Error) -> Problem {
        let certificate = self.certificate.display();
        let key = self.key.display();
        match error {
            Error::InconsistentKeys(_) => Problem {
                file: Part::Key,
                message: format!(
                    "the key {key} is not that of {certificate}; write the file that was made with it"
                ),
            },
            Error::InvalidCertificate(_) => unusable(Part::Certificate, &self.certificate, error),
            error => unusable(Part::Key, &self.key, error),
        }
    }
}

/// Reads the trusted authorities from a file.
fn authorities(file: &Path) -> Result<RootCertStore, Problem> {
    let mut roots = RootCertStore::empty();
    for certificate in certificates(Part::Authorities, file)? {
        roots
            .add(certificate)
            .map_err(|error| unusable(Part::Authorities, file, &error))?;
    }
    Ok(roots)
}

/// Reads the certificates in a file, at least one.
fn certificates(part: Part, file: &Path) -> Result<Vec<CertificateDer<'static>>, Problem> {
    let text = text(part, file)?;
    let read: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    let shown = file.display();
    match read {
        Ok(list) if list.is_empty() => Err(Problem {
            file: part,
            message: format!("there is no certificate in {shown}; write a PEM file"),
        }),
        Ok(list) => Ok(list),
        Err(error) => Err(Problem {
            file: part,
            message: format!("{shown} is not PEM: {error}"),
        }),
    }
}

fn text(part: Part, file: &Path) -> Result<Vec<u8>, Problem> {
    let mut text = Vec::new();
    let read = settings::read::open(file).and_then(|open| open.take(MAX_FILE + 1).read_to_end(&mut text));
    let shown = file.display();
    match read {
        Err(error) => Err(Problem {
            file: part,
            message: format!("cannot read {shown}: {error}"),
        }),
        Ok(_) if text.len() as u64 > MAX_FILE => {
            let message = format!("{shown} is longer than {} KiB; write a PEM file", MAX_FILE >> 10);
            Err(Problem { file: part, message })
        }
        Ok(_) => Ok(text),
    }
}

fn unusable(file: Part, path: &Path, error: &dyn fmt::Display) -> Problem {
    Problem {
        file,
        message: format!("{} cannot be used: {error}", path.display()),
    }
}

fn provider() -> Arc<CryptoProvider> {
    Arc::new(rustls::crypto::ring::default_provider())
}

/// TLS state of a running server: its configuration, which a reload replaces, and counts of handshakes.
#[derive(Debug, Default)]
pub struct Endpoint {
    config: Mutex<Option<Arc<ServerConfig>>>,
    completed: AtomicU64,
    failed: [AtomicU64; Failure::ALL.len()],
}

wire::named! {
    /// The reason why a handshake failed, with its label value in metrics.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Failure, name {
        /// The client spoke HTTP, or something else, without TLS.
        NotTls => "not_tls",
        /// The handshake took too long.
        Timeout => "timeout",
        /// The client closed the connection, or the server closed it to make room.
        Closed => "closed",
        /// The client did not accept the server's certificate.
        Rejected => "certificate_rejected",
        /// The client presented no certificate, or one that is not accepted.
        ClientCertificate => "client_certificate",
        /// The client violated the protocol, or has no version or cipher in common.
        Protocol => "protocol",
    }
}

impl Failure {
    /// Classifies the error that ended a handshake.
    pub fn from_error(error: &io::Error) -> Self {
        match error.get_ref().and_then(|inner| inner.downcast_ref::<Error>()) {
            Some(Error::InvalidCertificate(_) | Error::NoCertificatesPresented) => Self::ClientCertificate,
            Some(Error::AlertReceived(_)) => Self::Rejected,
            Some(_) => Self::Protocol,
            None if error.kind() == io::ErrorKind::TimedOut => Self::Timeout,
            None => Self::Closed,
        }
    }
}

impl Endpoint {
    /// Returns the configuration for new connections; `None` means without TLS.
    pub fn config(&self) -> Option<Arc<ServerConfig>> {
        lock(&self.config).clone()
    }

    /// Replaces the configuration for new connections. Existing connections are unaffected.
    pub fn replace(&self, config: Option<Arc<ServerConfig>>) {
        *lock(&self.config) = config;
    }

    /// Counts a handshake. Relaxed ordering suffices, because the counters do not order other memory accesses.
    pub fn count(&self, failure: Option<Failure>) {
        let counter = failure.map_or(&self.completed, |failure| &self.failed[failure as usize]);
        counter.fetch_add(1, Ordering::Relaxed);
    }

    /// Returns the number of handshakes that succeeded.
    pub fn completed(&self) -> u64 {
        self.completed.load(Ordering::Relaxed)
    }

    /// Returns the number of handshakes that failed for this reason.
    pub fn failed(&self, failure: Failure) -> u64 {
        self.failed[failure as usize].load(Ordering::Relaxed)
    }
}
