//! What elements of several crates have in common, and the ports of the machine: FromDevice, ToDevice,
//! FromHost, ToHost.
#![forbid(unsafe_code)]
#![allow(missing_docs)] // Public for the crates of elements alone.

pub mod arp_frame;
pub mod chance;
pub mod echo_reply;
pub mod flow_export;
pub mod flow_text;
pub mod fragments;
pub mod frame_filter;
pub mod gateway_options;
pub mod hex;
pub mod ip_header;
pub mod json;
pub mod network_header;
pub mod packet_samples;
pub mod reassembly;

use artery_engine::RouterHandler;

/// Declares the modules of elements and makes a list of their `CLASS`, of the name that is given first. In
/// parentheses: modules that several elements of a group share; in brackets: classes that some of these
/// modules have, where look-alike elements are data.
#[macro_export]
macro_rules! element_groups {
    (
        $list:ident;
        $($group:ident $(($($part:ident),*))? $([$($table:ident :: $class:ident),*])?:
            $($module:ident),* $(,)?;)*
    ) => {
        // Files say `pub static CLASS`, which reads better and which the modules around them restrict.
        $(#[allow(unreachable_pub)]
        mod $group { $($(pub(crate) mod $part;)*)? $(pub(crate) mod $module;)* })*

        /// The classes of this crate.
        pub const $list: &[&artery_engine::Class] = &[$(
            $(&$group::$module::CLASS,)*
            $($(&$group::$table::$class,)*)?
        )*];
    };
}

element_groups! {
    CLASSES;
    device(method, monitor, port, stable_address): from_device, from_host, to_device, to_host;
}

/// Handlers of a router that has these classes, for [`artery_engine::RouterSettings`].
pub static ROUTER_HANDLERS: &[RouterHandler] = &[device::monitor::PORTS];
