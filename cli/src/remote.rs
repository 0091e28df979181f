//! Client of a running hopwise's API: address, credentials, and responses of `/api/v1` as types of [`view`].

use std::{path::PathBuf, sync::Arc};

use rustls::ClientConfig;
use serde::de::DeserializeOwned;

use net::{client::Client, tls};
use terminal::CliError;
use view::{Names, NamesView};

/// Options for the API of a running hopwise.
#[derive(clap::Args, Clone, Debug)]
pub struct Api {
    /// URL of the running hopwise
    #[arg(
        long = "api",
        value_name = "URL",
        default_value = "http://127.0.0.1:8080",
        global = true
    )]
    pub url: String,

    /// Bearer token, if required; the environment variable HOPWISE_TOKEN is equivalent and not visible in `ps`
    #[arg(long, global = true)]
    pub token: Option<String>,

    /// PEM file with the certificate authorities to trust for an https:// URL; or HOPWISE_CA. Those of the system are not trusted
    #[arg(long, value_name = "FILE", global = true)]
    pub ca: Option<PathBuf>,

    /// PEM file with a client certificate, if required; or HOPWISE_CLIENT_CERTIFICATE
    #[arg(long, value_name = "FILE", global = true)]
    pub client_certificate: Option<PathBuf>,

    /// PEM file with the client certificate's private key; or HOPWISE_CLIENT_KEY
    #[arg(long, value_name = "FILE", global = true)]
    pub client_key: Option<PathBuf>,
}

impl Api {
    /// Creates options for the API at this URL; token and certificates come from the environment.
    pub fn at(url: &str) -> Self {
        Self {
            url: url.to_owned(),
            token: None,
            ca: None,
            client_certificate: None,
            client_key: None,
        }
    }

    /// Creates an HTTP client for this API. The token comes from `--token` or `HOPWISE_TOKEN`.
    pub fn client(&self) -> Result<Client, CliError> {
        let token = self.token.clone().or_else(|| std::env::var("HOPWISE_TOKEN").ok());
        Client::with_tls(&self.url, token, self.tls_for(&self.url)?).map_err(CliError::from)
    }

    /// Returns the TLS configuration for `url`, or `None` for plain HTTP.
    pub fn tls_for(&self, url: &str) -> Result<Option<Arc<ClientConfig>>, CliError> {
        if tls::authority(url).0 {
            self.tls()
        } else {
            Ok(None)
        }
    }

    /// Reads the TLS configuration; `None` if no certificate authorities are given.
    fn tls(&self) -> Result<Option<Arc<ClientConfig>>, CliError> {
        let certificate = self.client_certificate.clone();
        let certificate = certificate.or_else(|| path_variable("HOPWISE_CLIENT_CERTIFICATE"));
        let key = self.client_key.clone();
        let key = key.or_else(|| path_variable("HOPWISE_CLIENT_KEY"));
        let identity = tls::Identity::from_files(certificate.as_deref(), key.as_deref())
            .map_err(|problem| CliError::new(problem.message))?;
        let ca = self.ca.clone().or_else(|| path_variable("HOPWISE_CA"));
        ca.map(|ca| tls::client(&ca, identity.as_ref()))
            .transpose()
            .map_err(|problem| CliError::new(problem.message))
    }
}

/// Returns the path in an environment variable; `None` if the variable is unset or empty.
pub(crate) fn path_variable(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .filter(|value| !value.is_empty())
        .map(PathBuf::from)
}

/// Requests `path` and parses the response. Prints the server's notes about the response on standard error.
pub fn fetch<T: DeserializeOwned>(client: &Client, path: &str) -> Result<T, CliError> {
    let body = client.get_text(path)?;
    client.take_notes().iter().for_each(terminal::note);
    serde_json::from_slice(&body).map_err(|error| {
        CliError::new(format!(
            "the response of {} does not fit the API of this version: {error}",
            client.url()
        ))
    })
}

/// Requests the names of nodes, interfaces and hosts. Returns no names on failure, since ids can be printed instead.
pub fn names(client: &Client) -> Names {
    fetch::<NamesView>(client, "/names")
        .map(Names::from)
        .unwrap_or_default()
}

/// Parses a path as stored, such as `101>102>?`, where `?` is an unavailable node id.
pub fn parse_path(text: &str) -> Vec<Option<u32>> {
    text.split('>')
        .filter(|node| !node.is_empty())
        .map(|node| node.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_reads_back_from_its_text() {
        let path = [Some(101), None, Some(103)];
        assert_eq!(Names::default().path(&path), "101>?>103");
        assert_eq!(parse_path("101>?>103"), path);
        assert_eq!(parse_path(""), []);
    }
}
