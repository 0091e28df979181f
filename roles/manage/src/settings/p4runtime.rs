//! Settings of the driver `p4runtime` for a device: the tables `[manager.p4runtime.NAME]`.

use std::{
    io::Read as _,
    net::{IpAddr, Ipv4Addr},
    path::{Path, PathBuf},
    sync::Arc,
};

use ::p4runtime::{
    client::{Peer, Tls},
    driver::{Load, Settings as DriverSettings},
    map::{self, Map},
    program::{LocalSettings, Report, Route},
    roles::{AggregatorSettings, Role, RoleKind, TranslatorSettings, mac},
};
use detect::Prefix;
use manager::{device::Restart, inventory::Device};
use settings::{choice, read, section};

/// Maximum size of a program file, bytes.
const MAX_FILE: u64 = 256 << 20;

section! {
    /// Settings of the driver `p4runtime` for the device of `[inventory]` with this name.
    pub struct P4RuntimeSettings("[manager.p4runtime.NAME]") {
        /// The pipeline map of the device's program: `hopwise-int`, `hopwise-sf`, `hopwise-dta-reporter`, `hopwise-aggregator`, `hopwise-dta-translator`, `onos-int`, `geant-int`, `fabric-tna`, or a file with a map.
        pub map: String = String::new(),
        /// Number of the device in P4Runtime.
        pub device_id: u64 = 1,
        /// P4Runtime role of this client, if several controllers share the device's tables. Not set: the manager is the only
        /// controller.
        pub role: Option<String> = None,
        /// Port and addresses of its reports. Programs that route reports themselves need only the source.
        pub report: Option<P4ReportSettings> = None,
        /// Behaviour of the device after a restart. Not set: as the map says.
        pub restart: Option<P4Restart> = None,
        /// The program to load if the device reports that it has none. A loaded program is never replaced: a device with a
        /// different P4Info is not driven.
        pub load: Option<P4LoadSettings> = None,
        /// The device's routes, of a program that forwards by routes of the map (`hopwise-int`, `hopwise-sf`, `hopwise-dta-reporter`). A restarted device gets them when its ports to hosts
        /// remove INT. None: another controller installs them.
        pub routes: Vec<P4RouteSettings> = Vec::new(),
        /// The MTUs of its ports, of a program whose map has them (`hopwise-int`, `hopwise-sf`, `hopwise-dta-reporter`).
        pub mtus: Vec<P4MtuSettings> = Vec::new(),
        /// Settings of a device with `role = "aggregator"`.
        pub aggregator: Option<AggregatorSettings> = None,
        /// Settings of a device with `role = "translator"`.
        pub translator: Option<TranslatorSettings> = None,
        /// TLS. Not set: the connection is not encrypted.
        pub tls: Option<P4TlsSettings> = None,
    }
}

section! {
    /// Port and addresses of the reports of a device.
    pub struct P4ReportSettings("[manager.p4runtime.NAME.report]") {
        /// The port by which they leave.
        pub port: u32 = 0,
        /// Their source address, by which the collector distinguishes devices.
        pub source: Option<IpAddr> = None,
        /// Their source MAC address.
        pub source_mac: Option<String> = None,
        /// The MAC address to which they are sent: the collector's, or that of the next router.
        pub mac: Option<String> = None,
    }
}

section! {
    /// A route of a device.
    pub struct P4RouteSettings("[[manager.p4runtime.NAME.routes]]") {
        /// Destination: an address or a prefix.
        pub to: Option<Prefix> = None,
        /// The port to the next hop.
        pub port: u32 = 0,
        /// The MAC address of the port.
        pub source_mac: String = String::new(),
        /// The MAC address of the next hop.
        pub mac: String = String::new(),
    }
}

section! {
    /// The MTU of a port.
    pub struct P4MtuSettings("[[manager.p4runtime.NAME.mtus]]") {
        /// Number of the port.
        pub port: u32 = 0,
        /// Longest packet in bytes, without the Ethernet header.
        pub mtu: u16 = 1500,
    }
}

section! {
    /// A compiled program that is loaded into a device.
    pub struct P4LoadSettings("[manager.p4runtime.NAME.load]") {
        /// A hopwise program for BMv2: `hopwise-int`, `hopwise-sf`, `hopwise-aggregator` or `hopwise-dta-translator`. Not set: the
        /// program in the two files.
        pub program: Option<String> = None,
        /// P4Info of the program, text or binary (`p4c --p4runtime-files x.txtpb` or `x.bin`).
        pub p4info: Option<PathBuf> = None,
        /// The device's configuration, such as the BMv2 JSON.
        pub config: Option<PathBuf> = None,
    }
}

