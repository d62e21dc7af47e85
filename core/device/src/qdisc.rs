//! Queueing disciplines (tc(8)), by rtnetlink.
use artery_netlink::request::{self, Attributes};
use netlink_sys::protocols::NETLINK_ROUTE;
use std::io;

const RTM_GETQDISC: u16 = 38;
/// Bytes of `struct tcmsg`.
const HEADER: usize = 20;
const TCA_KIND: u16 = 1;

/// Whether a link of this network namespace has the discipline netem (tc-netem(8)), alone or within another.
///
/// # Errors
/// When the kernel can't be asked, or answers nonsense.
pub(crate) fn has_netem() -> io::Result<bool> {
    for answer in request::dump(NETLINK_ROUTE, RTM_GETQDISC, &[0; HEADER])? {
        let attributes = Attributes::after_header(HEADER, &answer.body)?;
        if attributes.text(TCA_KIND).as_deref() == Some("netem") {
            return Ok(true);
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::{in_namespace, run, try_run};

    #[test]
    fn netem_is_found_where_the_kernel_has_it() {
        in_namespace(|| {
            run("ip link add left type veth peer name right");
            run("tc qdisc add dev left root handle 1: htb default 1");
            run("tc class add dev left parent 1: classid 1:1 htb rate 100mbit");
            assert!(!has_netem().unwrap());
            let added = try_run("tc qdisc add dev left parent 1:1 netem delay 10ms");
            assert_eq!(has_netem().unwrap(), added.status.success());
        });
    }
}
