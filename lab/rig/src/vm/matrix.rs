//! The matrix: what is tried on which kernel with which card.

use super::{Kernel, Machine, Nic};
use std::time::Duration;

/// A machine and the rows that run in it, one after the other.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) machine: Machine,
    pub(super) rows: Vec<&'static str>,
    /// Percent of what TCP reaches by the kernel alone; none where each row says itself what it wants.
    pub(super) tcp_floor: Option<u32>,
}

/// Every program past the kernel's verifier, and what they do. No card is needed, so once a kernel is enough.
const PROGRAMS: [&str; 2] = ["verifier", "programs"];
/// What everybody does with a card.
const FORWARDING: [&str; 21] = [
    "adopt",
    "adopt-xdp",
    "adopt-tc",
    "adopt-firewall",
    "adopt-firewall-xdp",
    "adopt-jumbo",
    "adopt-multi-buffer",
    "adopt-returns",
    "vlan",
    "vlan-xdp",
    "vlan-tc",
    "adopt-kill",
    "adopt-reload",
    "adopt-stopped",
    "router",
    "router-kill",
    "router-reload",
    "balancer",
    "up",
    "up-kill",
    "up-reload",
];
/// What the number of queues and the offloads may change.
const QUEUES: [&str; 6] = ["adopt", "adopt-xdp", "adopt-jumbo", "adopt-multi-buffer", "adopt-kill", "router"];
/// What the kernel may forbid. It stays locked down, so these come last.
const FORBIDDEN: [&str; 3] = ["adopt-unprivileged", "adopt-integrity", "adopt-confidentiality"];
/// Tests with VRFs, bonds and bridges, with something beside an adopted port, and of PSAMPLE.
const BESIDE: [&str; 14] = [
    "adopt-vrf",
    "adopt-vrf-xdp",
    "adopt-bond",
    "adopt-bond-xdp",
    "adopt-bond-xor",
    "adopt-bond-lacp",
    "adopt-bond-vlan",
    "adopt-bond-vlan-vrf",
    "adopt-bond-arp",
    "adopt-bridge",
    "adopt-flowtable",
    "beside-wireguard",
    "psample-router",
    "psample-adopt",
];
/// Tests with tunnels, by which older kernels do less.
const TUNNELS: [&str; 5] =
    ["adopt-tunnels", "adopt-tunnels-in", "adopt-tunnel-routes", "adopt-pppoe", "adopt-tunnel-rates"];
/// What runs at every change.
const SLICE: [&str; 7] = ["verifier", "adopt", "adopt-firewall", "vlan", "adopt-kill", "router", "up"];

/// How a guest of KVM usually comes: as many queues as processors, all offloads.
const USUAL_NIC: &str = "virtio-net,queues=2";

/// The whole matrix, kernel by kernel.
pub(super) fn whole() -> Vec<Plan> {
    Kernel::MATRIX.iter().flat_map(of_kernel).collect()
}

fn of_kernel(kernel: &Kernel) -> Vec<Plan> {
    let (beside, tunnels): (&[&str], &[&str]) = match kernel {
        Kernel::Series(6, 12) => (&BESIDE, &TUNNELS),
        Kernel::Series(6, 1) => (&[], &TUNNELS),
        _ => (&[], &[]),
    };
    let usual = [&PROGRAMS[..], &FORWARDING, beside, tunnels, &FORBIDDEN].concat();
    let whole_frames = [&QUEUES[..], &FORBIDDEN].concat();
    [
        (USUAL_NIC, usual.as_slice()),
        ("virtio-net", &QUEUES),
        ("virtio-net,queues=4", &QUEUES),
        ("virtio-net,queues=2,offloads=off", &whole_frames),
        ("e1000e", &FORWARDING),
        ("vmxnet3", &FORWARDING),
    ]
    .map(|(nic, rows)| Plan::new(kernel, nic, rows, None))
    .into()
}

/// What fits into some minutes: two kernels that many people run.
pub(super) fn slice() -> Vec<Plan> {
    let kernels = [Kernel::Series(6, 1), Kernel::Series(6, 12)];
    // Others use the processors, too: whether TCP passes is tested, not how fast.
    kernels.iter().map(|kernel| Plan::new(kernel, USUAL_NIC, &SLICE, Some(1))).collect()
}

