//! How to read bytes, by the name of a profile given on the command line.

use std::path::Path;

use wire::profile::{TcpShim, TelemetryPorts};
use wire::{Dialect, Profile};

use crate::config::Settings;
use crate::config::sections::{Dialect as Configured, ProfileSettings, TcpShim as ConfiguredShim};
use crate::error::CliError;

/// The profile of that name: one of the configuration's, or a dialect's own.
pub(super) fn wire(name: &str, config: Option<&Path>) -> Result<Profile, CliError> {
    let settings = Settings::load(config)?;
    if let Some(profile) = settings.profiles.get(name) {
        return Ok(from_settings(profile));
    }
    if name == "default" {
        return Ok(Profile::default());
    }
    Dialect::from_name(name).map(Profile::new).ok_or_else(|| {
        let built_in = Dialect::ALL.iter().map(|dialect| dialect.name().to_string());
        let known: Vec<String> = built_in.chain(settings.profiles.keys().cloned()).collect();
        CliError::new(format!("there is no profile `{name}`; there are {}", known.join(", ")))
    })
}

fn from_settings(settings: &ProfileSettings) -> Profile {
    let dialect = match settings.dialect {
        Configured::Strict => Dialect::Strict,
        Configured::Geant => Dialect::Geant,
        Configured::HostInt => Dialect::HostInt,
        Configured::IntCollectorGen => Dialect::IntCollectorGen,
        Configured::Onos => Dialect::Onos,
    };
    let usual = Profile::new(dialect);
    Profile {
        dscp: settings.dscp.unwrap_or(usual.dscp),
        dscp_mask: settings.dscp_mask.unwrap_or(usual.dscp_mask),
        dscp_other: settings.dscp_other.or(usual.dscp_other),
        int_udp_port: settings.int_udp_port,
        probe_marker: settings.probe_marker,
        gre_protocol: settings.gre_protocol,
        tcp_shim: match settings.tcp_shim {
            ConfiguredShim::AfterFixed => TcpShim::AfterFixed,
            ConfiguredShim::AfterOptions => TcpShim::AfterOptions,
        },
        // The configuration was checked: at most as many as fit.
        telemetry_ports: TelemetryPorts::new(&settings.telemetry_ports).unwrap_or_default(),
        ..usual
    }
}
