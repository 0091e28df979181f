//! Reads devices, interfaces and addresses from the REST API of NetBox (3.3 and newer), for `hopwise device import --netbox`.
//!
//! Cables are not read: `connected_endpoints` of an interface already names the far end, also through patch panels. Pages are
//! requested by offset instead of by the `next` URL in a response, so that the token never goes to another server.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, de::DeserializeOwned};
use serde_json::Value;

use crate::remote::Api;
use manager::inventory::MAX_DEVICES;
use net::client::{Client, Error, escape};
use net::tls;
use terminal::CliError;

/// Maximum number of objects in one page.
const PAGE_OBJECTS: usize = 250;
/// Maximum number of device ids in one request, which bounds the length of its URL.
const DEVICES_PER_QUERY: usize = 40;
/// Maximum number of interfaces, and of addresses, that are read.
const MAX_OBJECTS: usize = 1 << 18;

/// Options for the objects to read, and their roles in the inventory.
#[derive(clap::Args, Debug)]
pub(super) struct Options {
    /// Read from NetBox (3.3 or newer) at this URL. Its token: --token or NETBOX_TOKEN; https needs --ca
    #[arg(long, value_name = "URL")]
    pub(super) netbox: Option<String>,

    /// Only devices that match, by a filter of NetBox's list of devices, such as role=leaf or site=dc1. Repeatable
    #[arg(long, value_name = "NAME=VALUE", requires = "netbox", value_parser = filter)]
    filter: Vec<(String, String)>,

    /// Driver of these devices
    #[arg(long, default_value = "hopwise", requires = "netbox")]
    pub(super) driver: String,

    /// Address of a device for its driver: {ip} is its primary address, {name} its name
    #[arg(long, value_name = "TEXT", default_value = "{ip}:8080", requires = "netbox", value_parser = address)]
    pub(super) address: String,

    /// Custom field of devices with the node id; without it, or where it is empty: the id in NetBox
    #[arg(long, value_name = "FIELD", requires = "netbox")]
    pub(super) node_field: Option<String>,

    /// Custom field of interfaces with the number of the port; without it: the place among the physical interfaces, in the order of names
    #[arg(long, value_name = "FIELD", requires = "netbox")]
    pub(super) port_field: Option<String>,
}

/// Parses `NAME=VALUE` of `--filter`; rejects names that would change the paging or the fields of responses.
fn filter(text: &str) -> Result<(String, String), String> {
    let pair = text.split_once('=').filter(|(name, _)| !name.is_empty());
    let (name, value) = pair.ok_or("write NAME=VALUE, such as role=leaf")?;
    match name {
        "limit" | "offset" | "brief" | "fields" | "format" => Err(format!("`{name}` is not a filter")),
        _ => Ok((name.to_owned(), value.to_owned())),
    }
}

fn address(text: &str) -> Result<String, String> {
    let is_template = text.contains("{ip}") || text.contains("{name}");
    is_template
        .then(|| text.to_owned())
        .ok_or_else(|| "write {ip} or {name} where devices differ".to_owned())
}

/// One page of a list in NetBox's API.
#[derive(Deserialize)]
struct Page<T> {
    count: usize,
    results: Vec<T>,
}

/// NetBox object with an id.
pub(super) trait Object: DeserializeOwned {
    /// Returns the object's id in NetBox.
    fn id(&self) -> u64;
}

/// Reference to another NetBox object.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Reference {
    /// Id of the object in NetBox.
    pub(super) id: u64,
    /// Name of the object, if its kind has one.
    #[serde(default)]
    pub(super) name: Option<String>,
}

/// Site, role or tag of a device.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Slug {
    /// Short name that URLs and filters use.
    pub(super) slug: String,
}

/// Value of an enumeration.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Choice {
    /// Value as in the API, such as `active`.
    pub(super) value: String,
}

/// Address with its prefix length.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Prefix {
    /// Text form, such as `10.0.0.1/24`.
    pub(super) address: String,
}

/// Device with the fields that the import uses.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Device {
    pub(super) id: u64,
    #[serde(default)]
    pub(super) name: Option<String>,
    #[serde(default)]
    pub(super) primary_ip: Option<Prefix>,
    /// Role of the device; before NetBox 4.0 the key was `device_role`.
    #[serde(default, alias = "device_role")]
    pub(super) role: Option<Slug>,
    #[serde(default)]
    pub(super) site: Option<Slug>,
    #[serde(default)]
    pub(super) tags: Vec<Slug>,
    #[serde(default)]
    pub(super) custom_fields: BTreeMap<String, Value>,
}

/// Interface of a device, with the far end of its cable.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Interface {
    pub(super) id: u64,
    pub(super) device: Reference,
    pub(super) name: String,
    #[serde(rename = "type")]
    pub(super) kind: Choice,
    #[serde(default)]
    pub(super) mgmt_only: bool,
    #[serde(default)]
    pub(super) mtu: Option<u32>,
    #[serde(default)]
    pub(super) connected_endpoints: Option<Vec<Endpoint>>,
    #[serde(default)]
    pub(super) connected_endpoints_type: Option<String>,
    #[serde(default)]
    pub(super) connected_endpoints_reachable: Option<bool>,
    #[serde(default)]
    pub(super) custom_fields: BTreeMap<String, Value>,
}

