//! The configuration file as a whole.

use std::collections::BTreeMap;

use super::{
    aggregator::AggregatorSettings,
    sections::{
        ApiSettings, CollectorSettings, LogSettings, ProfileSettings, RuleSettings, SourceSettings,
        StoreSettings, ThresholdSettings, UiSettings,
    },
    switch::SwitchSettings,
    translator::TranslatorSettings,
};
use settings::section;

section! {
    /// What a configuration file can hold.
    pub(crate) struct Settings("the file") {
        /// How reports come in and how much is remembered.
        pub(crate) collector: CollectorSettings = CollectorSettings::default(),
        /// What devices mean by their numbers, by name.
        pub(crate) profiles: BTreeMap<String, ProfileSettings> = BTreeMap::new(),
        /// Who sends, and which profile reads it.
        pub(crate) sources: Vec<SourceSettings> = Vec::new(),
        /// Names of nodes.
        [live] pub(crate) nodes: BTreeMap<u32, String> = BTreeMap::new(),
        /// What counts as a change.
        [live] pub(crate) thresholds: ThresholdSettings = ThresholdSettings::default(),
        /// Conditions to watch.
        [live] pub(crate) rules: Vec<RuleSettings> = Vec::new(),
        /// A switch between interfaces.
        pub(crate) switch: Option<SwitchSettings> = None,
        /// A translator of Direct Telemetry Access.
        pub(crate) translator: Option<TranslatorSettings> = None,
        /// An aggregator of postcards.
        pub(crate) aggregator: Option<AggregatorSettings> = None,
        /// What is kept on disk.
        pub(crate) store: StoreSettings = StoreSettings::default(),
        /// The HTTP API.
        pub(crate) api: ApiSettings = ApiSettings::default(),
        /// The pages.
        pub(crate) ui: UiSettings = UiSettings::default(),
        /// What the program says about itself.
        pub(crate) log: LogSettings = LogSettings::default(),
    }
}
