//! A dead man's switch for programs: they act only while their process renews a lease.
use super::{Assembler, Hook, Label, Register, Size, Test, Words, load};
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Calls that tell the time (`bpf_ktime_get_coarse_ns` since Linux 5.11, `bpf_ktime_get_ns`), in nanoseconds of
/// CLOCK_MONOTONIC. The first only reads what the last tick left.
const COARSE_TIME: i32 = 160;
const TIME: i32 = 5;

/// Until when programs may act. Not renewed, it ends after [`Lease::TERM`], so that a process that hangs, was stopped, or
/// was killed leaves no program that acts by old tables.
#[derive(Debug)]
pub struct Lease {
    deadline: Words<1>,
    clock: i32,
}

impl Lease {
    /// How long a lease lasts that is not renewed.
    pub const TERM: Duration = Duration::from_secs(1);
    /// How often it is to be renewed.
    pub const RENEWAL: Duration = Duration::from_millis(100);

    /// A lease that has ended.
    pub fn new() -> io::Result<Lease> {
        Ok(Lease { deadline: Words::new()?, clock: if knows(COARSE_TIME) { COARSE_TIME } else { TIME } })
    }

    /// Lets programs act for [`Lease::TERM`] from now on.
    pub fn renew(&self) -> io::Result<()> {
        self.deadline.write([nanoseconds(monotonic() + Lease::TERM)])
    }

    /// Lets programs act without end: for programs that nobody's packets meet.
    pub fn renew_for_good(&self) -> io::Result<()> {
        self.deadline.write([u64::MAX])
    }

    /// Whether programs act now.
    pub fn holds(&self) -> io::Result<bool> {
        Ok(nanoseconds(monotonic()) <= self.deadline.read()?[0])
    }

    /// Writes what goes to `expired` where the lease has ended. `R0` to `R5` are spoilt.
    pub fn write_check(&self, a: &mut Assembler, expired: Label) {
        a.call(self.clock);
        a.value(Register::R1, self.deadline.descriptor(), 0);
        a.load(Size::Double, Register::R1, Register::R1, 0);
        a.jump_if(Test::Above, Register::R0, Register::R1, expired);
    }
}

/// A lease that a thread renews until this is dropped.
#[derive(Debug)]
pub(super) struct KeptLease {
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl KeptLease {
    pub(super) fn keep(lease: Lease) -> io::Result<KeptLease> {
        lease.renew()?;
        let is_ended = Arc::new(AtomicBool::new(false));
        let ended = is_ended.clone();
        let renew = move || {
            while !ended.load(Relaxed) {
                // What can't be renewed ends, and programs leave everything to the kernel.
                let _ = lease.renew();
                thread::park_timeout(Lease::RENEWAL);
            }
        };
        let thread = thread::Builder::new().name("lease".to_owned()).spawn(renew)?;
        Ok(KeptLease { is_ended, thread: Some(thread) })
    }
}

impl Drop for KeptLease {
    fn drop(&mut self) {
        self.is_ended.store(true, Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.thread().unpark();
            // It does not panic.
            let _ = thread.join();
        }
    }
}

/// Whether the kernel has a function that takes no arguments.
fn knows(function: i32) -> bool {
    let mut a = Assembler::default();
    a.call(function);
    a.set(Register::R0, 2);
    a.exit();
    a.finish().is_ok_and(|program| load(Hook::XDP, &program).is_ok())
}

/// CLOCK_MONOTONIC.
fn monotonic() -> Duration {
    let now = rustix::time::clock_gettime(rustix::time::ClockId::Monotonic);
    // Neither is ever negative.
    Duration::new(now.tv_sec.unsigned_abs(), now.tv_nsec.unsigned_abs() as u32)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bpf::run;
    use crate::namespace::may_make_namespaces;

    #[test]
    fn a_program_acts_while_the_lease_holds() {
        if !may_make_namespaces() {
            return;
        }
        for clock in [COARSE_TIME, TIME] {
            let lease = Lease { clock, ..Lease::new().unwrap() };
            let mut a = Assembler::default();
            let expired = a.label();
            lease.write_check(&mut a, expired);
            a.set(Register::R0, 1);
            a.exit();
            a.place(expired);
            a.set(Register::R0, 2);
            a.exit();
            let program = load(Hook::XDP, &a.finish().unwrap()).unwrap();
            let acts = || run(&program, &[0; 60], None, 1).unwrap().action == 1;
            assert_eq!((acts(), lease.holds().unwrap()), (false, false));
            lease.renew().unwrap();
            assert_eq!((acts(), lease.holds().unwrap()), (true, true));
            lease.deadline.write([nanoseconds(monotonic() - Duration::from_millis(20))]).unwrap();
            assert_eq!((acts(), lease.holds().unwrap()), (false, false));
            lease.renew_for_good().unwrap();
            assert_eq!((acts(), lease.holds().unwrap()), (true, true));
        }
    }
}
