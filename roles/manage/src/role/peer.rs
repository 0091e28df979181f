//! Copies intents from the active manager to one on standby, by polling the active manager's API.

use std::{sync::Arc, time::Duration};

use tokio::time;

use super::{
    Handle,
    drivers::hopwise::{self, Address},
    view::CopyView,
};
use crate::settings::ManagerSettings;
use net::tls;

/// Interval of copies. If the active manager fails, changes since the last copy are lost.
const INTERVAL: Duration = Duration::from_secs(1);
/// Time limit of one copy.
const REQUEST: Duration = Duration::from_secs(4);

/// Returns the address of the other manager's API, if one is configured.
pub(super) fn address(settings: &ManagerSettings) -> Option<Address> {
    let (is_secure, authority) = tls::authority(settings.peer.as_deref()?);
    let token = settings.peer_token.as_ref().or(settings.token.as_ref());
    Some(Address {
        node: 0,
        authority: authority.to_owned(),
        tls: is_secure.then(|| hopwise::client(settings)),
        namespace: None,
        token: token.map(|token| token.0.clone()),
    })
}

/// Polls the other manager while this one is on standby.
pub(super) async fn follow(own: Handle, peer: Address) {
    let peer = Arc::new(peer);
    // The version that has been copied completely.
    let mut known: Option<String> = None;
    loop {
        time::sleep(INTERVAL).await;
        if own.requests.own(|core, _| core.is_acting()).await != Some(false) {
            known = None;
            continue;
        }
        let copied = time::timeout(REQUEST, read(&peer, known.as_deref())).await;
        let copied = copied.unwrap_or_else(|_| Err(format!("{} does not answer in time", peer.authority)));
        let etag = match &copied {
            Ok(Some((etag, _))) => Some(etag.clone()),
            Ok(None) => known.clone(),
            Err(_) => None,
        };
        let content = copied.map(|copied| copied.map(|(_, view)| view));
        let complete = own
            .requests
            .own(move |core, now| core.apply_copy(content, now))
            .await;
        known = etag.filter(|_| complete == Some(true));
    }
}

/// Reads the other manager's intents and their version. Returns `None` if the version is still the known one.
async fn read(peer: &Address, known: Option<&str>) -> Result<Option<(String, CopyView)>, String> {
    let Some((etag, body)) = hopwise::get(peer, "/domain/intents", known).await? else {
        return Ok(None);
    };
    let view = serde_json::from_slice(&body);
    let view = view.map_err(|_| {
        format!(
            "{} does not answer like a manager of this version",
            peer.authority
        )
    })?;
    Ok(Some((etag, view)))
}
