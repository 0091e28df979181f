//! Parses the address and the credentials of an export's destination.

use std::{path::Path, sync::Arc};

use export::sink::{escape, s3};
use rustls::ClientConfig;
use settings::read;

use super::{ExportKind, ExportSettings, Wrong};
use net::{
    destination::{Destination, Login},
    tls,
};
use terminal::text;

/// The parts of a URL.
#[derive(Clone, Copy, Debug)]
pub(super) struct Address<'a> {
    is_secure: bool,
    /// The hosts with their ports, between scheme and path.
    authority: &'a str,
    /// The path, beginning with `/`, or empty.
    pub(super) path: &'a str,
}

impl ExportSettings {
    /// Returns the URL scheme and default port without TLS, and with TLS.
    fn schemes(&self) -> [(&'static str, u16); 2] {
        match self.kind {
            Some(ExportKind::Redis) => [("redis://", 6379), ("rediss://", 6379)],
            Some(ExportKind::Syslog) => [("tcp://", 514), ("tls://", 6514)],
            Some(ExportKind::Kafka) => [("tcp://", 9092), ("tls://", 9093)],
            Some(ExportKind::Parquet) if !self.is_bucket() => [("file://", 0), ("file://", 0)],
            _ => [("http://", 80), ("https://", 443)],
        }
    }

    /// Returns whether Parquet files are written to an object store instead of a directory.
    pub fn is_bucket(&self) -> bool {
        self.kind == Some(ExportKind::Parquet) && self.url.starts_with("http")
    }

    /// Splits `url`, or returns `None` if its scheme does not fit the kind of system.
    pub(super) fn address(&self) -> Option<Address<'_>> {
        let [(plain, _), (secure, _)] = self.schemes();
        let (rest, is_secure) = match self.url.strip_prefix(plain) {
            Some(rest) => (rest, false),
            None => (self.url.strip_prefix(secure)?, true),
        };
        let rest = rest.trim_end_matches('/');
        let (authority, path) = rest.find('/').map_or((rest, ""), |slash| rest.split_at(slash));
        Some(Address {
            is_secure,
            authority,
            path,
        })
    }

    /// Returns whether an address has only permitted parts. Only a webhook may have a query, because many identify their
    /// callers by it.
    fn is_place(&self, authority: &str, path: &str) -> bool {
        let without: &[char] = if self.kind == Some(ExportKind::Webhook) {
            &['#']
        } else {
            &['#', '?']
        };
        let is_authority = !authority.is_empty() && !authority.contains(['@', '?', '#']);
        let is_plain = authority
            .bytes()
            .chain(path.bytes())
            .all(|byte| byte.is_ascii_graphic());
        is_authority && is_plain && !path.contains(without)
    }

    /// Builds the destination. Reads the files that the settings name.
    ///
    /// # Errors
    /// A key, and the reason its value is invalid.
    pub fn destination(&self) -> Result<Destination, Wrong> {
        if self.kind == Some(ExportKind::Parquet) && !self.is_bucket() {
            return self.directory();
        }
        let [(plain, port), (secure, secure_port)] = self.schemes();
        let Address {
            is_secure,
            authority,
            path,
        } = self.address().ok_or_else(|| {
            (
                "url",
                format!(
                    "the address is missing; write url = \"{plain}127.0.0.1:{port}\" or the like; with TLS {secure}"
                ),
            )
        })?;
        if !self.is_place(authority, path) {
            return Err((
                "url",
                "write only scheme, host, port and path; user and password have keys of their own".to_owned(),
            ));
        }
        let path = match self.kind {
            Some(ExportKind::Webhook) => String::new(),
            Some(ExportKind::Parquet) => bucket(path)?,
            _ => path.to_owned(),
        };
        if matches!(self.kind, Some(ExportKind::Syslog | ExportKind::Kafka)) && !path.is_empty() {
            return Err(("url", format!("remove the path {path:?}: this system has none")));
        }
        let port = if is_secure { secure_port } else { port };
        let authority = self.authority(authority, port)?;
        let tls = if is_secure { Some(self.tls(secure)?) } else { None };
        let login = self.login()?;
        if login.is_some()
            && tls.is_none()
            && !self.unencrypted
            && !authority.split(',').all(tls::is_loopback)
        {
            return Err((
                "url",
                format!(
                    "{authority} would get the password or token without encryption; use {secure} with `ca`, or set unencrypted = true"
                ),
            ));
        }
        Ok(Destination {
            authority,
            path,
            tls,
            schemes: (plain, secure),
            login,
            mechanism: self.mechanism,
            unencrypted: self.unencrypted,
        })
    }

    /// Returns the hosts, each with a port.
    fn authority(&self, authority: &str, port: u16) -> Result<String, Wrong> {
        if authority.contains(',') && self.kind != Some(ExportKind::Kafka) {
            return Err(("url", "write one host; only Kafka has several".to_owned()));
        }
        if authority
            .split(',')
            .any(|part| part.is_empty() || part.starts_with(':'))
        {
            let words =
                "it has an address without a host; write each as HOST:PORT, with one comma between two";
            return Err(("url", words.to_owned()));
        }
        let hosts = authority.split(',').map(|host| match host.rsplit_once(':') {
            Some((_, port)) if port.parse::<u16>().is_ok() => host.to_owned(),
            _ => format!("{host}:{port}"),
        });
        Ok(hosts.collect::<Vec<_>>().join(","))
    }

