//! Selects and starts the driver of a device. Three drivers are crates in `manager/drivers/` (files, gNMI, P4Runtime); the
//! driver of hopwise switches is here, because it uses their API.

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

/// Time limit for connecting from another network namespace.
const CONNECT: Duration = Duration::from_secs(1);

/// Returns the condition under which a device behind files counts as configured.
fn confirm(device: &Device) -> Confirm {
    device
        .options
        .confirm
        .as_deref()
        .and_then(Confirm::from_name)
        .unwrap_or_default()
}

/// Returns a note if the driver of a device cannot guarantee the order of steps.
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
    /// A hopwise switch, through its API.
    Hopwise(hopwise::Driver),
    /// Files, which other software turns into the device's configuration.
    Files(files::Driver),
    /// A device configured by gNMI.
    Gnmi(gnmi::Driver),
    /// A device configured by P4Runtime.
    P4Runtime(p4runtime::driver::Driver),
    /// A device whose settings are unusable, with the error.
    Unusable(String, Arc<dyn Fn(Message) + Send + Sync>),
    /// A simulated device inside this process.
    Local(Local, Arc<dyn Fn(Message) + Send + Sync>),
}

impl Driver {
    /// Starts the driver of a device on the current runtime. Returns it with the capabilities that are known before the device
    /// is reached. With `local`, all devices are in this process; `namespaces` are the network namespaces of the devices.
    pub(super) fn start(
        device: &Device,
        settings: &ManagerSettings,
        local: Option<&Local>,
        namespaces: &Namespaces,
        send: impl Fn(Message) + Clone + Send + Sync + 'static,
    ) -> (Self, Capabilities) {
        if let Some(local) = local {
            // A device in this process lives exactly as long as the process.
            let can = Capabilities {
                restart: Restart::Keeps,
                ..hopwise::capabilities()
            };
            let _ = local.send(ToDevice::Follow(device.node, Box::new(send.clone())));
            return (Self::Local(local.clone(), Arc::new(send)), can);
        }
        if device.driver == "files" {
            return Self::files(device, settings, send);
        }
        if device.driver == "gnmi" {
            return Self::gnmi(device, settings, send);
        }
        if settings.namespace.is_some() && namespaces.get(settings, &device.name).is_none() {
            let why = "its network namespace is entered at the start only; restart hopwise";
            return Self::unusable(why.to_owned(), send);
        }
        if device.driver == "p4runtime" {
            return Self::p4runtime(device, settings, namespaces, send);
        }
        let (is_secure, authority) = tls::authority(&device.address);
        let address = hopwise::Address {
            node: device.node,
            authority: authority.to_owned(),
            tls: is_secure.then(|| hopwise::client(settings)),
            namespace: namespaces.get(settings, &device.name),
            token: settings.token.as_ref().map(|token| token.0.clone()),
        };
        (
            Self::Hopwise(hopwise::Driver::start(address, send)),
            hopwise::capabilities(),
        )
    }

    fn unusable(why: String, send: impl Fn(Message) + Send + Sync + 'static) -> (Self, Capabilities) {
        (Self::Unusable(why, Arc::new(send)), Capabilities::default())
    }

    /// Renews the active manager's lease on devices that store one.
    pub(super) fn renew(&self) {
        if let Self::Hopwise(driver) = self {
            driver.renew();
        }
    }

    fn files(
        device: &Device,
        settings: &ManagerSettings,
        send: impl Fn(Message) + Clone + Send + Sync + 'static,
    ) -> (Self, Capabilities) {
        let (format, can) = match settings
            .files
            .get(&device.name)
            .map(|form| form.format(device))
            .transpose()
        {
            Ok(Some((format, can))) => (Some(format), can),
            Ok(None) => (None, files::capabilities()),
            Err((key, why)) => return Self::unusable(format!("`{key}`: {why}"), send),
        };
        let settings = files::Settings {
            node: device.node,
            name: device.name.clone(),
            directory: device.address.clone().into(),
            confirm: confirm(device),
            format,
        };
        (Self::Files(files::Driver::start(settings, send)), can)
    }

    fn gnmi(
        device: &Device,
        settings: &ManagerSettings,
        send: impl Fn(Message) + Clone + Send + Sync + 'static,
    ) -> (Self, Capabilities) {
        let Some(settings) = settings.gnmi.get(&device.name) else {
            return Self::unusable(format!("add [manager.gnmi.{}]", device.name), send);
        };
        let driver = match settings.driver(device) {
            Ok(driver) => driver,
            Err((key, why)) => return Self::unusable(format!("`{key}`: {why}"), send),
        };
        let can = driver.map.capabilities().clone();
        match gnmi::Driver::start(driver, send.clone()) {
            Ok(driver) => (Self::Gnmi(driver), can),
            Err(why) => Self::unusable(why, send),
        }
    }

    fn p4runtime(
        device: &Device,
        settings: &ManagerSettings,
        namespaces: &Namespaces,
        send: impl Fn(Message) + Clone + Send + Sync + 'static,
    ) -> (Self, Capabilities) {
        let Some(of_device) = settings.p4runtime.get(&device.name) else {
            return Self::unusable(format!("add [manager.p4runtime.{}]", device.name), send);
        };
        let mut driver = match of_device.driver(device) {
            Ok(driver) => driver,
            Err((key, why)) => return Self::unusable(format!("`{key}`: {why}"), send),
        };
        driver.via = namespaces.get(settings, &device.name).map(|inside| {
            Connector::new(move |address| {
                let inside = inside.clone();
                Box::pin(async move { time::timeout(CONNECT, inside.connect(&address)).await? })
            })
        });
        let can = p4runtime::program::capabilities(&driver.map.1, &driver.local);
        let driver = p4runtime::driver::Driver::start(driver, send);
        (Self::P4Runtime(driver), can)
    }

    /// Hands a command to the device.
    pub(super) fn send(&self, command: Command) {
        match self {
            // A busy driver drops the command, and the request times out.
            Self::Hopwise(driver) => _ = driver.send(command),
            Self::Files(driver) => _ = driver.send(command),
            Self::Gnmi(driver) => _ = driver.send(command),
            Self::P4Runtime(driver) => _ = driver.send(command),
            Self::Unusable(why, send) => {
                send(Message::Answer(
                    command.node,
                    command.id,
                    Answer::Unreachable(why.clone()),
                ));
            }
            Self::Local(local, send) => {
                let send = Arc::clone(send);
                let node = command.node;
                let id = command.id;
                let reply = Box::new(move |answer| send(Message::Answer(node, id, answer)));
                // If the devices have ended, the process is ending, too.
                let _ = local.send(ToDevice::Command(command, reply));
            }
        }
    }
}
