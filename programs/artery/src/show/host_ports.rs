//! Host ports and the host's routes, in lines for people.
use super::table::Table;
use crate::ip_router::{list, text};
use serde_json::Value;
use std::fmt::Write as _;

/// The document of `artery show host-ports`.
pub(super) fn lines(document: &Value) -> String {
    let mut table =
        Table::headed("PORT | INTERFACE | IFINDEX: | ADMIN | LINK | MTU: | ETHERNET ADDRESS | ADDRESSES");
    let mut errors = String::new();
    for interface in list(document, "interfaces") {
        let of = |key| text(interface, key);
        let is = |key| if interface[key] == true { "up" } else { "down" }.to_string();
        let addresses: Vec<&str> = list(interface, "addresses").iter().filter_map(Value::as_str).collect();
        table.row([
            of("port"),
            of("interface"),
            of("ifindex"),
            is("admin_up"),
            is("carrier"),
            of("mtu"),
            of("lladdr"),
            addresses.join(" "),
        ]);
        if !interface["error"].is_null() {
            let _ = writeln!(errors, "{}: {}", of("interface"), of("error"));
        }
    }
    table.drain_text() + &errors + &routes(&document["routes"])
}

fn routes(routes: &Value) -> String {
    if routes.is_null() {
        return "The host's routes are not read: --fpm gives the router its routes.\n".to_string();
    }
    let of = |key| text(routes, key);
    let mut lines = format!(
        "Routes of the host by these: {} IPv4, {} IPv6; {} installed, {} shadowed, {} refused\n",
        of("ipv4"),
        of("ipv6"),
        of("installed"),
        of("shadowed"),
        of("refused")
    );
    for refusal in list(routes, "refusals") {
        let (count, why) = (text(refusal, "routes"), text(refusal, "text"));
        let _ = writeln!(lines, "refused: {count} × {why}; last {}", text(refusal, "last"));
    }
    lines
}