    /// Builds the destination of Parquet files in a directory.
    fn directory(&self) -> Result<Destination, Wrong> {
        let path = self
            .url
            .strip_prefix("file://")
            .filter(|path| path.starts_with('/') && *path != "/");
        let path = path.filter(|path| !path.chars().any(char::is_control)).ok_or_else(|| {
            let words = "the directory is missing; write url = \"file:///srv/hopwise\" or the like: `file://` and its path from `/` on; a bucket of S3 is https://HOST/BUCKET";
            ("url", words.to_owned())
        })?;
        let keys = [
            ("password_file", &self.password_file),
            ("token_file", &self.token_file),
            ("ca", &self.ca),
        ];
        let files = keys
            .into_iter()
            .filter(|(_, file)| file.is_some())
            .map(|(key, _)| key);
        if let Some(key) = self.user.as_ref().map(|_| "user").into_iter().chain(files).next() {
            return Err((
                key,
                "leave it out: the directory's mode controls write access".to_owned(),
            ));
        }
        Ok(Destination {
            authority: path.to_owned(),
            path: path.to_owned(),
            tls: None,
            schemes: ("file://", "file://"),
            login: None,
            mechanism: self.mechanism,
            unencrypted: self.unencrypted,
        })
    }

    fn tls(&self, secure: &str) -> Result<Arc<ClientConfig>, Wrong> {
        let identity = tls::Identity::from_files(self.certificate.as_deref(), self.key.as_deref());
        let identity = identity.map_err(|problem| ("certificate", problem.message))?;
        let article = if secure.starts_with('h') { "an" } else { "a" };
        let ca = self.ca.as_ref().ok_or_else(|| {
            (
                "ca",
                format!(
                    "{article} {secure} address needs the certificate of its authority; name its PEM file"
                ),
            )
        })?;
        tls::client(ca, identity.as_ref()).map_err(|problem| ("ca", problem.message))
    }

    /// Reads the key that signs requests to a bucket.
    pub(super) fn access_key(&self) -> Result<s3::Key, Wrong> {
        let (Some(id), Some(file), None) = (&self.user, &self.password_file, &self.token_file) else {
            let words = "S3 requires an access key: write its id as `user`, and a file with its secret as `password_file`";
            return Err(("user", words.to_owned()));
        };
        let is_name = self
            .region
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if self.region.is_empty() || !is_name {
            let words = "write the name of a region, such as \"eu-central-1\"";
            return Err(("region", words.to_owned()));
        }
        Ok(s3::Key {
            id: id.clone(),
            secret: first_line("password_file", file)?,
            region: self.region.clone(),
        })
    }

    fn login(&self) -> Result<Option<Login>, Wrong> {
        if self.is_bucket() {
            // An S3 access key signs requests, and is never sent.
            return Ok(None);
        }
        let is_redis = self.kind == Some(ExportKind::Redis);
        match (&self.user, &self.password_file, &self.token_file) {
            (None, None, None) => Ok(None),
            (Some(_), ..) | (_, Some(_), _) | (_, _, Some(_)) if self.kind == Some(ExportKind::Syslog) => {
                Err(("user", "syslog has no credentials; leave `user`, `password_file` and `token_file` out, or use tls:// with `certificate`".to_owned()))
            }
            (None, None, Some(file)) if !is_redis && self.kind != Some(ExportKind::Kafka) => {
                // InfluxDB 2 uses the authorization scheme `Token`.
                let scheme = if self.kind == Some(ExportKind::InfluxDb) { "Token" } else { "Bearer" };
                Ok(Some(Login::Token(scheme, first_line("token_file", file)?)))
            }
            (Some(user), Some(file), None) => {
                Ok(Some(Login::Password(Some(user.clone()), first_line("password_file", file)?)))
            }
            (None, Some(file), None) if is_redis => {
                Ok(Some(Login::Password(None, first_line("password_file", file)?)))
            }
            _ if is_redis => Err(("user", "write `password_file`, and `user` if it is not the default one".to_owned())),
            _ if self.kind == Some(ExportKind::Kafka) => {
                Err(("user", "write both `user` and `password_file`, or none of them".to_owned()))
            }
            _ => {
                Err(("user", "write `user` and `password_file`, or `token_file`, or none of them".to_owned()))
            }
        }
    }
}

/// Returns the path of a bucket and the prefix of its objects, percent-encoded unless it already is.
fn bucket(path: &str) -> Result<String, Wrong> {
    if path.len() < 2 {
        let words = "the bucket is missing; write its name behind the host, and a prefix of the object names: HOST/BUCKET/lake";
        return Err(("url", words.to_owned()));
    }
    let parts = path.split('/').map(|part| Some(escape(&text::unescaped(part)?)));
    let escaped: Option<Vec<String>> = parts.collect();
    let escaped = escaped.ok_or((
        "url",
        format!("{path:?} has a % without two hexadecimal digits; write %25"),
    ))?;
    Ok(escaped.join("/"))
}

/// Reads the secret in the first line of a file.
fn first_line(key: &'static str, file: &Path) -> Result<String, Wrong> {
    let shown = file.display();
    let text =
        read::file(file).map_err(|error| (key, format!("cannot read {shown}: {error}; correct the name")))?;
    let line = text.lines().next().unwrap_or_default().to_owned();
    match line.is_empty() || line.chars().any(char::is_control) {
        true => Err((
            key,
            format!("the first line of {shown} is empty or binary; write the secret there"),
        )),
        false => Ok(line),
    }
}
