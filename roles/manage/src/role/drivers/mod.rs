//! The way to a device: which of the four drivers it has, and its start. Three drivers are crates in `manager/drivers/`; that of
//! hopwise switches is here, because it reads their API.

pub(super) mod hopwise;
mod namespaces;

use std::{sync::Arc, time::Duration};

use files::Confirm;
use manager::{
    device::{Answer, Capabilities, Command, Restart},
    driver::Message,
    inventory::Device,
};

use p4runtime::client::Connector;
use tokio::time;

pub use namespaces::Namespaces;

use super::{Local, ToDevice};
use crate::settings::ManagerSettings;
use net::tls;

/// Time limit of a connection from another network namespace.
const CONNECT: Duration = Duration::from_secs(1);

/// When a device behind files has what was written.
fn confirm(device: &Device) -> Confirm {
    device
        .options
        .confirm
        .as_deref()
        .and_then(Confirm::from_word)
        .unwrap_or_default()
}

/// What an operator should know of the driver of a device: a promise of the manager that it does not keep.
pub(super) fn note(device: &Device) -> Option<String> {
    let is_believed = device.driver == "files" && confirm(device) == Confirm::Written;
    is_believed.then(|| {
        format!(
            "`{}` counts as configured when {}/{} is written, whether or not its device has these rules yet: the order of steps is not guaranteed there",
            device.name, device.address, files::DESIRED
        )
    })
}

/// The driver of a device.
pub(super) enum Driver {
    /// A switch's API.
    Hopwise(hopwise::Driver),
    /// Files, for those who configure the device.
    Files(files::Driver),
    /// gNMI.
    Gnmi(gnmi::Driver),
    /// P4Runtime.
    P4Runtime(p4runtime::driver::Driver),
    /// A device whose settings could be read at the start and no longer can: what is wrong.
    Unusable(String, Arc<dyn Fn(Message) + Send + Sync>),
    /// Inside this process.
    Local(Local, Arc<dyn Fn(Message) + Send + Sync>),
}

impl Driver {
    /// Starts the driver of a device, on the current runtime. Returns what the device can do as far as that is known before it was
    /// reached. `local`: all devices are in this process. `namespaces`: those
    /// of the devices.
    pub(super) fn start(
        device: &Device,
        settings: &ManagerSettings,
        (local, namespaces): (Option<&Local>, &Namespaces),
        tell: impl Fn(Message) + Clone + Send + Sync + 'static,
    ) -> (Self, Capabilities) {
        if let Some(local) = local {
            // Devices of this process live as long as it.
            let can = Capabilities {
                restart: Restart::Keeps,
                ..hopwise::capabilities()
            };
            let _ = local.send(ToDevice::Follow(device.node, Box::new(tell.clone())));
            return (Self::Local(local.clone(), Arc::new(tell)), can);
        }
        if device.driver == "files" {
            return Self::files(device, settings, tell);
        }
        if device.driver == "gnmi" {
            return Self::gnmi(device, settings, tell);
        }
        if settings.namespace.is_some() && namespaces.of(settings, &device.name).is_none() {
            let why = "its network namespace is entered at the start only; restart hopwise".to_owned();
            return (Self::Unusable(why, Arc::new(tell)), Capabilities::default());
        }
        if device.driver == "p4runtime" {
            return Self::p4runtime(device, settings, namespaces, tell);
        }
        let (is_secure, authority) = tls::authority(&device.address);
        let address = hopwise::Address {
            node: device.node,
            authority: authority.to_owned(),
            tls: is_secure.then(|| hopwise::client(settings)),
            namespace: namespaces.of(settings, &device.name),
            token: settings.token.as_ref().map(|token| token.0.clone()),
        };
        (
            Self::Hopwise(hopwise::Driver::start(address, tell)),
            hopwise::capabilities(),
        )
    }

