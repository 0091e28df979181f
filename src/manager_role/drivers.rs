//! The way to a device: which driver it has, and its start.

use std::sync::Arc;

use manager::{
    device::{Capabilities, Command, Restart},
    driver::Message,
    inventory::Device,
};

use super::{Local, hopwise};
use crate::config::manager::ManagerSettings;

/// The driver of a device.
pub(super) enum Driver {
    /// A switch's API.
    Hopwise(hopwise::Driver),
    /// Inside this process.
    Local(Local, Arc<dyn Fn(Message) + Send + Sync>),
}

impl Driver {
    /// Starts the driver of a device, on the current runtime. Returns what the device can do as far as that is known before it was
    /// reached. `local`: all devices are in this process.
    pub(super) fn start(
        device: &Device,
        settings: &ManagerSettings,
        local: Option<&Local>,
        tell: impl Fn(Message) + Clone + Send + Sync + 'static,
    ) -> (Self, Capabilities) {
        if let Some(local) = local {
            // Devices of this process live as long as it.
            let can = Capabilities { restart: Restart::Keeps, ..hopwise::capabilities() };
            return (Self::Local(local.clone(), Arc::new(tell)), can);
        }
        let address = hopwise::Address {
            node: device.node,
            authority: device.address.clone(),
            token: settings.token.as_ref().map(|token| token.0.clone()),
        };
        (Self::Hopwise(hopwise::Driver::start(address, tell)), hopwise::capabilities())
    }

    /// Hands over a command.
    pub(super) fn send(&self, command: Command) {
        match self {
            // A driver that is still busy lets the request time out.
            Self::Hopwise(driver) => drop(driver.send(command)),
            Self::Local(local, tell) => {
                let (tell, node, id) = (Arc::clone(tell), command.node, command.id);
                // When the devices have ended, so does the program.
                let _ =
                    local.send((command, Box::new(move |answer| tell(Message::Answer(node, id, answer)))));
            }
        }
    }
}
