//! Settings of the driver `gnmi` for a device: the tables `[manager.gnmi.NAME]`.

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use ::gnmi::{PathMap, Peer, Settings as DriverSettings};
use manager::inventory::Device;
use settings::{read, section};

use net::tls;

section! {
    /// Settings of the driver `gnmi` for the device of `[inventory]` with this name.
    pub struct GnmiSettings("[manager.gnmi.NAME]") {
        /// The path map, which maps rules to objects of the device and says where ports are described: `sonic-tam` (a template), or
        /// a file.
        pub map: Option<PathBuf> = None,
        /// User name. Not set: none is sent.
        pub user: Option<String> = None,
        /// File with the user's password in its first line.
        pub password_file: Option<PathBuf> = None,
        /// PEM file with the certificate authorities to trust for the device's certificate. Not set: the connection is not
        /// encrypted.
        pub ca: Option<PathBuf> = None,
        /// PEM file with a client certificate, for devices that require one. Not set: none.
        pub certificate: Option<PathBuf> = None,
        /// PEM file with the certificate's private key.
        pub key: Option<PathBuf> = None,
        /// Send user and password without encryption, too. Anyone who can read the network can then configure the device.
        pub unencrypted: bool = false,
        /// The name in the device's certificate. Not set: the host of its address.
        pub name: Option<String> = None,
    }
}

/// Returns the included path map with this name, or reads it from a file.
///
/// # Errors
/// There is no such map, or it is invalid.
pub fn path_map(name: &Path) -> Result<PathMap, String> {
    let written = name.display().to_string();
    if let Some(text) = gnmi::shipped(&written) {
        return PathMap::read(text, &written).map_err(|error| error.to_string());
    }
    let names = gnmi::SHIPPED.map(|(name, _)| name).join(", ");
    if written.is_empty() {
        return Err(format!(
            "the path map is missing; write map = \"{names}\", or a file with a path map"
        ));
    }
    if !written.contains(['/', '.']) {
        return Err(format!(
            "there is no path map `{written}`; write {names}, or a file with a path map"
        ));
    }
    let text = read_file(name)?;
    PathMap::read(&text, &written).map_err(|error| error.to_string())
}

fn read_file(file: &Path) -> Result<String, String> {
    read::file(file).map_err(|error| format!("cannot read {}: {error}; correct the name", file.display()))
}

impl GnmiSettings {
    /// Builds the settings of the driver. Reads the files that they name.
    ///
    /// # Errors
    /// A key, and the reason its value is invalid.
    pub fn driver(&self, device: &Device) -> Result<DriverSettings, (&'static str, String)> {
        let map = path_map(self.map.as_deref().unwrap_or(Path::new(""))).map_err(|error| ("map", error))?;
        let password = self.password_file.as_deref().map(read_file).transpose();
        let password = password.map_err(|error| ("password_file", error))?;
        let user = match (&self.user, password) {
            (Some(user), Some(file)) => {
                Some((user.clone(), file.lines().next().unwrap_or_default().to_owned()))
            }
            (None, None) => None,
            _ => {
                return Err((
                    "user",
                    "write both `user` and `password_file`, or neither".to_owned(),
                ));
            }
        };
        if user.is_some()
            && self.ca.is_none()
            && !self.unencrypted
            && !tls::is_loopback(tls::authority(&device.address).1)
        {
            let message = "without `ca`, the password is sent without encryption; add ca = \"/etc/hopwise/devices.pem\" or the like, or unencrypted = true if this network is private";
            return Err(("ca", message.to_owned()));
        }
        let ca = self
            .ca
            .as_deref()
            .map(read_file)
            .transpose()
            .map_err(|error| ("ca", error))?;
        let identity = self.identity()?;
        let peer = Peer {
            address: device.address.clone(),
            user,
            ca: ca.map(String::into_bytes),
            identity,
            name: self.name.clone(),
        };
        gnmi::client::Client::check(&peer).map_err(|error| ("ca", error))?;
        Ok(DriverSettings {
            node: device.node,
            peer,
            map: Arc::new(map),
        })
    }

    /// Reads the client's certificate and key.
    fn identity(&self) -> Result<Option<Pair>, Wrong> {
        match (&self.certificate, &self.key) {
            (None, None) => Ok(None),
            (Some(_), Some(_)) if self.ca.is_none() => {
                let message =
                    "a certificate is shown over TLS only; add `ca`, or remove `certificate` and `key`";
                Err(("certificate", message.to_owned()))
            }
            (Some(certificate), Some(key)) => {
                let certificate = read_file(certificate).map_err(|error| ("certificate", error))?;
                let key = read_file(key).map_err(|error| ("key", error))?;
                Ok(Some((certificate.into_bytes(), key.into_bytes())))
            }
            _ => Err((
                "certificate",
                "`certificate` and `key` belong together; add the other one".to_owned(),
            )),
        }
    }
}

/// A certificate and its key, both PEM.
type Pair = (Vec<u8>, Vec<u8>);
/// A key of the settings, and the reason its value is invalid.
type Wrong = (&'static str, String);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_password_is_not_sent_without_encryption_unless_somebody_says_so() {
        let password = std::env::temp_dir().join(format!("hopwise-gnmi-{}.password", std::process::id()));
        std::fs::write(&password, "secret\n").unwrap();
        let map =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("../../manager/drivers/gnmi/maps/sonic-tam.toml");
        let settings = GnmiSettings {
            map: Some(map),
            user: Some("admin".to_owned()),
            password_file: Some(password.clone()),
            ..GnmiSettings::default()
        };
        let read = |settings: &GnmiSettings, address: &str| {
            let text =
                format!("devices = [{{ name = \"a\", driver = \"gnmi\", address = \"{address}\" }}]\n");
            let inventory = manager::inventory::read(&text, "i.toml").unwrap();
            let device = inventory.devices().next().unwrap();
            settings.driver(device).map(drop).map_err(|(key, _)| key)
        };
        assert_eq!(read(&settings, "192.0.2.13:9339"), Err("ca"));
        for here in ["127.0.0.1:9339", "[::1]:9339", "localhost:9339"] {
            assert_eq!(read(&settings, here), Ok(()), "{here}");
        }
        let allowed = GnmiSettings {
            unencrypted: true,
            ..settings.clone()
        };
        assert_eq!(read(&allowed, "192.0.2.13:9339"), Ok(()));
        let anonymous = GnmiSettings {
            user: None,
            password_file: None,
            ..settings
        };
        assert_eq!(read(&anonymous, "192.0.2.13:9339"), Ok(()));
        let tls = |name: &str| {
            Path::new(env!("CARGO_MANIFEST_DIR"))
                .join(format!("../../manager/drivers/p4runtime/tests/tls/{name}.pem"))
        };
        let certified = |certificate, key| GnmiSettings {
            ca: Some(tls("ca")),
            certificate: Some(tls(certificate)),
            key: Some(tls(key)),
            ..anonymous.clone()
        };
        let right = certified("client", "client-key");
        assert_eq!(read(&right, "192.0.2.13:9339"), Ok(()));
        assert_eq!(
            read(
                &GnmiSettings {
                    key: None,
                    ..right.clone()
                },
                "192.0.2.13:9339"
            ),
            Err("certificate")
        );
        assert_eq!(
            read(&GnmiSettings { ca: None, ..right }, "192.0.2.13:9339"),
            Err("certificate")
        );
        assert_eq!(
            read(&certified("client", "nothing"), "192.0.2.13:9339"),
            Err("key")
        );
        std::fs::remove_file(password).unwrap();
    }
}
