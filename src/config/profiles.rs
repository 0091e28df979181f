//! Profiles of pipeline maps: how reports of the devices of `[inventory]` that they drive are read.

use std::{net::IpAddr, path::Path};

use p4runtime::map;

use super::{
    Settings,
    p4runtime::profile_of,
    sections::{SourceSettings, XdpMode},
};

impl Settings {
    /// Reports of devices that a pipeline map drives are read with the profile of the map, unless `[nodes]` or `[[sources]]` name another one.
    pub(crate) fn add_profiles(&mut self) {
        // The kernel's program knows one profile.
        let Some(manager) = self.manager.as_ref().filter(|_| self.collector.xdp.mode != XdpMode::Kernel)
        else {
            return;
        };
        let base = self.profiles.get("default").cloned().unwrap_or_default();
        for device in ::manager::inventory::of(&self.inventory).devices() {
            let Some(driven) = manager.p4runtime.get(&device.name).filter(|_| device.driver == "p4runtime")
            else {
                continue;
            };
            let Some((map, profile)) = driven.map().ok().and_then(|map| {
                let profile = profile_of(&map, &base).ok()??;
                Some((map, profile))
            }) else {
                continue;
            };
            let name = profile_name(&driven.map);
            let node = self.nodes.entry(device.node).or_default();
            node.0.profile.get_or_insert_with(|| name.clone());
            let source = driven.report.as_ref().and_then(|report| report.source);
            let is_named = |source: IpAddr| {
                self.sources.iter().filter_map(|one| one.prefix).any(|prefix| prefix.contains(source))
            };
            // Without a dialect, the reports are as those of other devices.
            if let Some(source) =
                source.filter(|source| map.profile().contains_key("dialect") && !is_named(*source))
            {
                let profile = name.clone();
                self.sources.push(SourceSettings { prefix: Some(source.into()), profile, name: None });
            }
            self.profiles.entry(name).or_insert(profile);
        }
    }
}

/// The name of a map's profile: that of the map, or of its file.
fn profile_name(map: &str) -> String {
    let stem = Path::new(map).file_stem().filter(|_| map::shipped(map).is_none());
    stem.map_or_else(|| map.to_owned(), |stem| stem.to_string_lossy().into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::{build, sections::ProfileSettings};

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

    /// Units of each node, and the dialects of the addresses of reports.
    fn read(text: &str) -> (Vec<NodeUnits>, Vec<(String, wire::Dialect)>) {
        let settings = Settings::parse(text, "h.toml").unwrap_or_else(|error| panic!("{error}"));
        // What is shown is what is in force, and is read again.
        let again = Settings::parse(&settings.to_toml(), "h.toml").unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(again, settings);
        let nodes = build::node_profiles(&settings).into_iter();
        let nodes = nodes.map(|(node, profile)| (node, profile.latency_unit_ns, profile.queue_unit));
        let sources = build::profiles(&settings).1.into_iter();
        (
            nodes.collect(),
            sources.map(|(prefix, profile)| (prefix.to_string(), profile.wire.dialect)).collect(),
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

    #[test]
    fn a_profile_that_says_something_else_is_refused() {
        let with = |line: &str| {
            let text =
                map::shipped("onos-int").unwrap().replacen("[profile]\n", &format!("[profile]\n{line}\n"), 1);
            map::read(&text, "m.toml")
                .map_err(|error| error.to_string())
                .and_then(|map| profile_of(&map, &ProfileSettings::default()).map(drop))
        };
        assert_eq!(with(""), Ok(()));
        assert!(with("dscp = \"9\"").unwrap_err().contains("dscp"));
        assert!(with("max_hop_latency = \"9s\"").unwrap_err().contains("it may have `dialect`"));
        let unit = map::shipped("onos-int").unwrap().replacen("\"1us\"", "\"soon\"", 1);
        let map = map::read(&unit, "m.toml").unwrap();
        assert!(profile_of(&map, &ProfileSettings::default()).unwrap_err().contains("soon"));
    }
}