section! {
    /// TLS of the connection to a device.
    pub struct P4TlsSettings("[manager.p4runtime.NAME.tls]") {
        /// PEM file with the certificate authorities to trust for the device's certificate.
        pub ca: Option<PathBuf> = None,
        /// PEM file with a client certificate. Not set: none.
        pub certificate: Option<PathBuf> = None,
        /// PEM file with the certificate's private key.
        pub key: Option<PathBuf> = None,
        /// The name in the device's certificate. Not set: the host of its address.
        pub name: Option<String> = None,
    }
}

choice! {
    /// Behaviour of a device after a restart.
    pub enum P4Restart("\"keeps\" or \"forwards\"") {
        /// The entries survive a restart.
        Keeps = "keeps",
        /// It forwards without them.
        Forwards = "forwards",
    }
}

impl P4RuntimeSettings {
    /// Builds the settings of the driver. Reads the files that they name.
    ///
    /// # Errors
    /// A key, and the reason its value is invalid.
    pub fn driver(&self, device: &Device) -> Result<DriverSettings, (&'static str, String)> {
        let map = self.map().map_err(|error| ("map", error))?;
        let report = self.report.as_ref().map(P4ReportSettings::report).transpose();
        let tls = self.tls.as_ref().map(P4TlsSettings::tls).transpose();
        let load = self.load.as_ref().map(P4LoadSettings::load).transpose();
        let restart = self.restart.map(|restart| match restart {
            P4Restart::Keeps => Restart::Keeps,
            P4Restart::Forwards => Restart::Forwards,
        });
        let routes = self
            .routes
            .iter()
            .map(P4RouteSettings::route)
            .collect::<Result<Vec<_>, _>>();
        if restart.is_some() && !self.routes.is_empty() {
            let why = "with `routes`, the device forwards nothing after a restart until it has them; remove one of the two";
            return Err(("restart", why.to_owned()));
        }
        let role = self.role(device, &map)?;
        Ok(DriverSettings {
            via: None,
            peer: Peer {
                address: device.address.clone(),
                device_id: self.device_id,
                role: self.role.clone().unwrap_or_default(),
                tls: tls.map_err(|error| ("tls", error))?,
            },
            map: (self.map.clone(), Arc::new(map)),
            local: LocalSettings {
                node: device.node,
                report: report.map_err(|error| ("report", error))?,
                restart,
                routes: routes.map_err(|error| ("routes", error))?,
                mtus: self.mtus.iter().map(|mtu| (mtu.port, mtu.mtu)).collect(),
                role,
            },
            load: load.map_err(|error| ("load", error))?.map(Arc::new),
        })
    }

    /// Describes the function of a device outside the domain in a few words.
    pub fn about(&self) -> Option<String> {
        let aggregator = self.aggregator.as_ref().map(AggregatorSettings::about);
        aggregator.or_else(|| self.translator.as_ref().map(TranslatorSettings::about))
    }

    /// Builds the settings of a device outside the domain, or returns `None` for a switch.
    fn role(&self, device: &Device, map: &Map) -> Result<Option<Role>, (&'static str, String)> {
        let of_map = map.role().map(RoleKind::name);
        let of_device = device.role;
        let device_role = of_device.is_outside().then(|| of_device.name());
        if of_map != device_role {
            let map = &self.map;
            let name = &device.name;
            let why = match of_map {
                Some(word) => {
                    format!(
                        "`{map}` is of a device outside the domain; add role = \"{word}\" to `{name}` in [inventory]"
                    )
                }
                None => {
                    let word = of_device.name();
                    format!(
                        "`{map}` is the map of a switch, and `{name}` has role = \"{word}\"; correct one of the two"
                    )
                }
            };
            return Err(("map", why));
        }
        let of_switches = [
            ("report", self.report.is_some()),
            ("routes", !self.routes.is_empty()),
            ("mtus", !self.mtus.is_empty()),
            ("restart", self.restart.is_some()),
        ];
        if let Some((key, _)) = of_switches.iter().find(|(_, is_set)| *is_set && of_map.is_some()) {
            return Err((
                key,
                format!("`{key}` belongs to switches of the domain; remove it"),
            ));
        }
        self.check_tables(device, map)?;
        let aggregator = self
            .aggregator
            .as_ref()
            .map(|settings| settings.role(device.node))
            .transpose();
        let translator = self.translator.as_ref().map(TranslatorSettings::role).transpose();
        let aggregator = aggregator.map_err(|error| ("aggregator", error))?;
        Ok(aggregator.or(translator.map_err(|error| ("translator", error))?))
    }