    /// The manager acts, and renews its lease where that is possible.
    pub(super) fn renew(&self) {
        if let Self::Hopwise(driver) = self {
            driver.renew();
        }
    }

    fn files(
        device: &Device,
        settings: &ManagerSettings,
        tell: impl Fn(Message) + Clone + Send + Sync + 'static,
    ) -> (Self, Capabilities) {
        let (format, can) = match settings
            .files
            .get(&device.name)
            .map(|form| form.format(device))
            .transpose()
        {
            Ok(Some((format, can))) => (Some(format), can),
            Ok(None) => (None, files::capabilities()),
            Err((key, why)) => {
                return (
                    Self::Unusable(format!("`{key}`: {why}"), Arc::new(tell)),
                    Capabilities::default(),
                );
            }
        };
        let settings = files::Settings {
            node: device.node,
            name: device.name.clone(),
            directory: device.address.clone().into(),
            confirm: confirm(device),
            format,
        };
        (Self::Files(files::Driver::start(settings, tell)), can)
    }

    fn gnmi(
        device: &Device,
        settings: &ManagerSettings,
        tell: impl Fn(Message) + Clone + Send + Sync + 'static,
    ) -> (Self, Capabilities) {
        let missing = || format!("add [manager.gnmi.{}]", device.name);
        let found = settings.gnmi.get(&device.name).ok_or_else(missing);
        let found = found.and_then(|settings| {
            settings
                .driver(device)
                .map_err(|(key, why)| format!("`{key}`: {why}"))
        });
        let started = found.and_then(|settings| {
            let can = settings.map.capabilities().clone();
            Ok((gnmi::Driver::start(settings, tell.clone())?, can))
        });
        match started {
            Ok((driver, can)) => (Self::Gnmi(driver), can),
            Err(why) => (Self::Unusable(why, Arc::new(tell)), Capabilities::default()),
        }
    }

    fn p4runtime(
        device: &Device,
        settings: &ManagerSettings,
        namespaces: &Namespaces,
        tell: impl Fn(Message) + Clone + Send + Sync + 'static,
    ) -> (Self, Capabilities) {
        let missing = || format!("add [manager.p4runtime.{}]", device.name);
        let found = settings.p4runtime.get(&device.name).ok_or_else(missing);
        match found.and_then(|settings| {
            settings
                .driver(device)
                .map_err(|(key, why)| format!("`{key}`: {why}"))
        }) {
            Ok(mut driver) => {
                driver.via = namespaces.of(settings, &device.name).map(|inside| {
                    Connector::new(move |address| {
                        let inside = inside.clone();
                        Box::pin(async move { time::timeout(CONNECT, inside.connect(&address)).await? })
                    })
                });
                let settings = driver;
                let can = p4runtime::program::capabilities(&settings.map.1, &settings.local);
                (
                    Self::P4Runtime(p4runtime::driver::Driver::start(settings, tell)),
                    can,
                )
            }
            Err(why) => (Self::Unusable(why, Arc::new(tell)), Capabilities::default()),
        }
    }

    /// Hands over a command.
    pub(super) fn send(&self, command: Command) {
        match self {
            // A driver that is still busy lets the request time out.
            Self::Hopwise(driver) => _ = driver.send(command),
            Self::Files(driver) => _ = driver.send(command),
            Self::Gnmi(driver) => _ = driver.send(command),
            Self::P4Runtime(driver) => _ = driver.send(command),
            Self::Unusable(why, tell) => {
                tell(Message::Answer(
                    command.node,
                    command.id,
                    Answer::Unreachable(why.clone()),
                ));
            }
            Self::Local(local, tell) => {
                let (tell, node, id) = (Arc::clone(tell), command.node, command.id);
                // When the devices have ended, so does the program.
                let reply = move |answer| tell(Message::Answer(node, id, answer));
                let _ = local.send(ToDevice::Command(command, Box::new(reply)));
            }
        }
    }
}