impl Interface {
    /// Returns (interface id, device id) of each reachable interface at the far end of the cable.
    pub(super) fn ends(&self) -> impl Iterator<Item = (u64, Option<u64>)> {
        let is_cabled = self.connected_endpoints_reachable != Some(false)
            && self.connected_endpoints_type.as_deref() == Some("dcim.interface");
        let ends = self
            .connected_endpoints
            .iter()
            .flatten()
            .filter(move |_| is_cabled);
        ends.map(|end| (end.id, end.device.as_ref().map(|device| device.id)))
    }
}

/// Far end of a cable.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Endpoint {
    pub(super) id: u64,
    #[serde(default)]
    pub(super) device: Option<Reference>,
}

/// IP address assigned to an interface.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Address {
    pub(super) id: u64,
    pub(super) address: String,
    #[serde(default)]
    pub(super) role: Option<Choice>,
    #[serde(default)]
    pub(super) assigned_object: Option<Assigned>,
}

/// Interface to which an address is assigned; only its device is used.
#[derive(Clone, Debug, Deserialize)]
pub(super) struct Assigned {
    #[serde(default)]
    pub(super) device: Option<Reference>,
}

impl Object for Device {
    fn id(&self) -> u64 {
        self.id
    }
}

impl Object for Interface {
    fn id(&self) -> u64 {
        self.id
    }
}

impl Object for Address {
    fn id(&self) -> u64 {
        self.id
    }
}

/// Objects read from NetBox.
#[derive(Debug)]
pub(super) struct Objects {
    /// URL of the NetBox, for messages.
    pub(super) url: String,
    /// Devices to be managed.
    pub(super) devices: Vec<Device>,
    /// Interfaces of these devices.
    pub(super) interfaces: Vec<Interface>,
    /// Addresses of their unmanaged neighbours.
    pub(super) addresses: Vec<Address>,
}

/// Reads the selected devices, their interfaces, and the addresses of their neighbours.
///
/// # Errors
/// NetBox does not answer, rejects a request, or has too many objects.
pub(super) fn read(url: &str, options: &Options, api: &Api) -> Result<Objects, CliError> {
    let source = Source::new(url, api)?;
    let devices: Vec<Device> = source.list("dcim/devices", &query(&options.filter), MAX_DEVICES)?;
    let ids: Vec<u64> = devices.iter().map(|device| device.id).collect();
    let interfaces = source.list_for_devices("dcim/interfaces", &ids)?;
    let addresses = source.list_for_devices("ipam/ip-addresses", &neighbours(&ids, &interfaces))?;
    Ok(Objects {
        url: source.client.url(),
        devices,
        interfaces,
        addresses,
    })
}

/// Returns the ids of devices that are connected to these but not among them, ascending.
fn neighbours(devices: &[u64], interfaces: &[Interface]) -> Vec<u64> {
    let managed: BTreeSet<u64> = devices.iter().copied().collect();
    let far_ends = interfaces
        .iter()
        .flat_map(Interface::ends)
        .filter_map(|(_, device)| device);
    let unmanaged: BTreeSet<u64> = far_ends.filter(|device| !managed.contains(device)).collect();
    unmanaged.into_iter().collect()
}

fn query(filters: &[(String, String)]) -> String {
    let parameters = filters
        .iter()
        .map(|(name, value)| format!("&{}={}", escape(name), escape(value)));
    parameters.chain(["&exclude=config_context".to_owned()]).collect()
}

/// HTTP client of one NetBox.
struct Source {
    client: Client,
}

fn invalid_url(url: &str) -> CliError {
    CliError::new(format!(
        "`{url}` is not the URL of NetBox; write it like https://netbox.example.org"
    ))
}

fn is_visible(text: &str) -> bool {
    text.bytes()
        .all(|byte| byte.is_ascii_graphic() && !b"?#".contains(&byte))
}

