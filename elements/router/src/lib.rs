//! The router: IPRouter and what belongs to it, FpmServer for routes of routing daemons, and HostPorts and
//! HostRoutes, which show it to the host. To add an element: write the file, add its name to the list below.
#![forbid(unsafe_code)]

/// What fuzz targets start beside elements.
#[cfg(feature = "fuzz")]
pub mod forged {
    pub use crate::fpm::session::survive as fpm;
}

mod log_lines;

artery_common::element_groups! {
    CLASSES;

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

    host_ports(interfaces, kernel_routes, kernel_table, shared, status, threads): host_ports;
}
