//! Hooks of netfilter that belong neither to nftables nor to iptables: BPF programs, modules of others.
//!
//! Kernels list what is at their hooks since Linux 5.14, if they were built so. Elsewhere
//! there is nothing to be found.
use super::{Blocker, BlockerKind, Family};
use artery_netlink::request::{self as netlink, Attributes, RequestSocket};
use netlink_sys::protocols::NETLINK_NETFILTER;
use std::io;
use std::sync::OnceLock;

/// The request for hooks, to the subsystem that lists them.
const GET_HOOKS: u16 = 12 << 8;
/// Bytes of `struct nfgenmsg`.
const FIXED: usize = 4;
const NUMBER: u16 = 1;
const FUNCTION: u16 = 4;
const MODULE: u16 = 5;
const CHAIN: u16 = 6;
/// Within a chain: what it is.
const CHAIN_KIND: u16 = 2;
/// Chains and flow tables of nftables, which are asked for otherwise.
const OF_NFTABLES: [u32; 2] = [1, 3];
const BPF: u32 = 2;

/// Families and hooks that forwarded packets come by.
const FAMILIES: [(u8, Family); 2] = [(2, Family::V4), (10, Family::V6)];
const HOOKS: [(u32, &str); 3] = [(0, "prerouting"), (2, "forward"), (4, "postrouting")];

/// Prefixes of functions that change nothing by themselves (tracking and reassembly are there for rules;
/// security modules decide by labels of sockets, which forwarded packets don't have), or that are read
/// otherwise (translation, iptables, virtual servers), or are about bridges.
const KNOWN: [&str; 16] = [
    "nf_conntrack",
    "ipv4_conntrack",
    "ipv6_conntrack",
    "nf_confirm",
    "ipv4_confirm",
    "ipv6_confirm",
    "ipv4_defrag",
    "ipv6_defrag",
    "nf_nat_",
    "ipt_do_table",
    "ip6t_do_table",
    "ip_vs_",
    "selinux_",
    "apparmor_",
    "smack_",
    "ip_sabotage_in",
];

/// What keeps all traffic of a family.
pub(super) fn guards() -> io::Result<Vec<Blocker>> {
    let mut guards = Vec::new();
    if !are_listed()? {
        return Ok(guards);
    }
    let kernel = RequestSocket::open(NETLINK_NETFILTER)?;
    for (number, family) in FAMILIES {
        for (hook, name) in HOOKS {
            let messages = match kernel.dump(GET_HOOKS, &encode_request(number, hook)) {
                Err(error) if netlink::is_unknown(&error) => continue,
                messages => messages?,
            };
            for message in messages {
                guards.extend(guard(&message.body, name)?.map(|guard| guard.for_family(family)));
            }
        }
    }
    Ok(guards)
}

/// Functions at the hooks that packets of IPv4 from and to the machine pass through.
pub(super) fn of_machine() -> io::Result<Vec<Blocker>> {
    let mut guards = Vec::new();
    for (hook, name) in [(1, "input"), (3, "output")] {
        for body in functions_at(FAMILIES[0].0, hook)? {
            guards.extend(guard(&body, name)?);
        }
    }
    Ok(guards)
}

/// The hooks of bridges that frames for a bridge, or from it, come by; and how modules of the older ebtables
/// are named, where the kernel does not list hooks.
const BRIDGE_FAMILY: u8 = 7;
const BRIDGE_HOOKS: [(u32, &str); 4] = [(0, "prerouting"), (1, "input"), (3, "output"), (4, "postrouting")];
const MODULES: &str = "/proc/modules";
const EBTABLES: &str = "ebtable_";
/// Functions there that change nothing of packets that no rule of iptables is about (`br_netfilter`).
const KNOWN_OF_BRIDGES: [&str; 3] = ["br_nf_", "nf_ct_bridge_", "ip_sabotage_in"];

/// What keeps traffic of bridges: tables of the older ebtables, BPF programs, modules of others.
pub(super) fn of_bridges() -> io::Result<Vec<Blocker>> {
    let mut guards = Vec::new();
    for (hook, name) in BRIDGE_HOOKS {
        for body in functions_at(BRIDGE_FAMILY, hook)? {
            let function = Attributes::after_header(FIXED, &body)?.text(FUNCTION).unwrap_or_default();
            if !KNOWN_OF_BRIDGES.iter().any(|start| function.starts_with(start)) {
                guards.extend(guard(&body, &format!("{name} of bridges"))?);
            }
        }
    }
    let modules = std::fs::read_to_string(MODULES).unwrap_or_default();
    if guards.is_empty() && modules.lines().any(|line| line.starts_with(EBTABLES)) {
        let what = "ebtables: the kernel has tables of it".to_owned();
        guards.push(Blocker::new(BlockerKind::Hook, what, "shown by: ebtables-legacy -L".to_owned()));
    }
    Ok(guards)
}

