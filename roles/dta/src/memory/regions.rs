//! Creates or reopens the memory regions of stores, and registers them with the responder for remote access.
//!
//! A region is a memory-mapped file, or part of the kernel program's memory, which is loaded from the file at the start and
//! saved at the stop.

use std::{
    fs,
    io::ErrorKind,
    path::{Path, PathBuf},
    sync::Arc,
};

use dta::{BODY, DtaStore, Header, HeaderError, region_len};
use memory::Region;
use rdma::responder::{AccessFlags, Order, Registered, Registration, Responder};
use wire::dta::{
    hash::Family,
    layout::{Columns, Geometry, Ring},
};

use super::kernel::{self, Kernel};
use super::verbs::Verbs;
use dta::persist::{self, KernelLock};
use dta::settings::{MemoryMode, MemorySettings, RegionSettings, StoreKind};
use dta::source::{DtaSource, EXTENSION, SourceStore, unreadable};
use terminal::CliError;

/// A store that is offered to translators.
#[derive(Debug)]
pub(crate) struct Offered {
    pub(crate) store: Arc<SourceStore>,
    pub(crate) registered: Registered,
    /// Number of reporters whose sketches are merged.
    pub(crate) reporters: u32,
    /// Entries are little-endian in memory, as the published DTA artifact writes them.
    pub(crate) swapped: bool,
}

/// All opened regions, and the responders that execute operations on them.
pub(super) struct Opened {
    pub(super) source: DtaSource,
    pub(super) offered: Vec<Offered>,
    pub(super) kernel: Option<Kernel>,
    pub(super) verbs: Option<Verbs>,
    pub(super) kernel_lock: Option<KernelLock>,
}

/// Creates or opens all regions.
///
/// # Errors
/// There is no space or permission, a region has a different geometry, or the kernel rejects the responder.
pub(super) fn open(settings: &MemorySettings, responder: &mut Responder) -> Result<Opened, CliError> {
    let directory = &settings.directory;
    fs::create_dir_all(directory).map_err(|error| {
        let remedy = "write another [collector.memory] directory, or make it";
        CliError::io(format!("cannot make {}", directory.display()), error, remedy)
    })?;
    let (kernel, kernel_lock) = match settings.mode {
        MemoryMode::Socket | MemoryMode::Verbs if persist::is_locked(directory) => {
            return Err(CliError::new(in_use(directory)));
        }
        MemoryMode::Socket | MemoryMode::Verbs => (None, None),
        MemoryMode::Xdp => {
            let lock = KernelLock::acquire(directory).map_err(|error| unmarked(directory, error))?;
            if lock.left_behind {
                tracing::warn!(
                    "the previous process with the memory of {} did not stop cleanly: the memory has the contents of the last clean stop",
                    directory.display()
                );
            }
            let lens = settings
                .stores
                .iter()
                .map(|written| region_len(&geometry(written)));
            (
                Some(Kernel::open(settings, lens.fold(0, kernel::end))?),
                Some(lock),
            )
        }
    };
    let is_verbs = settings.mode == MemoryMode::Verbs;
    let verbs = is_verbs
        .then(|| Verbs::open(settings.listen.ip(), settings.queue_pairs))
        .transpose()?;
    let mut offered = Vec::new();
    let mut offset = 0;
    for written in &settings.stores {
        let store = match &kernel {
            None => open_store(directory, written)?,
            Some(kernel) => one_of_kernel(directory, written, kernel, offset)?,
        };
        let store = Arc::new(store);
        let registration = registration(&store.store, offered.len() as u16);
        let registered = match &verbs {
            Some(verbs) => verbs
                .register(store.store.region(), BODY)
                .map_err(|error| unregistered(written, &error))?,
            None => responder
                .register(&registration)
                .map_err(|error| unregistered(written, &error))?,
        };
        // An RDMA device registers whole pages; offer only the body.
        let registered = Registered {
            len: store.store.body_len(),
            ..registered
        };
        if let Some(kernel) = &kernel {
            kernel
                .register(&registered, offset, &registration)
                .map_err(|error| unregistered(written, &error))?;
            offset = kernel::end(offset, region_len(&store.store.geometry()));
        }
        let artifact = written.hash == Family::Artifact && written.kind == StoreKind::Append;
        let swapped = artifact && !written.tagged && written.entry_len() == 4;
        offered.push(Offered {
            store,
            registered,
            reporters: written.reporters.into(),
            swapped,
        });
    }
    if let Some(verbs) = &verbs {
        verbs.warn_of_long_slots(offered.iter().map(|offered| &*offered.store), verbs.mtu());
    }
    let source = DtaSource::new(offered.iter().map(|offered| Arc::clone(&offered.store)).collect());
    Ok(Opened {
        source,
        offered,
        kernel,
        verbs,
        kernel_lock,
    })
}

