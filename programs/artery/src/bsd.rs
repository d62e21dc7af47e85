//! What BSD says of a switch - hostname.if(5) files, ifconfig(8), pf.conf(5) - as a configuration of ours.
//!
//! A folder is [read](etc), each of its lines is [checked](verdict), and together they make ([folder]) a
//! [plan] that is [printed](text) as a configuration, or [run](up). [`ifconfig`] talks to the running switch.
mod etc;
mod folder;
mod hostname;
pub(crate) mod ifconfig;
pub(crate) mod import;
mod machine;
mod members;
mod pf;
mod pflow;
mod plan;
mod routed;
pub(crate) mod rules;
mod switch_file;
mod text;
pub(crate) mod up;
pub(crate) mod verdict;

#[cfg(any(test, feature = "fuzz"))]
pub(crate) use folder::survive;

pub(crate) use hostname::length_of_mask;
