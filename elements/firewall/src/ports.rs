//! The interfaces of a filter, as arguments give them, and the shared filter for them.
use super::file_size::FileSize;
use super::interfaces::{interface_record, own_address, with_loopback};
use super::log_file::{LogFile, LogFiles};
use super::shared::{FilterParts, SharedFilter};
use artery_common::frame_filter::parse_port_address;
use artery_engine::{ArgError, Args};
use artery_filter::names::InterfaceRecord;
use artery_filter::syntax::FilterSite;
use artery_forward::shared::{self, SharedRouter};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The interfaces of the PORT arguments.
pub(super) fn of_arguments(args: &Args<'_>) -> Result<Vec<InterfaceRecord>, ArgError> {
    args.rest("PORT").iter().map(|text| parse_port(text)).collect()
}

/// Parses a PORT argument, `NAME [ADDRESS/LENGTH…]`.
fn parse_port(text: &str) -> Result<InterfaceRecord, ArgError> {
    let mut words = text.split_whitespace();
    let name = words.next().ok_or_else(|| ArgError::wrong("PORT wants a name"))?;
    let of_word = |word| {
        let wrong = || format!("PORT {name}: '{word}' is not a valid ADDRESS/LENGTH, such as 192.0.2.1/24");
        parse_port_address(word).map(own_address).ok_or_else(|| ArgError::wrong_at(word, wrong()))
    };
    Ok(interface_record(name, words.map(of_word).collect::<Result<_, _>>()?))
}

/// A filter for these ports, with the rules of FILE.
pub(super) fn shared_filter(
    args: &mut Args<'_>,
    ports: Vec<InterfaceRecord>,
) -> Result<SharedFilter, ArgError> {
    let router = args.is_given("ROUTER").then(|| shared::find_router(args)).transpose()?;
    let site = FilterSite::Router { knows_routes: router.is_some() };
    with_files(
        args,
        ports,
        ["FILE", "LOG", "ETC", "LOG_MAX"],
        FilterEnvironment { site, devices: Vec::new(), router },
    )
}

/// What a filter is around.
pub(crate) struct FilterEnvironment {
    pub(crate) site: FilterSite,
    /// The host's names of the interfaces of ports, if rules use their addresses.
    pub(crate) devices: Vec<String>,
    /// The router around which the filter is, if given.
    pub(crate) router: Option<Arc<SharedRouter>>,
}

/// The same with the names of the arguments for the rules file, the log file, the folder for /etc,
/// and the log's limit.
pub(crate) fn with_files(
    args: &mut Args<'_>,
    ports: Vec<InterfaceRecord>,
    [file, log, etc, log_max]: [&'static str; 4],
    place: FilterEnvironment,
) -> Result<SharedFilter, ArgError> {
    let workers = args.copy_index().1;
    let longest_log = args.read::<FileSize>(log_max)?;
    let log = args.read::<Option<String>>(log)?;
    let log = log.map(|path| open_log(&path, longest_log, workers, args)).transpose()?;
    let etc = args.read::<Option<String>>(etc)?.map(|path| parse_folder(&path)).transpose()?;
    let FilterEnvironment { site, devices, router } = place;
    let around =
        FilterParts { log, logs: args.resource::<LogFiles>(), longest_log, etc, site, devices, router };
    let filter = SharedFilter::new(args.domain(), with_loopback(ports), workers, around);
    if let Some(path) = args.read::<Option<String>>(file)? {
        let odd = load_file(&filter, &path).map_err(|why| ArgError::wrong_at(&path, why))?;
        odd.into_iter().for_each(|warning| args.warn(warning, None));
    }
    Ok(filter)
}

fn open_log(path: &str, most: FileSize, workers: usize, args: &Args<'_>) -> Result<LogFile, ArgError> {
    LogFile::open(path, most, workers, &args.resource::<LogFiles>())
        .map_err(|error| ArgError::wrong_at(path, format!("can't write {path}: {error}")))
}

/// A folder as an absolute path, so that another process finds it.
fn parse_folder(path: &str) -> Result<PathBuf, ArgError> {
    let wrong = |why: String| ArgError::wrong_at(path, format!("{path}: {why}"));
    let folder = std::path::absolute(path).map_err(|error| wrong(error.to_string()))?;
    if folder.is_dir() { Ok(folder) } else { Err(wrong("there is no such folder".to_string())) }
}

/// Loads the rules of a file; returns warnings.
pub(crate) fn load_file(filter: &SharedFilter, path: &str) -> Result<Vec<String>, String> {
    let text = artery_device::files::read(path).map_err(|error| format!("can't read {path}: {error}"))?;
    filter.load_texts(path, &[("", &text)], Duration::ZERO)
}
