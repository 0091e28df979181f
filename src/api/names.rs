//! Names: of nodes as configured, of devices and hosts of the inventory, and of the interfaces that devices name.

use std::{collections::BTreeMap, sync::Arc};

use axum::extract::State;
use manager::inventory::{self, Inventory};

use super::{
    Context,
    page::{self, Prepared},
    params::Params,
    refusal::Refusal,
};
use crate::view::{HostNameView, InterfaceNameView, NamesView, NodeNamesView};

/// Names of nodes, interfaces and hosts.
pub(crate) async fn names(State(context): State<Arc<Context>>, params: Params) -> Result<Prepared, Refusal> {
    params.only(&[])?;
    let settings = context.active_config.settings();
    // What devices say about their interfaces; a manager that is too busy to answer leaves the file's names.
    let known = match &context.manager {
        Some(manager) => manager.ask(|core, _| core.inventory().clone()).await,
        None => None,
    };
    page::make(&context, move || {
        let inventory = known.unwrap_or_else(|| inventory::of(&settings.inventory));
        let nodes = settings.nodes.iter();
        view(nodes.filter_map(|(node, entry)| Some((*node, entry.0.name.clone()?))).collect(), &inventory)
    })
    .await
}

/// `nodes`: the configured names, which come before those of devices.
fn view(mut nodes: BTreeMap<u32, String>, inventory: &Inventory) -> NamesView {
    for device in inventory.devices() {
        nodes.entry(device.node).or_insert_with(|| device.name.clone());
    }
    let interfaces = |node| -> Vec<InterfaceNameView> {
        let named = |port| Some((port, inventory.port_name((node, port))?.to_owned()));
        let named = inventory.ports(node).filter_map(named);
        named.map(|(interface, name)| InterfaceNameView { interface, name }).collect()
    };
    let nodes = nodes.into_iter();
    let mut hosts: Vec<HostNameView> = inventory
        .hosts()
        .flat_map(|host| {
            let addresses = host.addresses.iter().map(|ip| ip.to_canonical().to_string());
            addresses.map(|address| HostNameView { address, name: host.name.clone() })
        })
        .collect();
    hosts.sort_by(|a, b| a.address.cmp(&b.address));
    NamesView {
        nodes: nodes
            .map(|(node, name)| NodeNamesView { node, name: Some(name), interfaces: interfaces(node) })
            .collect(),
        hosts,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configured_names_come_first_and_interfaces_have_those_of_the_device() {
        let text = "devices = [{ name = \"leaf1\", node = 11, ports = 2 }, { name = \"leaf2\", node = 12 }]\n\
                    hosts = [{ name = \"h1\", addresses = [\"10.0.0.1\", \"fd00::1\"] }]";
        let mut inventory = inventory::read(text, "i.toml").unwrap();
        inventory.add_port((11, 2), Some("eth2".to_owned()), None).unwrap();
        let nodes = BTreeMap::from([(7, "probe".to_owned()), (12, "rack 2".to_owned())]);
        let node =
            |node, name: &str, interfaces| NodeNamesView { node, name: Some(name.to_owned()), interfaces };
        let host = |address: &str| HostNameView { address: address.to_owned(), name: "h1".to_owned() };
        let eth2 = InterfaceNameView { interface: 2, name: "eth2".to_owned() };
        let expected = NamesView {
            nodes: vec![node(7, "probe", vec![]), node(11, "leaf1", vec![eth2]), node(12, "rack 2", vec![])],
            hosts: vec![host("10.0.0.1"), host("fd00::1")],
        };
        assert_eq!(view(nodes, &inventory), expected);
    }
}
