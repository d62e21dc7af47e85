//! Names of the handlers that the engine itself acts on.

/// An element's arguments; the router's configuration.
pub(crate) const CONFIG: &str = "config";
/// The handler that follows packets.
pub(crate) const TRACE: &str = "trace";
/// The handler that stops the router.
pub(crate) const STOP: &str = "stop";
/// The handler that puts another configuration in the place of this one, where that is allowed.
pub(crate) const HOTCONFIG: &str = "hotconfig";