/// The functions of the kernel's own at a hook of a family: none where the kernel does not list them.
pub(super) fn functions(family: Family, hook: u32) -> io::Result<Vec<String>> {
    let number = if family == Family::V4 { 2 } else { 10 };
    let function =
        |body: &Vec<u8>| Ok(Attributes::after_header(FIXED, body)?.text(FUNCTION).unwrap_or_default());
    functions_at(number, hook)?.iter().map(function).collect()
}

fn functions_at(family: u8, hook: u32) -> io::Result<Vec<Vec<u8>>> {
    if !are_listed()? {
        return Ok(Vec::new());
    }
    netlink::dump_of_netfilter(GET_HOOKS, &encode_request(family, hook))
}

/// Whether the kernel lists hooks. It is asked once: a kernel without them, as Debian's 5.10 and 6.1, starts
/// modprobe at each request, and waits for it.
fn are_listed() -> io::Result<bool> {
    static ARE_LISTED: OnceLock<bool> = OnceLock::new();
    if let Some(are_listed) = ARE_LISTED.get() {
        return Ok(*are_listed);
    }
    let kernel = RequestSocket::open(NETLINK_NETFILTER)?;
    let are_listed = match kernel.dump(GET_HOOKS, &encode_request(FAMILIES[0].0, HOOKS[0].0)) {
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => false,
        Err(error) if !netlink::is_unknown(&error) => return Err(error),
        _ => true,
    };
    Ok(*ARE_LISTED.get_or_init(|| are_listed))
}

fn encode_request(family: u8, hook: u32) -> Vec<u8> {
    let attribute = [&8_u16.to_ne_bytes()[..], &NUMBER.to_ne_bytes(), &hook.to_be_bytes()].concat();
    [&[family, 0, 0, 0], &attribute[..]].concat()
}

fn guard(body: &[u8], hook: &str) -> io::Result<Option<Blocker>> {
    let attributes = Attributes::after_header(FIXED, body)?;
    let kind = attributes.nested(CHAIN)?.and_then(|chain| chain.big_endian(CHAIN_KIND));
    let function = attributes.text(FUNCTION).unwrap_or_default();
    let what = match kind {
        Some(kind) if OF_NFTABLES.contains(&kind) => return Ok(None),
        Some(BPF) => "a BPF program".to_owned(),
        _ if KNOWN.iter().any(|start| function.starts_with(start)) => return Ok(None),
        _ => match attributes.text(MODULE) {
            Some(module) => format!("{function} of module {module}"),
            None => function,
        },
    };
    let what = format!("netfilter: {what} at hook {hook}");
    Ok(Some(Blocker::new(BlockerKind::Hook, what, "shown by: nft list hooks".to_owned())))
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_netlink::request::written::{big_endian, name, nested, survive};

    fn body(attributes: &[Vec<u8>]) -> Vec<u8> {
        [&[2, 0, 0, 0], &attributes.concat()[..]].concat()
    }

    #[test]
    fn what_is_not_known_is_a_guard_with_its_name() {
        let what =
            |attributes: &[Vec<u8>]| guard(&body(attributes), "forward").unwrap().map(|guard| guard.what);
        assert_eq!(what(&[name(FUNCTION, "nf_conntrack_in"), name(MODULE, "nf_conntrack")]), None);
        assert_eq!(what(&[nested(CHAIN, &[big_endian(CHAIN_KIND, 1)])]), None);
        let program = [name(FUNCTION, "nf_hook_run_bpf"), nested(CHAIN, &[big_endian(CHAIN_KIND, BPF)])];
        assert_eq!(what(&program).as_deref(), Some("netfilter: a BPF program at hook forward"));
        let other = [name(FUNCTION, "look"), name(MODULE, "own")];
        assert_eq!(what(&other).as_deref(), Some("netfilter: look of module own at hook forward"));
        survive(&body(&program), |body| guard(body, "forward").is_ok());
    }
}