impl Source {
    fn new(url: &str, api: &Api) -> Result<Self, CliError> {
        // A URL without a scheme means https, because the token is a secret.
        let base_url = if url.contains("://") {
            url.to_owned()
        } else {
            format!("https://{url}")
        };
        let (secure, address) = tls::authority(&base_url);
        let (authority, path) = address.split_once('/').unwrap_or((address, ""));
        let host_and_port = authority.rsplit(']').next().unwrap_or(authority);
        let port = match (host_and_port.contains(':'), secure) {
            (true, _) => "",
            (false, true) => ":443",
            (false, false) => ":80",
        };
        let scheme = if secure { "https" } else { "http" };
        if !is_visible(path) {
            return Err(invalid_url(url));
        }
        // Not HOPWISE_TOKEN: hopwise's own token must not be sent to another server.
        let token = api
            .token
            .clone()
            .or_else(|| std::env::var("NETBOX_TOKEN").ok())
            .filter(|token| !token.is_empty());
        if token.as_deref().is_some_and(|token| !is_visible(token)) {
            return Err(CliError::new(
                "the token of NetBox has characters that no token has; correct NETBOX_TOKEN",
            ));
        }
        let authorization = token.map(|token| {
            // Version 2 tokens (NetBox 4.5) begin with `nbt_` and use another scheme.
            let scheme = if token.starts_with("nbt_") {
                "Bearer"
            } else {
                "Token"
            };
            format!("{scheme} {token}")
        });
        let root = format!("{scheme}://{authority}{port}");
        let client = Client::with_tls(&root, None, api.tls_for(&root)?).map_err(|error| match error {
            Error::Address(_) => invalid_url(url),
            error => CliError::from(error),
        });
        if !secure && authorization.is_some() && !tls::is_loopback(authority) {
            return Err(CliError::new(format!(
                "the token of NetBox would be sent to {authority} without encryption; write https:// in its URL, with --ca, or leave the token out"
            )));
        }
        let client = client?;
        let base = if path.is_empty() {
            "/api/".to_owned()
        } else {
            format!("/{path}/api/")
        };
        Ok(Self {
            client: client.for_other(base, authorization),
        })
    }

    /// Reads all objects of a list that belong to these devices, in batches.
    fn list_for_devices<T: Object>(&self, list: &str, devices: &[u64]) -> Result<Vec<T>, CliError> {
        let mut objects = Vec::new();
        for batch in devices.chunks(DEVICES_PER_QUERY) {
            let filter: String = batch.iter().map(|id| format!("&device_id={id}")).collect();
            objects.extend(self.list(list, &filter, MAX_OBJECTS - objects.len())?);
        }
        Ok(objects)
    }

    /// Reads all objects of a list; fails if there are more than `limit`, or if the list changes meanwhile.
    fn list<T: Object>(&self, list: &str, query: &str, limit: usize) -> Result<Vec<T>, CliError> {
        let mut objects = Vec::new();
        let mut seen = BTreeSet::new();
        loop {
            let path = format!("{list}/?limit={PAGE_OBJECTS}&offset={}{query}", objects.len());
            let page: Page<T> = self.page(&path)?;
            if page.count.max(objects.len() + page.results.len()) > limit {
                return Err(self.refusal(&format!(
                    "{list} has more than {limit} objects to read; read fewer devices by --filter"
                )));
            }
            let is_empty = page.results.is_empty();
            for object in page.results {
                if !seen.insert(object.id()) {
                    return Err(self.refusal(&format!(
                        "{list} changed while it was read; run the command again"
                    )));
                }
                objects.push(object);
            }
            if objects.len() >= page.count {
                return Ok(objects);
            }
            if is_empty {
                return Err(self.refusal(&format!(
                    "{list} ended after {} of {} objects; run the command again",
                    objects.len(),
                    page.count
                )));
            }
        }
    }

    fn refusal(&self, problem: &str) -> CliError {
        CliError::new(format!("NetBox at {}: {problem}", self.client.url()))
    }

    /// Requests one page of a list; explains HTTP errors by what the user can change.
    fn page<T: DeserializeOwned>(&self, path: &str) -> Result<T, CliError> {
        let url = self.client.url();
        let list = path.split("/?").next().unwrap_or(path);
        let answer = self.client.get(path).map_err(|error| {
            CliError::new(match error {
                Error::Tls(message) => message,
                Error::Unreachable { source, .. } => {
                    format!("cannot read {list} of NetBox at {url}: {source}; check the URL of --netbox")
                }
                Error::Refused { status: 301..=308, .. } => format!(
                    "{url} sends to another URL; write that one after --netbox, with https:// if it has TLS"
                ),
                Error::Refused { status: status @ (401 | 403), message } => format!(
                    "NetBox at {url} refuses to show {list} ({status}: {}); set a token that may view it in NETBOX_TOKEN",
                    detail(&message)
                ),
                Error::Refused { status: 404, .. } => {
                    format!("{url} has no {list}; write the URL of NetBox without /api")
                }
                Error::Refused { status, message } => {
                    format!("NetBox at {url} refuses {list} ({status}: {}); correct --filter", detail(&message))
                }
                error => format!("{error}").replace("hopwise listens", "NetBox listens"),
            })
        })?;
        serde_json::from_value(answer).map_err(|error| {
            CliError::new(format!(
                "{list} of {url} is not a list of NetBox 3.3 or newer: {error}"
            ))
        })
    }
}

/// Extracts the reason from NetBox's error response, at most 200 characters.
fn detail(message: &str) -> String {
    let json = serde_json::from_str::<Value>(message).ok();
    let detail = json.as_ref().and_then(|json| json.get("detail")?.as_str());
    detail
        .unwrap_or(message)
        .trim_end_matches('.')
        .chars()
        .take(200)
        .collect()
}
