//! `/names`: names for ids and addresses, from `[nodes]`, `[profiles]`, the inventory, interfaces that devices report, and reverse DNS.

use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

use axum::extract::State;
use manager::inventory;
use wire::FlowKey;

use super::{
    context::Context,
    page::{self, Prepared},
    params::NoParams,
    query::internal_error,
    refusal::Refusal,
};
use view::NamesView;

/// Returns the names of nodes, interfaces, hosts and drop reasons.
pub(crate) async fn names(State(context): State<Arc<Context>>, _: NoParams) -> Result<Prepared, Refusal> {
    // Before the permit of a large response, which other pages wait for: the manager may be slow.
    let mut view = load(&context).await?;
    let dns = context.dns.clone();
    page::make(&context, move || {
        if let Some(dns) = dns {
            view.add_hosts(dns.names(), "dns");
        }
        view
    })
    .await
}

/// Returns the inventory labels by node id.
pub(super) async fn labels(context: &Context) -> BTreeMap<u32, Vec<String>> {
    let settings = context.active_config.get();
    let reported = match &context.manager {
        Some(manager) => manager.ask(|core, _| core.inventory().clone()).await,
        None => None,
    };
    let inventory = reported.unwrap_or_else(|| inventory::from_settings(&settings.inventory));
    inventory
        .devices()
        .map(|device| (device.node, device.labels.clone()))
        .collect()
}

/// Loads the names without DNS.
pub(super) async fn load(context: &Arc<Context>) -> Result<NamesView, Refusal> {
    let loaded = tokio::task::spawn_blocking(loader(context)).await;
    loaded.map_err(|_| internal_error())
}

/// Returns a function that loads the names without DNS. It waits for the manager, so call it on a blocking thread.
pub(super) fn loader(context: &Arc<Context>) -> impl FnOnce() -> NamesView + Send + use<> {
    let context = Arc::clone(context);
    let runtime = tokio::runtime::Handle::current();
    move || {
        let settings = context.active_config.get();
        // The manager's inventory includes names that devices report; without an answer, the configured names are used.
        let manager = context.manager.as_ref();
        let reported =
            manager.and_then(|manager| runtime.block_on(manager.ask(|core, _| core.inventory().clone())));
        let inventory = reported.unwrap_or_else(|| inventory::from_settings(&settings.inventory));
        let settings = settings.collect();
        NamesView::new(settings.node_names(), &inventory).with_drop_reasons(settings.drop_reasons())
    }
}

/// Queues the hosts of the flows in a response for reverse DNS lookup, if enabled.
pub(super) fn look_up<'a>(context: &Context, flows: impl IntoIterator<Item = &'a FlowKey>) {
    if let Some(dns) = &context.dns {
        let flows = flows.into_iter().filter(|flow| flow.known_id().is_none());
        dns.want(flows.flat_map(|flow| -> [IpAddr; 2] { [flow.src(), flow.dst()] }));
    }
}
