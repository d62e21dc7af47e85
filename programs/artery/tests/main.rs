//! The commands as people type them. One program, since each takes seconds to link.

mod cli;
mod click;
mod control;
mod doctor;
mod ending;
mod failing;
mod files;
mod flow;
mod folders;
mod monitor;
mod offloads;
mod pfctl;
mod pfctl_live;
mod router;
mod routing;
mod running;
mod support;
mod switch;
mod trace;
