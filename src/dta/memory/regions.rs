//! The regions of a memory: made, or opened again with what is in them, and registered with the responder.

use std::{fs, io::ErrorKind, path::Path, sync::Arc};

use collector::rdma::{Order, Registered, Registration, Responder, Rights};
use collector::stores::{BODY, Header, Store, region_len};
use memory::Region;
use wire::dta::hash::Family;
use wire::dta::layout::{Columns, Geometry, Ring, SketchKind};

use crate::{
    config::memory::{HashFamily, MemorySettings, RegionSettings, SketchKind as SketchSetting, StoreKind},
    dta::shelf::{EXTENSION, Shelf, Shelved, unreadable},
    error::CliError,
};

/// A store that translators may write.
#[derive(Debug)]
pub(crate) struct Offered {
    pub(crate) shelved: Arc<Shelved>,
    pub(crate) registered: Registered,
    /// Reporters whose sketches are merged.
    pub(crate) reporters: u32,
    /// Entries are little-endian in memory, as the artifact's.
    pub(crate) swapped: bool,
}

/// Makes or opens all regions.
///
/// # Errors
/// No room, no permission, a region of another shape.
pub(super) fn open(
    settings: &MemorySettings,
    responder: &mut Responder,
) -> Result<(Shelf, Vec<Offered>), CliError> {
    fs::create_dir_all(&settings.directory).map_err(|error| {
        let remedy = "write another [collector.memory] directory, or make it";
        CliError::io(format!("cannot make {}", settings.directory.display()), error, remedy)
    })?;
    let mut offered = Vec::new();
    for written in &settings.stores {
        let shelved = Arc::new(one(&settings.directory, written)?);
        let registration = registration(&shelved.store, offered.len() as u16);
        let registered = responder.register(&registration).map_err(|error| {
            CliError::new(format!("the store `{}` cannot be registered: {error}", written.name))
        })?;
        let artifact = written.hash == HashFamily::Artifact && written.kind == StoreKind::Append;
        let swapped = artifact && !written.tagged && written.entry_len() == 4;
        offered.push(Offered { shelved, registered, reporters: written.reporters.into(), swapped });
    }
    Ok((Shelf::new(offered.iter().map(|offered| Arc::clone(&offered.shelved)).collect()), offered))
}

fn registration(store: &Store, region: u16) -> Registration {
    let (rights, order) = match store.geometry() {
        // An addition with an immediate is followed by an empty write.
        Geometry::KeyIncrement { .. } => (Rights::ALL, Order::Ascending),
        Geometry::KeyWrite { .. } | Geometry::Postcarding { .. } => (Rights::WRITE, Order::HeadLast),
        Geometry::Append { .. } | Geometry::Sketch { .. } => (Rights::WRITE, Order::Ascending),
    };
    Registration {
        memory: Arc::clone(store.region()),
        start: BODY,
        len: store.body_len(),
        rights,
        order,
        region,
    }
}

fn one(directory: &Path, written: &RegionSettings) -> Result<Shelved, CliError> {
    let geometry = geometry(written);
    let file = directory.join(format!("{}.{EXTENSION}", written.name));
    let header = Header {
        name: written.name.clone(),
        id: id(written),
        geometry,
        fields: fields(written),
        created: nic::time::now(),
        snapshot: None,
    };
    let failed = |error: std::io::Error| {
        let remedy = "take fewer slots, or a [collector.memory] directory with more room (df -h)";
        CliError::io(format!("cannot map {}", file.display()), error, remedy)
    };
    let store = match Region::create_file(&file, region_len(&geometry)) {
        Ok(region) => Store::create(Arc::new(region), &header),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let region = Arc::new(Region::open_file(&file).map_err(failed)?);
            reopened(Store::open(region), &header, &file)?
        }
        Err(error) => return Err(failed(error)),
    };
    let store = store.map_err(|error| CliError::new(unreadable(&file, error)))?;
    let mut shelved = Shelved::new(store, Some(file));
    // What the file says now holds, whatever the header page kept.
    shelved.fields = written.value.clone().or_else(|| written.fields.clone());
    Ok(shelved)
}

/// A store with its contents, if it is the one that is meant.
fn reopened(
    opened: Result<Store, collector::stores::HeaderError>,
    header: &Header,
    file: &Path,
) -> Result<Result<Store, collector::stores::HeaderError>, CliError> {
    let other = |what: &str| {
        CliError::new(format!(
            "{} is there and {what}; remove it to lose its contents and begin anew, or change the configuration back",
            file.display()
        ))
    };
    match opened {
        Ok(store) if store.geometry() == header.geometry && store.header().id == header.id => Ok(Ok(store)),
        Ok(store) if store.geometry() != header.geometry => {
            Err(other("has another shape than [[collector.memory.stores]] say"))
        }
        Ok(_) => Err(other("has another number (id, or first list)")),
        Err(error) => Err(other(&format!("cannot be used ({error})"))),
    }
}

/// The number of a store; of lists the first one's.
fn id(written: &RegionSettings) -> u32 {
    match (written.kind, written.lists) {
        (StoreKind::Append, Some(lists)) => lists.first,
        _ => written.id.unwrap_or_default().into(),
    }
}

fn fields(written: &RegionSettings) -> String {
    let fields = written.value.as_ref().or(written.fields.as_ref());
    fields.map(ToString::to_string).unwrap_or_default()
}

/// The geometry of a store that was checked.
pub(crate) fn geometry(written: &RegionSettings) -> Geometry {
    let slots = written.slots.map_or(0, |slots| slots.0);
    let family = match written.hash {
        HashFamily::V1 => Family::V1,
        HashFamily::Artifact => Family::Artifact,
    };
    match written.kind {
        StoreKind::KeyWrite => Geometry::KeyWrite { slots, data_len: written.data_len() as u16, family },
        StoreKind::KeyIncrement => Geometry::KeyIncrement { slots, family },
        StoreKind::Postcarding => Geometry::Postcarding { slots, hops: written.hops, family },
        StoreKind::Append => Geometry::Append {
            lists: written.lists.map_or(0, |lists| lists.count()),
            first_list: written.lists.map_or(0, |lists| lists.first),
            ring: Ring {
                entry_len: written.entry_len() as u16,
                entries: written.entries.0,
                batch: written.batch,
                tagged: written.tagged,
            },
        },
        StoreKind::Sketch => {
            let kind = match written.sketch {
                SketchSetting::CountMin => SketchKind::CountMin,
                SketchSetting::Count => SketchKind::Count,
                SketchSetting::HyperLogLog => SketchKind::HyperLogLog,
                SketchSetting::Aroma => SketchKind::Aroma,
            };
            let columns = u32::try_from(written.columns.0).unwrap_or(u32::MAX);
            Geometry::Sketch {
                kind,
                op: kind.op(),
                shape: Columns { depth: written.depth, columns, width: written.width },
            }
        }
    }
}