impl Plan {
    fn new(kernel: &Kernel, nic: &str, rows: &[&'static str], tcp_floor: Option<u32>) -> Plan {
        let nic: Nic = nic.parse().expect("the matrix describes cards that there are");
        let limit = Duration::from_secs(300 + 90 * rows.len() as u64);
        let machine = Machine { limit, ..Machine::new(kernel.clone(), nic) };
        Plan { machine, rows: rows.to_vec(), tcp_floor }
    }

    /// The name of one of its rows.
    pub(super) fn name_of(&self, row: &str) -> String {
        format!("{}/{}/{row}", self.machine.kernel, self.machine.nic)
    }

    /// Keeps rows whose name has one of these words in it; all where there are no words.
    pub(super) fn only(mut self, words: &[String]) -> Plan {
        let rows = std::mem::take(&mut self.rows);
        let is_wanted = |row: &&str| {
            words.is_empty() || words.iter().any(|word| self.name_of(row).contains(word.as_str()))
        };
        self.rows = rows.into_iter().filter(is_wanted).collect();
        self
    }

    /// What the machine runs: the rows' functions, and a call of each.
    pub(super) fn script(&self) -> String {
        let tests = std::env::var(TESTS).unwrap_or_default();
        let floor = self.tcp_floor.map(|percent| percent.to_string()).unwrap_or_default();
        let settings = [("adopt_tests", tests), ("tcp_floor", floor)];
        let mut script: String = settings
            .iter()
            .map(|(name, value)| format!("{name}={}\n", super::folder::quoted(value)))
            .collect();
        script.extend(SCRIPTS);
        script += "prepare_hosts\n";
        self.rows.iter().for_each(|row| script += &format!("run_row {row}\n"));
        script
    }
}

/// The environment variable that names the program with the unit tests of artery-adopt.
const TESTS: &str = "ARTERY_ADOPT_TESTS";

const SCRIPTS: [&str; 9] = [
    include_str!("guest/rows/lib.sh"),
    include_str!("guest/rows/adopt.sh"),
    include_str!("guest/rows/router.sh"),
    include_str!("guest/rows/switch.sh"),
    include_str!("guest/rows/neighbors.sh"),
    include_str!("guest/rows/samples.sh"),
    include_str!("guest/rows/tunnels.sh"),
    include_str!("guest/rows/pppoe.sh"),
    include_str!("guest/rows/vrfs.sh"),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_row_has_a_name_of_its_own_and_a_function() {
        let plans = whole();
        let names: Vec<String> =
            plans.iter().flat_map(|plan| plan.rows.iter().map(|row| plan.name_of(row))).collect();
        assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len());
        for row in plans.iter().chain(&slice()).flat_map(|plan| &plan.rows) {
            let function = format!("row_{}() {{", row.replace('-', "_"));
            assert!(SCRIPTS.iter().any(|script| script.contains(&function)), "{function}");
        }
    }

    #[test]
    fn the_slice_is_a_part_of_the_whole() {
        let names = |plans: Vec<Plan>| -> BTreeSet<String> {
            plans.iter().flat_map(|plan| plan.rows.iter().map(|row| plan.name_of(row))).collect()
        };
        assert!(names(slice()).is_subset(&names(whole())));
    }

    #[test]
    fn words_choose_rows_by_their_names() {
        let chosen: Vec<Plan> =
            whole().into_iter().map(|plan| plan.only(&["6.1/vmxnet3/up".into()])).collect();
        let rows: Vec<&str> = chosen.iter().flat_map(|plan| plan.rows.clone()).collect();
        assert_eq!(rows, ["up", "up-kill", "up-reload"]);
    }

    #[test]
    fn a_script_calls_its_rows_in_order() {
        let plan = &slice()[0];
        let script = plan.script();
        let calls: Vec<&str> = script.lines().filter_map(|line| line.strip_prefix("run_row ")).collect();
        assert_eq!(calls, plan.rows);
    }
}
