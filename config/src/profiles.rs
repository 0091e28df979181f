//! Decoding profiles from pipeline maps: a map describes a device's P4 program, including the dialect and units of its reports,
//! and the collector reads the reports of `[inventory]` devices accordingly.

use std::{collections::BTreeMap, path::Path};

use manage_role::settings::{ManagerSettings, files::FilesFormat, p4runtime::P4RuntimeSettings};
use manager::inventory::{self, Device};
use p4runtime::map::{self, Map};
use settings::{
    read::Reader,
    setting::{Setting, tables},
};

use super::{Settings, check::BUILT_IN_PROFILES};
use collect_role::settings::XdpMode;
use model::{ProfileSettings, SourceSettings};

impl Settings {
    /// Assigns the profile of its pipeline map to each device with a map, unless `[nodes]` or `[[sources]]` sets another one.
    /// `refuse` is called with a device's driver and name, and the error of its map.
    pub fn add_profiles(&mut self, mut refuse: impl FnMut(&str, &str, String)) {
        let Some(manager) = &self.manager else { return };
        // The eBPF program supports only one profile.
        let has_profiles = self.collector.xdp.mode != XdpMode::Kernel;
        let mut map_profiles: BTreeMap<String, ProfileSettings> = BTreeMap::new();
        let base = self.profiles.get("default").cloned().unwrap_or_default();
        for device in inventory::from_settings(&self.inventory).devices() {
            let Some((p4_settings, map)) = p4_settings_and_map(manager, device) else {
                continue;
            };
            let profile = match profile_of(&map, &base) {
                Ok(Some(profile)) if has_profiles => profile,
                Ok(_) => continue,
                Err(message) => {
                    refuse(&device.driver, &device.name, message);
                    continue;
                }
            };
            let name = profile_name(&p4_settings.map);
            let node = self.nodes.entry(device.node).or_default();
            let node_profile = node.0.profile.get_or_insert_with(|| name.clone());
            let mut is_used = *node_profile == name;
            let source = p4_settings.report.as_ref().and_then(|report| report.source);
            // Without a dialect, the reports have the standard format.
            if let Some(source) = source
                && map.profile().contains_key("dialect")
                && !self
                    .sources
                    .iter()
                    .filter_map(|source| source.prefix)
                    .any(|prefix| prefix.contains(source))
            {
                let profile = name.clone();
                self.sources.push(SourceSettings {
                    prefix: Some(source.into()),
                    profile,
                    name: None,
                });
                is_used = true;
            }
            if !is_used {
                continue;
            }
            let problem = match map_profiles.get(&name) {
                _ if BUILT_IN_PROFILES.contains(&&*name) => {
                    format!(
                        "the profile `{name}` exists without a map; give the file of the map of `{}` another name",
                        device.name
                    )
                }
                Some(other) if *other != profile => format!(
                    "the map of `{}` has another profile than a map of the same name, `{name}`, before it; give the file of the map another name",
                    device.name
                ),
                _ => {
                    // An explicitly configured profile takes precedence.
                    self.profiles
                        .entry(name.clone())
                        .or_insert_with(|| profile.clone());
                    map_profiles.insert(name, profile);
                    continue;
                }
            };
            refuse(&device.driver, &device.name, problem);
        }
    }
}

/// Returns the P4 settings and the pipeline map of a device, or `None` if it has none. An unreadable map is reported elsewhere.
fn p4_settings_and_map(manager: &ManagerSettings, device: &Device) -> Option<(P4RuntimeSettings, Map)> {
    let p4_settings = match device.driver.as_str() {
        "p4runtime" => manager.p4runtime.get(&device.name).cloned(),
        "files" => {
            let files = manager.files.get(&device.name);
            files
                .filter(|files| files.format == FilesFormat::Bmv2)
                .map(|files| files.p4())
        }
        _ => None,
    }?;
    let map = p4_settings.map().ok()?;
    Some((p4_settings, map))
}

