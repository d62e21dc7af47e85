//! Every element, one file each. To add one: write the file, add its name to the list below.
#![forbid(unsafe_code)]

use artery_engine::{Class, Classes};

pub use router::shared::RouterTables;

/// Export and import of the flows of a FlowBalancer.
pub mod flows {
    pub use crate::balance::flow_stream::{
        AnyKey, MAGIC, StreamError, StreamFlow, StreamItem, StreamReader, is_valid_state, write_header,
        write_item,
    };
    pub use crate::balance::flow_words::{protocol_name, protocol_of, state_name, state_of};
}

/// The interface between a switch and its packet filter.
pub mod switching {
    pub use crate::filter::frame_filter::of_file;
    pub use crate::switch::filter::{
        BLOCKED_IN, BLOCKED_OUT, FilterContext, FilterFactories, FilterPoint, FrameFilter, MakeFilter, NO_WAY,
    };
}

/// What fuzz targets start beside elements.
#[cfg(feature = "fuzz")]
pub mod forged {
    pub use crate::fpm::session::survive as fpm;

    /// A product's class. A target that needs no others links none, and has the fewer edges to look at after
    /// each execution.
    pub fn product(name: &str) -> Option<&'static artery_engine::Class> {
        crate::PRODUCTS.iter().find(|class| class.name == name).copied()
    }
}

pub use artery_click::ClaimedSignals;
pub use artery_common::ROUTER_HANDLERS;
pub use filter::file_size::FileSize;
pub use filter::log_file::LogFiles;

artery_common::element_groups! {
    PRODUCTS;

    router(
        bfd_frames, bfd_peers, changes, chosen, claims, classify, classify_ipv4, classify_ipv6,
        config, decision_cache, events, explain, explained_verdict, explanation, fast_path, flow,
        flow_text, forward, handlers, host_port, icmp, json, leave, limits, link_local, local,
        local_fragments, neighbors_io, order, packet_context, pending_queue, port_names, port_news,
        port_text, port_update, redirect, route_text, router_worker, shared, shared_state, shortcut,
        show_bfd, show_events, show_ports, show_routes, slow_path, successor, verdict, waiting
    ): bfd, ip_router, ip_forward, ip6_forward, link_header, lookup_next_hop;

    fpm(
        answers, broken, frames, next_hops, paths, reason, rib, server, session, shared, status, target,
        update
    ): fpm_server;

    host_routes(follower, wanted): host_routes;

    host_ports(interfaces, kernel_routes, kernel_table, log_lines, shared, status, threads): host_ports;

    balance(
        about, answers, arguments, balancer_worker, checks, chooser, exchange, explain, flow_stream,
        flow_words, follow, fragments, handlers, known, leading, look, nat_flows, others, service,
        shared, tally, translate
    ): flow_balancer;

    switch(announce, filter, handlers, host_addresses, links, shared, speak, tag, worker): veb;

    filter(
        answers, ask, ask_worker, carried, control_tasks, egress, explain, file_size, frame_filter,
        header_check, interfaces, log_complaints, log_file, parse_rules, ports, routes, runs,
        shared, unfiltered, worker
    ): packet_filter;
}

/// Numbers of all classes.
const COUNT: usize = artery_common::CLASSES.len() + artery_click::CLASSES.len() + PRODUCTS.len();

static ALL: [&Class; COUNT] = {
    let mut all = [PRODUCTS[0]; COUNT];
    let (mut at, mut group) = (0, 0);
    while group < 3 {
        let classes = [artery_click::CLASSES, PRODUCTS, artery_common::CLASSES][group];
        let mut n = 0;
        while n < classes.len() {
            all[at] = classes[n];
            (at, n) = (at + 1, n + 1);
        }
        group += 1;
    }
    all
};

/// All classes, as the language, the manual and the builder use them.
pub static CLASSES: Classes = Classes(&ALL);
