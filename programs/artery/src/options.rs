//! Options that several commands have, and how wrong ones are reported.
mod control;
mod reading;
mod running;
mod usage;
pub(crate) mod values;

pub(crate) use control::{ControlOptions, Reach, TcpOptions, default_socket};
pub(crate) use reading::{ReadingOptions, map_devices, variable};
pub(crate) use running::{ReportOptions, RunningOptions, running_job};
pub(crate) use usage::{exit_with, matches_of, set_command_line, usage_error};
