//! Where the host's default routes lead: what BSD calls the group `egress`.
use std::fs;

/// The names of the interfaces that the host's default routes of both families lead out by, as the kernel
/// lists them now. IPv6 routes without a gateway are left out: the kernel has such routes for unreachable
/// destinations. Without /proc the list is empty.
pub fn default_route_interfaces() -> Vec<String> {
    let text = |file: &str| fs::read_to_string(file).unwrap_or_default();
    of_texts(&text("/proc/net/route"), &text("/proc/net/ipv6_route"))
}

fn of_texts(v4: &str, v6: &str) -> Vec<String> {
    let v4 = v4.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
    let v4 = v4.filter(|words| words.get(1) == Some(&"00000000") && words.get(7) == Some(&"00000000"));
    let v6 = v6.lines().map(|line| line.split_whitespace().collect::<Vec<_>>());
    let nothing = "0".repeat(32);
    let v6 =
        v6.filter(|words| words.get(1) == Some(&"00") && words.get(4).is_some_and(|hop| *hop != nothing));
    let names = v4.filter_map(|words| words.first().map(|name| name.to_string()));
    names.chain(v6.filter_map(|words| words.last().map(|name| name.to_string()))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_routes_are_told_from_others() {
        let v4 = "Iface Destination Gateway Flags RefCnt Use Metric Mask MTU Window IRTT
eth0 00000000 FE02000A 0003 0 0 0 00000000 0 0 0
eth1 0002000A 00000000 0001 0 0 0 00FFFFFF 0 0 0
";
        let zero = "0".repeat(32);
        let gateway = "fe8000000000000000000000000000fe";
        let v6 = format!(
            "{zero} 00 {zero} 00 {gateway} 00000400 00000001 00000000 00000003 eth2
{zero} 00 {zero} 00 {zero} ffffffff 00000001 00000000 00200200 lo
{gateway} 40 {zero} 00 {gateway} 00000100 00000001 00000000 00000001 eth3
"
        );
        assert_eq!(of_texts(v4, &v6), ["eth0", "eth2"]);
        assert_eq!(of_texts("", "rubbish\n"), Vec::<String>::new());
    }
}