    /// Checks that a device has the table of its role, and no other.
    fn check_tables(&self, device: &Device, map: &Map) -> Result<(), (&'static str, String)> {
        let tables = [
            (RoleKind::Aggregator, self.aggregator.is_some()),
            (RoleKind::Translator, self.translator.is_some()),
        ];
        for (kind, is_set) in tables {
            let word = kind.name();
            match map.role() == Some(kind) {
                true if !is_set => {
                    let why = format!(
                        "its settings are missing; add [manager.p4runtime.{}.{word}]",
                        device.name
                    );
                    return Err((word, why));
                }
                false if is_set => {
                    return Err((
                        word,
                        format!("`{word}` belongs to a device with role = \"{word}\"; remove it"),
                    ));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// Returns the included pipeline map with this name, or reads it from a file.
    ///
    /// # Errors
    /// The map is unreadable; the value is the message.
    pub fn map(&self) -> Result<Map, String> {
        if let Some(text) = map::shipped(&self.map) {
            return map::read(text, &self.map).map_err(|error| error.to_string());
        }
        let names: Vec<&str> = map::SHIPPED.iter().map(|(name, _)| *name).collect();
        if self.map.is_empty() || !(self.map.contains('.') || self.map.contains('/')) {
            return Err(format!(
                "the program is missing; write {}, or a file with a map",
                names.join(", ")
            ));
        }
        let text =
            settings::read::file(Path::new(&self.map)).map_err(|error| format!("{}: {error}", self.map))?;
        map::read(&text, &self.map).map_err(|error| error.to_string())
    }
}

impl P4ReportSettings {
    fn report(&self) -> Result<Report, String> {
        let source: Ipv4Addr = match self.source {
            Some(IpAddr::V4(source)) => source,
            _ => {
                return Err(
                    "the source address of its reports is missing; add source = \"192.0.2.1\" or the like"
                        .to_owned(),
                );
            }
        };
        Ok(Report {
            port: self.port,
            source,
            source_mac: self.source_mac.as_deref().map_or(Ok(0), mac)?,
            mac: self.mac.as_deref().map_or(Ok(0), mac)?,
        })
    }
}

impl P4RouteSettings {
    fn route(&self) -> Result<Route, String> {
        let to = self
            .to
            .ok_or("the destination of the route is missing; add to = \"10.0.1.0/24\" or the like")?;
        Ok(Route {
            to,
            port: self.port,
            source_mac: mac(&self.source_mac)?,
            mac: mac(&self.mac)?,
        })
    }
}

impl P4LoadSettings {
    fn load(&self) -> Result<Load, String> {
        if let Some(program) = &self.program {
            if self.p4info.is_some() || self.config.is_some() {
                return Err(
                    "`program` is one that hopwise has; remove it, or `p4info` and `config`".to_owned(),
                );
            }
            let Some((p4info, config)) = map::program(program) else {
                return Err(format!(
                    "there is no program `{program}`; write \"hopwise-int\", \"hopwise-sf\", \"hopwise-aggregator\" or \"hopwise-dta-translator\", or `p4info` and `config`"
                ));
            };
            return Ok(Load::new(
                p4runtime::program::info(p4info.to_owned().into_bytes())?,
                config,
            ));
        }
        let (Some(p4info), Some(config)) = (&self.p4info, &self.config) else {
            return Err("a program is two files; add `p4info` and `config`, or `program`".to_owned());
        };
        Ok(Load::new(
            p4runtime::program::info(bytes(p4info)?)?,
            bytes(config)?,
        ))
    }
}

impl P4TlsSettings {
    fn tls(&self) -> Result<Tls, String> {
        let ca = self
            .ca
            .as_ref()
            .ok_or("the certificate authority is missing; add `ca`")?;
        let identity = match (&self.certificate, &self.key) {
            (Some(certificate), Some(key)) => Some((bytes(certificate)?, bytes(key)?)),
            (None, None) => None,
            _ => return Err("`certificate` and `key` belong together; add the other one".to_owned()),
        };
        Ok(Tls {
            ca: bytes(ca)?,
            identity,
            name: self.name.clone(),
        })
    }
}

/// Reads a file of at most [`MAX_FILE`] bytes.
fn bytes(path: &Path) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    // One byte more than the maximum, to detect that the file is too long.
    read::open(path)
        .and_then(|open| open.take(MAX_FILE + 1).read_to_end(&mut bytes))
        .map_err(|error| format!("{}: {error}", path.display()))?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(format!(
            "{} is longer than {} MiB",
            path.display(),
            MAX_FILE >> 20
        ));
    }
    Ok(bytes)
}