/// Returns `base` modified by `[profile]` of a map, or `None` if the map has none.
fn profile_of(map: &Map, base: &ProfileSettings) -> Result<Option<ProfileSettings>, String> {
    if map.profile().is_empty() {
        return Ok(None);
    }
    let lines = map
        .profile()
        .iter()
        .map(|(key, value)| format!("{key} = {value:?}\n"));
    let text = lines.collect::<String>();
    let mut reader = Reader::new(&text);
    let read = reader
        .parse(tables::<ProfileSettings>)
        .and_then(|root| ProfileSettings::read(&root, &mut reader));
    reader
        .finish("[profile] of the map")
        .map_err(|error| error.to_string())?;
    let mut profile = base.clone();
    let read = read.unwrap_or_default();
    for key in map.profile().keys() {
        match key.as_str() {
            "dialect" => profile.dialect = read.dialect,
            "timestamp_unit" => profile.timestamp_unit = read.timestamp_unit,
            "latency_unit" => profile.latency_unit = read.latency_unit,
            "queue_unit" => profile.queue_unit.clone_from(&read.queue_unit),
            _ => {
                return Err(format!(
                    "[profile] of the map has `{key}`; it may have `dialect`, `timestamp_unit`, `latency_unit` and `queue_unit`"
                ));
            }
        }
    }
    Ok(Some(profile))
}

