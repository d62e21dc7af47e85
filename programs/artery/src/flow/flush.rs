//! `artery flow flush`.
use super::FlushOptions;
use super::balancer::{Balancer, sum};
use crate::output::print_stdout;
use std::time::Duration;

/// The pause between two polls of the router.
const PAUSE: Duration = Duration::from_millis(10);

/// Has flows forgotten, and waits for it.
pub(super) fn flush(balancer: &mut Balancer, options: &FlushOptions) -> anyhow::Result<u8> {
    let before = sum(&balancer.query_workers("exchange", "")?, "flushed");
    balancer.write("flush_flows", options.member.as_deref().unwrap_or("all"))?;
    loop {
        let workers = balancer.query_workers("exchange", "")?;
        if workers.iter().all(|worker| worker["flushing"] != true) {
            let count = sum(&workers, "flushed").saturating_sub(before);
            return print_stdout(&format!("{count} flows flushed\n")).map(|()| 0);
        }
        std::thread::sleep(PAUSE);
    }
}