/// Returns the error that another process has this directory's stores in kernel memory.
fn in_use(directory: &Path) -> String {
    format!(
        "another hopwise process has the memory of {} in the kernel; stop it, or write another [collector.memory] directory",
        directory.display()
    )
}

/// Returns the error that the lock of a directory could not be created.
fn unmarked(directory: &Path, error: std::io::Error) -> CliError {
    if error.kind() == ErrorKind::WouldBlock {
        return CliError::new(in_use(directory));
    }
    let remedy = "write a [collector.memory] directory that can be written";
    CliError::io(
        format!("cannot make {}", directory.join(persist::LOCK_FILE).display()),
        error,
        remedy,
    )
}

/// Returns the file of a store.
pub(super) fn file(directory: &Path, name: &str) -> PathBuf {
    directory.join(format!("{name}.{EXTENSION}"))
}

fn unregistered(written: &RegionSettings, error: &dyn std::fmt::Display) -> CliError {
    CliError::new(format!(
        "the store `{}` cannot be registered: {error}",
        written.name
    ))
}

/// Creates a store in the kernel's memory at `offset`, with the contents of its file if there is one.
fn one_of_kernel(
    directory: &Path,
    written: &RegionSettings,
    kernel: &Kernel,
    offset: u64,
) -> Result<SourceStore, CliError> {
    let file = file(directory, &written.name);
    let header = header(written);
    let len = region_len(&header.geometry);
    let region = kernel.map(offset, len).map_err(|error| {
        let what = format!("cannot map the store `{}`", written.name);
        CliError::io(what, error, "configure fewer slots")
    })?;
    let region = Arc::new(region);
    let store = match SourceStore::open(&file) {
        _ if !file.exists() => DtaStore::create(region, &header),
        Ok(saved) => {
            let saved = reopened(Ok(saved.store), &header, &file)?;
            saved.and_then(|saved| {
                persist::load(&saved, &region).map_err(|_| HeaderError::TooShort)?;
                DtaStore::open(region)
            })
        }
        Err(error) => return Err(CliError::new(format!("{error}; remove it to start empty"))),
    };
    let store = store.map_err(|error| CliError::new(unreadable(&file, error)))?;
    Ok(named(store, None, written))
}

/// Wraps a store. Configured fields take precedence over those in the header page.
fn named(store: DtaStore, file: Option<PathBuf>, written: &RegionSettings) -> SourceStore {
    let mut store = SourceStore::new(store, file);
    store.fields = written
        .value
        .clone()
        .or_else(|| written.fields.clone())
        .map(|fields| fields.0);
    store
}

fn header(written: &RegionSettings) -> Header {
    Header {
        name: written.name.clone(),
        id: id(written),
        geometry: geometry(written),
        fields: fields(written),
        created: nic::time::now(),
        snapshot: None,
    }
}