/// Returns the name of a map's profile: the name of a built-in map, or else the file name without its extension.
fn profile_name(map: &str) -> String {
    let stem = Path::new(map).file_stem().filter(|_| map::shipped(map).is_none());
    stem.map_or_else(|| map.to_owned(), |stem| stem.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: &str = r#"
[manager]
collectors = [{ address = "10.9.0.1:9555" }]
[manager.p4runtime.s1]
map = "onos-int"
report = { port = 4, source = "192.0.2.1", source_mac = "02:00:00:00:00:01", mac = "02:00:00:00:01:00" }
[manager.p4runtime.s2]
map = "hopwise-int"
report = { port = 4, source = "192.0.2.2", source_mac = "02:00:00:00:00:02", mac = "02:00:00:00:01:00" }
[[inventory.devices]]
name = "s1"
node = 21
driver = "p4runtime"
address = "127.0.0.1:1"
ports = 2
[[inventory.devices]]
name = "s2"
node = 22
driver = "p4runtime"
address = "127.0.0.1:2"
ports = 2
[profiles.default]
clocks = "synchronised"
"#;

    /// A node, its unit of latency, and that of its queues.
    type NodeUnits = (u32, u32, String);

    /// Returns the units of each node, and the dialects of the addresses of reports.
    fn read(text: &str) -> (Vec<NodeUnits>, Vec<(String, wire::Dialect)>) {
        let settings = Settings::parse(text, "h.toml").unwrap_or_else(|error| panic!("{error}"));
        // The dump, read again, gives equal settings.
        let again = Settings::parse(&settings.to_toml(), "h.toml").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again, settings);
        let nodes = settings.collect().node_profiles().into_iter();
        let nodes = nodes.map(|(node, profile)| (node, profile.latency_unit_ns, profile.queue_unit));
        let sources = settings.collect().resolve_profiles().1.into_iter();
        (
            nodes.collect(),
            sources
                .map(|(prefix, profile)| (prefix.to_string(), profile.wire.dialect))
                .collect(),
        )
    }

    #[test]
    fn reports_of_a_device_are_read_with_the_profile_of_its_map() {
        let (packets, onos) = ("packets".to_owned(), wire::Dialect::Onos);
        let (nodes, sources) = read(FILE);
        assert_eq!(nodes, [(21, 1000, packets.clone()), (22, 1, packets.clone())]);
        // The second one reports as specified.
        assert_eq!(sources, [("192.0.2.1/32".to_owned(), onos)]);
        let own = "[profiles.mine]\nlatency_unit = \"7ns\"\n[nodes.21]\nprofile = \"mine\"\n\
                   [[sources]]\nprefix = \"192.0.2.0/24\"\nprofile = \"mine\"\n";
        let (nodes, sources) = read(&format!("{FILE}{own}"));
        assert_eq!(nodes, [(21, 7, "bytes".to_owned()), (22, 1, packets)]);
        assert_eq!(sources, [("192.0.2.0/24".to_owned(), wire::Dialect::Strict)]);
    }

    /// Maps in files of one name are refused if they differ, and those with the names of built-in profiles.
    #[test]
    fn profiles_of_one_name_are_one_profile() {
        let folder = std::env::temp_dir().join(format!("hopwise-profiles-{}", std::process::id()));
        let path = |name: &str| folder.join(name).display().to_string();
        for (name, unit) in [
            ("a/int.toml", "1us"),
            ("b/int.toml", "2us"),
            ("c/int.toml", "1us"),
            ("b/onos-int.toml", "2us"),
            ("default.toml", "1us"),
            ("onos.toml", "1us"),
        ] {
            let text = map::shipped("onos-int")
                .unwrap()
                .replacen("\"1us\"", &format!("{unit:?}"), 1);
            std::fs::create_dir_all(folder.join(name).parent().unwrap()).unwrap();
            std::fs::write(folder.join(name), text).unwrap();
        }
        let refused = |one: &str, other: &str| {
            let text = FILE.replacen("\"onos-int\"", &format!("{one:?}"), 1);
            let text = text.replacen("\"hopwise-int\"", &format!("{other:?}"), 1);
            Settings::parse(&text, "h.toml")
                .err()
                .map(|error| error.to_string())
                .unwrap_or_default()
        };
        assert_eq!(refused(&path("a/int.toml"), &path("c/int.toml")), "");
        let text = refused(&path("a/int.toml"), &path("b/int.toml"));
        let expected = "the map of `s2` has another profile than a map of the same name, `int`, before it; give the file of the map another name";
        assert!(text.contains("h.toml:8") && text.contains(expected), "{text}");
        let text = refused("onos-int", &path("b/onos-int.toml"));
        assert!(text.contains("of the same name, `onos-int`,"), "{text}");
        for name in ["default", "onos"] {
            let text = refused(&path(&format!("{name}.toml")), "hopwise-int");
            let expected =
                format!("the profile `{name}` exists without a map; give the file of the map of `s1`");
            assert!(text.contains("h.toml:5") && text.contains(&expected), "{text}");
        }
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_device_that_reads_files_has_the_profile_of_its_map_too() {
        let text = FILE
            .replacen("[manager.p4runtime.s2]", "[manager.files.s2]", 1)
            .replacen(
                "driver = \"p4runtime\"\naddress = \"127.0.0.1:2\"",
                "driver = \"files\"\naddress = \"/tmp\"",
                1,
            );
        assert_eq!(read(&text), read(FILE));
    }

    #[test]
    fn a_profile_that_says_something_else_is_refused() {
        let with = |line: &str| {
            let text =
                map::shipped("onos-int")
                    .unwrap()
                    .replacen("[profile]\n", &format!("[profile]\n{line}\n"), 1);
            map::read(&text, "m.toml")
                .map_err(|error| error.to_string())
                .and_then(|map| profile_of(&map, &ProfileSettings::default()).map(drop))
        };
        assert_eq!(with(""), Ok(()));
        assert!(with("dscp = \"9\"").unwrap_err().contains("dscp"));
        assert!(
            with("max_hop_latency = \"9s\"")
                .unwrap_err()
                .contains("it may have `dialect`")
        );
        let unit = map::shipped("onos-int")
            .unwrap()
            .replacen("\"1us\"", "\"soon\"", 1);
        let map = map::read(&unit, "m.toml").unwrap();
        assert!(
            profile_of(&map, &ProfileSettings::default())
                .unwrap_err()
                .contains("soon")
        );
    }
}
