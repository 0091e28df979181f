//! Converts the settings of the configuration file into the configurations of other crates: store, flight recorder, names, wire
//! profiles.

use aggregate_role::settings::AggregatorSettings;
use collect_role::{
    settings::{XdpMode, receive_on},
    triggers,
};
use manager::inventory;
use view::{Names, NamesView};

use super::settings::Settings;

/// Returns the configuration of the store.
pub fn store(settings: &Settings) -> store::Config {
    let section = &settings.store;
    store::Config {
        period: section.period,
        commit_every: section.commit_every,
        max_age: section.max_age,
        max_bytes: section.max_bytes.map(|size| size.0),
        reports_table: section.reports || flight_recorder(settings).is_some(),
        ..store::Config::new(settings.store_directory())
    }
}

/// Returns the configuration of the flight recorder, or `None` if it is disabled, or if there is no store or collector.
pub fn flight_recorder(settings: &Settings) -> Option<triggers::Config> {
    let section = &settings.flight_recorder;
    let is_possible = settings.store.enabled && settings.collects();
    let default = settings.collector.xdp.mode != XdpMode::Kernel;
    (is_possible && section.enabled.unwrap_or(default)).then(|| section.config(settings.store.reports))
}

/// Returns the configured names of nodes, interfaces, hosts and drop reasons, for commands.
pub fn names(settings: &Settings) -> Names {
    let collect = settings.collect();
    NamesView::new(
        collect.node_names(),
        &inventory::from_settings(&settings.inventory),
    )
    .with_drop_reasons(collect.drop_reasons())
    .into()
}

/// Returns the wire profile with which the aggregator decodes postcards on its ports.
pub fn aggregator_profile(aggregator: &AggregatorSettings, settings: &Settings) -> wire::Profile {
    let mut profile = settings.collect().profile(&aggregator.profile).wire;
    // The check of the configuration refuses ports that do not fit.
    let _ = receive_on(&mut profile, &aggregator.listen.ports());
    profile
}
