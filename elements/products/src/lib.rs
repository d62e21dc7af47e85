//! Every element, one file each. To add one: write the file, add its name to the list below.
#![forbid(unsafe_code)]

use artery_engine::{Class, Classes};

/// Export and import of the flows of a FlowBalancer.
pub mod flows {
    pub use crate::balance::flow_stream::{
        AnyKey, MAGIC, StreamError, StreamFlow, StreamItem, StreamReader, is_valid_state, write_header,
        write_item,
    };
    pub use crate::balance::flow_words::{protocol_name, protocol_of, state_name, state_of};
}

/// What fuzz targets start beside elements.
#[cfg(feature = "fuzz")]
pub mod forged {
    pub use crate::fpm::session::survive as fpm;
}

pub use artery_click::ClaimedSignals;
pub use artery_common::ROUTER_HANDLERS;
pub use artery_forward::shared::RouterTables;
pub use filter::file_size::FileSize;
pub use filter::frame_filter::of_file;
pub use filter::log_file::LogFiles;

artery_common::element_groups! {
    PRODUCTS;

    router(
        bfd_frames, bfd_peers, changes, chosen, claims, classify, classify_ipv4, classify_ipv6, config,
        explain, explained_verdict, explanation, handlers, host_port, icmp, json, leave, limits, link_local,
        local, local_fragments, neighbors_io, packet_context, pending_queue, port_names, port_news,
        port_text, port_update, redirect, route_text, router_worker, shared_state, show_bfd, show_events,
        show_ports, show_routes, slow_path, successor, verdict, waiting
    ): bfd, ip_router, link_header, lookup_next_hop;

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

    switch(announce, handlers, host_addresses, links, shared, speak, tag, veb, worker):;

    filter(
        answers, ask, ask_worker, carried, control_tasks, egress, explain, file_size, frame_filter,
        header_check, interfaces, log_complaints, log_file, parse_rules, ports, routes, runs,
        shared, unfiltered, worker
    ): packet_filter;
}

/// The switch, with the packet filter for its own.
static VEB: Class = switch::veb::class_with_rules::<filter::frame_filter::SwitchRules>();

/// All classes, by the crates that have them.
const GROUPS: [&[&Class]; 5] =
    [artery_click::CLASSES, artery_forward::CLASSES, PRODUCTS, &[&VEB], artery_common::CLASSES];

const COUNT: usize = {
    let (mut count, mut group) = (0, 0);
    while group < GROUPS.len() {
        count += GROUPS[group].len();
        group += 1;
    }
    count
};

static ALL: [&Class; COUNT] = {
    let mut all = [PRODUCTS[0]; COUNT];
    let (mut at, mut group) = (0, 0);
    while group < GROUPS.len() {
        let classes = GROUPS[group];
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
