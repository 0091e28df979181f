//! Lists RDMA devices and their RoCEv2 addresses from /sys/class/infiniband, without a library and without opening a device.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

/// An RDMA device, and its addresses for RoCEv2.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct RdmaDevice {
    /// Name of the device, such as `mlx5_0` or `rxe0`.
    pub name: String,
    /// IP addresses of all its ports.
    pub addresses: Vec<IpAddr>,
}

/// Returns the RDMA devices of this machine, sorted by name.
pub fn rdma_devices() -> Vec<RdmaDevice> {
    devices(Path::new("/sys/class/infiniband"))
}

fn devices(class: &Path) -> Vec<RdmaDevice> {
    let mut devices = Vec::new();
    for name in names(class) {
        let folder = class.join(&name).join("ports");
        let ports = names(&folder);
        let addresses = ports
            .iter()
            .flat_map(|port| addresses(&folder.join(port)))
            .collect();
        devices.push(RdmaDevice { name, addresses });
    }
    devices
}

/// Returns the addresses of a port, each once, in the order of its GID table.
fn addresses(port: &Path) -> Vec<IpAddr> {
    let mut indices: Vec<u32> = names(&port.join("gids"))
        .iter()
        .filter_map(|name| name.parse().ok())
        .collect();
    indices.sort_unstable();
    let mut found = Vec::new();
    for index in indices {
        // Reading the type of an empty entry fails.
        let kind = fs::read_to_string(port.join("gid_attrs/types").join(index.to_string()));
        let text = fs::read_to_string(port.join("gids").join(index.to_string()));
        let (Ok(kind), Ok(text)) = (kind, text) else {
            continue;
        };
        let Ok(address) = text.trim().parse::<Ipv6Addr>() else {
            continue;
        };
        let address = address.to_canonical();
        if kind.trim() == "RoCE v2" && !address.is_unspecified() && !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    let mut names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    names.sort_unstable();
    names
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn devices_are_read_with_their_addresses_for_rocev2() {
        let root = std::env::temp_dir().join(format!("hopwise-infiniband-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        assert_eq!(devices(&root), [], "no such folder");
        let port = root.join("rxe0/ports/1");
        for folder in ["gids", "gid_attrs/types"] {
            fs::create_dir_all(port.join(folder)).unwrap();
        }
        // As on an mlx5 device: each address twice, by type; then empty entries.
        for (index, (gid, kind)) in [
            ("fe80:0000:0000:0000:0000:00ff:fe00:0002", "IB/RoCE v1"),
            ("fe80:0000:0000:0000:0000:00ff:fe00:0002", "RoCE v2"),
            ("0000:0000:0000:0000:0000:ffff:0a58:0002", "IB/RoCE v1"),
            ("0000:0000:0000:0000:0000:ffff:0a58:0002", "RoCE v2"),
            ("0000:0000:0000:0000:0000:0000:0000:0000", ""),
            ("0000:0000:0000:0000:0000:ffff:0a58:0003", "IB/RoCE v1"),
        ]
        .iter()
        .enumerate()
        {
            fs::write(port.join("gids").join(index.to_string()), format!("{gid}\n")).unwrap();
            if !kind.is_empty() {
                fs::write(
                    port.join("gid_attrs/types").join(index.to_string()),
                    format!("{kind}\n"),
                )
                .unwrap();
            }
        }
        fs::create_dir_all(root.join("ib0")).unwrap();
        let addresses = ["fe80::ff:fe00:2", "10.88.0.2"]
            .map(|text| text.parse().unwrap())
            .to_vec();
        let expected = [("ib0", Vec::new()), ("rxe0", addresses)];
        let expected = expected.map(|(name, addresses)| RdmaDevice {
            name: name.to_owned(),
            addresses,
        });
        assert_eq!(devices(&root), expected);
        fs::remove_dir_all(root).unwrap();
    }
}
