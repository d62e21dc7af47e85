//! Every element, one file each. To add one: write the file, add its name to the list below.
#![forbid(unsafe_code)]

use artery_engine::{Class, Classes};

/// What fuzz targets start beside elements.
#[cfg(feature = "fuzz")]
pub mod forged {
    pub use crate::fpm::session::survive as fpm;
}

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
}

/// The switch, with the packet filter for its own.
static VEB: Class = artery_switch::class_with_rules::<artery_firewall::SwitchRules>();

/// All classes, by the crates that have them.
const GROUPS: [&[&Class]; 7] = [
    artery_click::CLASSES,
    artery_forward::CLASSES,
    PRODUCTS,
    artery_balancer::CLASSES,
    &[&VEB],
    artery_firewall::CLASSES,
    artery_common::CLASSES,
];

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
