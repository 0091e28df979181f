//! Servers of others as children of a test, and TLS in front of those that have none.

use std::{
    fs::File,
    io::{Read, Write},
    net::{SocketAddr, TcpListener, TcpStream},
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::Instant,
};

use rustls::{
    RootCertStore, ServerConfig,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
    server::WebPkiClientVerifier,
};
use tokio_rustls::TlsAcceptor;

use crate::support::{TempDir, server::TIMEOUT, skipped, tls};

/// Whether a program is on the path. If not, says that `what` is skipped.
pub(super) fn is_installed(what: &str, program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).any(|folder| folder.join(program).is_file());
    if !found {
        skipped(&format!("{what}: needs {program} (scripts/sink-servers)"));
    }
    found
}

/// A port that nobody listens on now.
pub(super) fn free_port() -> u16 {
    TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap()
        .port()
}

/// The body of an answer to GET.
pub(super) fn get(port: u16, target: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).unwrap();
    write!(stream, "GET {target} HTTP/1.0\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer.split_once("\r\n\r\n").unwrap().1.to_owned()
}

/// A server, killed when dropped. Its output is `log` in its directory.
#[derive(Debug)]
pub(super) struct Process(Child);

impl Process {
    /// Starts it, and waits until `port` is open.
    pub(super) fn start(command: &mut Command, directory: &TempDir, port: u16) -> Self {
        let mut process = Self::spawn(command, directory);
        process.wait(directory, port);
        process
    }

    /// Starts it.
    pub(super) fn spawn(command: &mut Command, directory: &TempDir) -> Self {
        let log = File::options()
            .create(true)
            .append(true)
            .open(directory.join("log"))
            .unwrap();
        command
            .stdin(Stdio::null())
            .stdout(log.try_clone().unwrap())
            .stderr(log);
        Self(command.current_dir(directory.join("")).spawn().unwrap())
    }

    /// Waits until `port` is open.
    pub(super) fn wait(&mut self, directory: &TempDir, port: u16) {
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let ended = self.0.try_wait().unwrap();
            let log = || std::fs::read_to_string(directory.join("log")).unwrap_or_default();
            assert!(
                ended.is_none() && start.elapsed() < TIMEOUT,
                "no server: {ended:?}\n{}",
                log()
            );
            crate::support::pause();
        }
    }

    /// Sends it a signal.
    pub(super) fn signal(&self, signal: &str) {
        let sent = Command::new("kill")
            .args([signal, &self.0.id().to_string()])
            .status()
            .unwrap();
        assert!(sent.success());
    }

    /// Kills it.
    pub(super) fn kill(mut self) {
        self.0.kill().unwrap();
        self.0.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Takes connections with TLS, with a certificate of `tests/tls`, and passes their bytes on to a server without. Returns its address.
pub(super) fn front(certificate: &str, to: SocketAddr) -> SocketAddr {
    front_for(None, certificate, to)
}

/// Likewise, for clients with a certificate of an authority.
pub(super) fn front_for(clients: Option<&str>, certificate: &str, to: SocketAddr) -> SocketAddr {
    let file = |end: &str| tls::file(&format!("{certificate}.{end}"));
    let chain = vec![CertificateDer::from_pem_file(file("pem")).unwrap()];
    let key = PrivateKeyDer::from_pem_file(file("key")).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(Arc::clone(&provider));
    let config = config.with_safe_default_protocol_versions().unwrap();
    let config = match clients {
        None => config.with_no_client_auth(),
        Some(authority) => {
            let mut roots = RootCertStore::empty();
            roots
                .add(CertificateDer::from_pem_file(tls::file(authority)).unwrap())
                .unwrap();
            let verifier = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider);
            config.with_client_cert_verifier(verifier.build().unwrap())
        }
    };
    let config = config.with_single_cert(chain, key).unwrap();
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_nonblocking(true).unwrap();
    let address = listener.local_addr().unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap();
    thread::spawn(move || {
        runtime.block_on(async {
            let listener = tokio::net::TcpListener::from_std(listener).unwrap();
            let acceptor = TlsAcceptor::from(Arc::new(config));
            while let Ok((stream, _)) = listener.accept().await {
                let acceptor = acceptor.clone();
                tokio::spawn(async move {
                    let mut secured = acceptor.accept(stream).await?;
                    let mut plain = tokio::net::TcpStream::connect(to).await?;
                    tokio::io::copy_bidirectional(&mut secured, &mut plain).await
                });
            }
        });
    });
    address
}
