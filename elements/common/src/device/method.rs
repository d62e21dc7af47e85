//! The METHOD argument of FromDevice and ToDevice.
use artery_device::{BusyPoll, Method};
use artery_engine::{Arg, ArgError, Args};

/// The METHOD argument of elements that open an interface.
pub(super) const METHOD: Arg = Arg::keyword(
    "METHOD",
    "word",
    "AUTO",
    "path to the interface: AUTO, LINUX, XDP, XDP_NATIVE or XDP_GENERIC",
);

/// Frames that one system call may handle when it does the driver's work.
const BUDGET: u16 = 64;

/// Reads an argument that names a method.
pub(super) fn read_method(args: &Args<'_>, name: &'static str) -> Result<Method, ArgError> {
    let word: String = args.read(name)?;
    word.to_ascii_uppercase().parse().map_err(|_| {
        ArgError::wrong_at(format!("{name} {word}"), format!("no way '{word}'; there are {}", Method::NAMES))
    })
}

/// Reads BUSY_POLL, for so many microseconds.
pub(super) fn busy_poll(args: &Args<'_>) -> Result<Option<BusyPoll>, ArgError> {
    let microseconds: u16 = args.read("BUSY_POLL")?;
    Ok((microseconds > 0).then_some(BusyPoll { microseconds, budget: BUDGET }))
}
