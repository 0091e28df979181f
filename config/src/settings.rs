//! The top level of the configuration file: all sections with their types and defaults.

use aggregate_role::settings::AggregatorSettings;
use collect_role::settings::CollectorSettings;
use model::NodeEntry;
use model::ProfileSettings;
use model::RuleSettings;
use model::SourceSettings;
use model::ThresholdSettings;
use std::collections::BTreeMap;

use super::{
    console::ConsoleSettings,
    sections::{ApiSettings, LogSettings, NamesSettings, StoreSettings, UiSettings},
};
use collect_role::settings::flight_recorder::FlightRecorderSettings;
use dta_role::{reporter::settings::ReporterSettings, translator::settings::TranslatorSettings};
use export_role::settings::{ExportSettings, SharedExportSettings, outlet::OutletSettings};
use manage_role::settings::ManagerSettings;
use manager::{intent::IntentSettings, inventory::InventorySettings};
use settings::section;
use switch_role::settings::SwitchSettings;

section! {
    /// All sections of a configuration file.
    pub struct Settings("the file") {
        /// Receiving, and the size of all tables.
        pub collector: CollectorSettings = CollectorSettings::default(),
        /// Profiles of devices, by name.
        pub profiles: BTreeMap<String, ProfileSettings> = BTreeMap::new(),
        /// Senders of reports, and the profile of each.
        pub sources: Vec<SourceSettings> = Vec::new(),
        /// Names of nodes, and profiles of those that count in other units than their reporters.
        [live] pub nodes: BTreeMap<u32, NodeEntry> = BTreeMap::new(),
        /// Thresholds of significant changes.
        [live] pub thresholds: ThresholdSettings = ThresholdSettings::default(),
        /// Rules: conditions over metrics, with a name.
        [live] pub rules: Vec<RuleSettings> = Vec::new(),
        /// A software switch between interfaces.
        pub switch: Option<SwitchSettings> = None,
        /// A translator of Direct Telemetry Access.
        pub translator: Option<TranslatorSettings> = None,
        /// An aggregator of postcards.
        pub aggregator: Option<AggregatorSettings> = None,
        /// A reporter of Direct Telemetry Access for this machine's programs.
        pub reporter: Option<ReporterSettings> = None,
        /// A manager of INT.
        pub manager: Option<ManagerSettings> = None,
        /// Devices, links and hosts of the network.
        [live] pub inventory: InventorySettings = InventorySettings::default(),
        /// Flows that a manager measures.
        [live] pub intents: Vec<IntentSettings> = Vec::new(),
        /// Host names for IP addresses.
        pub names: NamesSettings = NamesSettings::default(),
        /// The local store of events, flows and rollups.
        pub store: StoreSettings = StoreSettings::default(),
        /// Recordings of the reports around significant events.
        pub flight_recorder: FlightRecorderSettings = FlightRecorderSettings::default(),
        /// Settings that all exports share.
        pub export: SharedExportSettings = SharedExportSettings::default(),
        /// Records to other systems, by name.
        pub exports: BTreeMap<String, ExportSettings> = BTreeMap::new(),
        /// An outlet from Kafka into ClickHouse.
        pub outlet: Option<OutletSettings> = None,
        /// A console over the records of a fleet.
        pub console: Option<ConsoleSettings> = None,
        /// The HTTP API and its listener.
        pub api: ApiSettings = ApiSettings::default(),
        /// The web UI, on the API's listener.
        pub ui: UiSettings = UiSettings::default(),
        /// The log on standard error.
        pub log: LogSettings = LogSettings::default(),
    }
}
