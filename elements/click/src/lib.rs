//! The elements that Click has, by Click's names: one file each, or a table of classes where several differ
//! by little. To add one: write the file, add its name to the list below.
#![forbid(unsafe_code)]

mod pattern;
#[cfg(test)]
mod testing;
#[cfg(test)]
mod wrong_arguments;

pub use script::script::ClaimedSignals;

artery_common::element_groups! {
    CLASSES;

    basic(handler_call, quota, rate, template, token_bucket)[
        null::PULL, null::PUSH, rated_splitter::BANDWIDTH, switch::STATIC, tee::PULL
    ]:
        adjust_timestamp, aggregate_counter, aggregate_filter, aggregate_first, aggregate_last,
        aggregate_length, aggregate_paint, align, average_counter, bypass, check_length, check_paint,
        clipboard, counter, discard, error, hash_switch, hub, idle, infinite_source, input_switch,
        mark_mac_header, message, null, pad, paint, paint_switch, paint_tee, print, random_sample,
        random_switch, rated_source, rated_splitter, resize, round_robin_switch, set_anno_byte,
        set_packet_type, set_timestamp, set_timestamp_delta, store_data, strip, suppressor, switch, tee,
        time_filter, time_range, timed_source, timestamp_accum, truncate, unstrip;

    queue(delay, gap, nearby_queues, rated, store)[
        pull_switch::SIMPLE, queues::FRONT_DROP, queues::MIXED, queues::NOTIFIER, queues::SIMPLE,
        rated_unqueue::BANDWIDTH, shaper::BANDWIDTH
    ]:
        delay_shaper, delay_unqueue, drr_sched, link_unqueue, prio_sched, pull_switch, queues,
        rated_unqueue, red, round_robin_sched, shaper, static_pull_switch, stride_sched, time_sorted_sched,
        timed_sink, unqueue;

    classify: classifier, ip_classifier, ip_filter;

    ether(ether_text, neighbor, neighbor_index, neighbors, own_address, shared_table, vlan_tag):
        arp_faker, arp_print, arp_querier, arp_responder, arp_table, check_arp_header, drop_broadcasts,
        ensure_ether, ether_encap, ether_mirror, ether_rewrite, ether_switch, ether_vlan_encap,
        host_ether_filter, set_vlan_anno, store_ether_address, strip_ether_vlan_header, vlan_decap,
        vlan_encap;

    ip(
        address, check_transport_header, each, failures, ip_text, linear, name, next_hops, outputs, packet_id,
        route, routes, routing, slots, table_lookup
    )[
        check_transport_header::ICMP, check_transport_header::TCP, check_transport_header::UDP,
        set_ip_dscp::IP6, table_lookup::DIRECT, table_lookup::RADIX, table_lookup::RANGE
    ]:
        anonymize_ip_addr, check_ip_header, check_ip_header2, dec_ip_ttl, erase_ip_payload, fix_ip_src,
        get_ip_address, icmp_error, icmp_ip_encap, icmp_ping_encap, icmp_ping_responder, icmp_ping_source,
        ip_encap, ip_fragmenter, ip_gw_options, ip_input_combo, ip_lookup, ip_mirror, ip_output_combo,
        ip_print, ip_reassembler, linear_ip_lookup, mark_ip_ce, mark_ip_header,
        set_ip_address, set_ip_checksum, set_ip_dscp, set_ip_ecn, set_rand_ip_address, set_tcp_checksum,
        set_udp_checksum, static_ip_lookup, store_ip_address, strip_ip_header, strip_to_network_header,
        udp_ip_encap, unstrip_ip_header;

    ip6:
        check_ip6_header, dec_ip6_hlim, get_ip6_address, ip6_mirror, ip6_print, lookup_ip6_route,
        mark_ip6_header, set_ip6_address;

    rewrite(apply, classes, flows, pattern, rewriter, shared_flows)[
        classes::ADDRESS, classes::ADDRESS_PAIR, classes::ICMP_PING, classes::IP, classes::TCP, classes::UDP
    ]:
        icmp_rewriter, ip_rewriter_patterns, round_robin_ip_mapper;

    files(line_output, output_file, summary, summary_lines, trace, transfer):
        from_dump, from_ip_summary_dump, to_dump, to_ip_summary_dump;

    script(info):
        address_info, alignment_info, clicky_info, driver_manager, random_seed, schedule_info, script,
        static_thread_sched;
}

#[cfg(test)]
static TEST_CLASSES: artery_engine::Classes = artery_engine::Classes(CLASSES);