fn registration(store: &DtaStore, region: u16) -> Registration {
    let (access, order) = match store.geometry() {
        // `ALL`: an immediate on a fetch-and-add travels in an empty write that follows it.
        Geometry::KeyIncrement { .. } => (AccessFlags::ALL, Order::Ascending),
        Geometry::KeyWrite { .. } | Geometry::Postcarding { .. } => (AccessFlags::WRITE, Order::HeadLast),
        Geometry::Append { .. } | Geometry::Sketch { .. } => (AccessFlags::WRITE, Order::Ascending),
    };
    Registration {
        memory: Arc::clone(store.region()),
        start: BODY,
        len: store.body_len(),
        access,
        order,
        region,
    }
}

/// Creates or opens the file of a store.
fn open_store(directory: &Path, settings: &RegionSettings) -> Result<SourceStore, CliError> {
    let file = file(directory, &settings.name);
    let header = header(settings);
    let store = match Region::create_file(&file, region_len(&header.geometry)) {
        Ok(region) => DtaStore::create(Arc::new(region), &header),
        Err(error) if error.kind() == ErrorKind::AlreadyExists => {
            let region = Arc::new(Region::open_file(&file).map_err(|error| unmapped(&file, error))?);
            reopened(DtaStore::open(region), &header, &file)?
        }
        Err(error) => return Err(unmapped(&file, error)),
    };
    let store = store.map_err(|error| CliError::new(unreadable(&file, error)))?;
    Ok(named(store, Some(file), settings))
}

fn unmapped(file: &Path, error: std::io::Error) -> CliError {
    let remedy = "take fewer slots, or a [collector.memory] directory with more room (df -h)";
    CliError::io(format!("cannot map {}", file.display()), error, remedy)
}

/// Returns a reopened store if it matches the configuration. The outer error says how it differs.
fn reopened(
    opened: Result<DtaStore, dta::HeaderError>,
    header: &Header,
    file: &Path,
) -> Result<Result<DtaStore, dta::HeaderError>, CliError> {
    let why = match opened {
        Ok(store) if store.geometry() == header.geometry && store.header().id == header.id => {
            return Ok(Ok(store));
        }
        Ok(store) if store.geometry() != header.geometry => {
            "has another shape than [[collector.memory.stores]] say".to_owned()
        }
        Ok(_) => "has another number (id, or first list)".to_owned(),
        Err(error) => format!("cannot be used ({error})"),
    };
    Err(CliError::new(format!(
        "{} is there and {why}; remove it to discard its contents and start empty, or change the configuration back",
        file.display()
    )))
}

/// Returns the ID of a store; for lists, the first list ID.
fn id(written: &RegionSettings) -> u32 {
    match (written.kind, written.lists) {
        (StoreKind::Append, Some(lists)) => lists.first,
        _ => written.id.unwrap_or_default().into(),
    }
}

fn fields(written: &RegionSettings) -> String {
    let fields = written
        .value
        .as_ref()
        .or(written.fields.as_ref())
        .map(|fields| &fields.0);
    fields.map(ToString::to_string).unwrap_or_default()
}

/// Returns the geometry of a validated store.
pub fn geometry(written: &RegionSettings) -> Geometry {
    let slots = written.slots.map_or(0, |slots| slots.0);
    let family = written.hash;
    match written.kind {
        StoreKind::KeyWrite => Geometry::KeyWrite {
            slots,
            data_len: written.data_len() as u16,
            family,
        },
        StoreKind::KeyIncrement => Geometry::KeyIncrement { slots, family },
        StoreKind::Postcarding => Geometry::Postcarding {
            slots,
            hops: written.hops,
            family,
        },
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
            let kind = written.sketch;
            let columns = u32::try_from(written.columns.0).unwrap_or(u32::MAX);
            Geometry::Sketch {
                kind,
                op: kind.op(),
                shape: Columns {
                    depth: written.depth,
                    columns,
                    width: written.width,
                },
            }
        }
    }
}
