//! Virtual servers of the kernel (IPVS): what their real servers answer is translated as it is forwarded.
use super::{Blocker, BlockerKind, count_things};
use std::io;

const TABLE: &str = "/proc/thread-self/net/ip_vs";
/// Lines that begin with one of these are services: by protocol, or by mark.
const SERVICES: [&str; 4] = ["TCP ", "UDP ", "SCTP ", "FWM "];

/// What keeps all traffic. A kernel without virtual servers has none.
pub(super) fn find_blockers() -> io::Result<Vec<Blocker>> {
    match std::fs::read_to_string(TABLE) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        text => Ok(of_table(&text?)),
    }
}

fn of_table(text: &str) -> Vec<Blocker> {
    let is_service = |line: &&str| SERVICES.iter().any(|start| line.starts_with(start));
    match text.lines().filter(is_service).count() as u32 {
        0 => Vec::new(),
        services => {
            let what = format!("IPVS: {}", count_things(services, "virtual server"));
            vec![Blocker::new(BlockerKind::VirtualServers, what, "shown by: ipvsadm -Ln".to_owned())]
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_table_with_services_keeps_traffic() {
        let empty = "IP Virtual Server version 1.2.1 (size=4096)\nProt LocalAddress:Port Scheduler Flags\n  \
                     -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n";
        assert_eq!(of_table(empty), []);
        let one = format!("{empty}TCP  0A000001:0050 rr  \n  -> 0A000002:0050 Masq 1 0 0\n");
        assert_eq!(of_table(&one)[0].what, "IPVS: 1 virtual server");
    }
}
