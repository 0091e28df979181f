//! Names: of nodes as configured, of devices and hosts of the inventory, of the interfaces that devices name, and of hosts by DNS.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use axum::extract::State;
use manager::inventory;
use wire::FlowKey;

use super::{
    context::Context,
    page::{self, Prepared},
    params::NoParams,
    refusal::Refusal,
};
use view::NamesView;

/// Returns the names of nodes, interfaces and hosts.
pub(crate) async fn names(State(context): State<Arc<Context>>, _: NoParams) -> Result<Prepared, Refusal> {
    let make = known(&context).await;
    let dns = context.dns.clone();
    page::make(&context, move || {
        let mut view = make();
        if let Some(dns) = dns {
            view.add_hosts(dns.names(), "dns");
        }
        view
    })
    .await
}

/// Returns the labels of nodes in the inventory.
pub(super) async fn labels(context: &Context) -> BTreeMap<u32, Vec<String>> {
    let settings = context.active_config.get();
    let known = match &context.manager {
        Some(manager) => manager.ask(|core, _| core.inventory().clone()).await,
        None => None,
    };
    let inventory = known.unwrap_or_else(|| inventory::from_settings(&settings.inventory));
    inventory
        .devices()
        .map(|device| (device.node, device.labels.clone()))
        .collect()
}

/// Makes the names, without those by DNS: outside the runtime, because they may be many.
pub(super) async fn known(context: &Context) -> impl FnOnce() -> NamesView + Send + use<> {
    let settings = context.active_config.get();
    // What devices say about their interfaces; a manager that is too busy to answer leaves the file's names.
    let known = match &context.manager {
        Some(manager) => manager.ask(|core, _| core.inventory().clone()).await,
        None => None,
    };
    move || {
        let inventory = known.unwrap_or_else(|| inventory::from_settings(&settings.inventory));
        NamesView::new(settings.collect().node_names(), &inventory)
    }
}

/// Queues the hosts of the flows in an answer to be looked up by DNS, if that is configured.
pub(super) fn look_up<'a>(context: &Context, flows: impl IntoIterator<Item = &'a FlowKey>) {
    if let Some(dns) = &context.dns {
        let with_addresses = flows.into_iter().filter(|flow| flow.known_id().is_none());
        dns.want(with_addresses.flat_map(|flow| -> [IpAddr; 2] { [flow.src(), flow.dst()] }));
    }
}
