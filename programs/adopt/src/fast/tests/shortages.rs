//! Tables that outgrow what the kernel gives.
use super::may_load;
use crate::fast::Accelerator;
use crate::mirror::{NextHopSetId, Sink as _};
use artery_lpm::Prefix;
use rustix::io::Errno;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};

/// From now on the kernel answers this thread's bpf(2) so.
fn refuse_bpf(errno: Errno) {
    let answer = SeccompAction::Errno(errno.raw_os_error().unsigned_abs());
    let machine = std::env::consts::ARCH.try_into().unwrap();
    let rules = [(libc::SYS_bpf, Vec::new())].into();
    let filter = SeccompFilter::new(rules, SeccompAction::Allow, answer, machine).unwrap();
    rustix::thread::set_no_new_privs(true).unwrap();
    apply_filter(&BpfProgram::try_from(filter).unwrap()).unwrap();
}

#[test]
fn routes_without_a_map_are_a_shortage_until_the_kernel_makes_one() {
    if !may_load() {
        return;
    }
    for errno in [Errno::TOOBIG, Errno::NOMEM, Errno::MFILE] {
        let mut accelerator = Accelerator::new().unwrap();
        accelerator.complete_updates().unwrap();
        // Many hosts in twenty /16s: each takes a list of its own, more than the first map holds.
        for n in 0..20 * 400 {
            let host = 20 << 24 | (n / 400) << 16 | (n % 400 / 100) << 8 | (n % 100 * 2);
            accelerator.set_route4(Prefix::host(host), Some(NextHopSetId(1)));
        }
        std::thread::scope(|scope| {
            let refused = scope.spawn(|| {
                refuse_bpf(errno);
                accelerator.complete_updates()
            });
            let error = refused.join().unwrap().unwrap_err();
            assert!(error.is_shortage(), "{errno}: {error}");
        });
        accelerator.complete_updates().unwrap();
    }
}
