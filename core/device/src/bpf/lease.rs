//! A dead man's switch for programs: they act only while their process renews a lease.
use super::{Assembler, Hook, Instruction, Label, Register, Size, Test, WordArray, load, run};
use rustix::fd::OwnedFd;
use std::io;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// The helper function that returns how often the kernel's clock has ticked (`bpf_jiffies64`,
/// Linux 5.6). On a 64-bit kernel it is one load; the functions that return the time cost a
/// seventh of a program that forwards.
const TICKS: i32 = 118;
/// For how long ticks are counted to learn how many a second has: at least two of the slowest clock.
const CALIBRATION: Duration = Duration::from_millis(25);

/// Until when programs may act. Not renewed, it ends after [`Lease::TERM`], so that a process that hangs, was
/// stopped, or was killed leaves no program that acts by old tables.
#[derive(Debug)]
pub struct Lease {
    /// The last tick at which programs act.
    deadline: WordArray<1>,
    /// A program that leaves the number of the current tick in `now`: a process has no other source for it.
    clock: OwnedFd,
    now: WordArray<1>,
    /// A tick and its time, from which the ticks of a second are counted.
    began: (u64, Instant),
    /// The last tick that was asked for, and its time.
    asked: Mutex<(u64, Instant)>,
}

impl Lease {
    /// How long a lease lasts that is not renewed: a little shorter at first, while the ticks of a second
    /// are not known well.
    pub const TERM: Duration = Duration::from_secs(1);
    /// How often it is to be renewed.
    pub const RENEWAL: Duration = Duration::from_millis(100);

    /// A lease that has ended.
    pub fn new() -> io::Result<Lease> {
        let now = WordArray::new()?;
        let clock = load(Hook::XDP, &clock(&now))?;
        let start = (0, Instant::now());
        let mut lease =
            Lease { deadline: WordArray::new()?, clock, now, began: start, asked: Mutex::new(start) };
        lease.began = (lease.tick()?, Instant::now());
        lease.asked = Mutex::new(lease.began);
        thread::sleep(CALIBRATION);
        Ok(lease)
    }

    /// Lets programs act for [`Lease::TERM`] from now on.
    pub fn renew(&self) -> io::Result<()> {
        let (now, term) = self.now_and_term()?;
        self.deadline.write([now + term as u64])
    }

    /// The current tick, or one a little before it, and how many [`Lease::TERM`] has at least. A run of a
    /// program costs more than all else here, so that ticks between two runs are computed from the time.
    fn now_and_term(&self) -> io::Result<(u64, f64)> {
        let (first, began) = self.began;
        // The first was some part of a tick.
        let term_by = |tick: u64, at: Instant| {
            let ticks = tick.saturating_sub(first).saturating_sub(1) as f64;
            ticks * Lease::TERM.as_secs_f64() / at.duration_since(began).as_secs_f64()
        };
        let mut asked = self.asked.lock().unwrap_or_else(PoisonError::into_inner);
        let (tick, at) = *asked;
        let passed = at.elapsed();
        if at.duration_since(began) >= Lease::TERM && passed < Lease::TERM {
            let term = term_by(tick, at);
            return Ok((tick + (passed.as_secs_f64() * term / Lease::TERM.as_secs_f64()) as u64, term));
        }
        // Its time is taken after it: less seems to have passed since then, not more.
        *asked = (self.tick()?, Instant::now());
        Ok((asked.0, term_by(asked.0, asked.1)))
    }

    /// About how many ticks a second has.
    pub fn ticks_of_a_second(&self) -> io::Result<u64> {
        let (first, began) = self.began;
        Ok((self.tick()?.saturating_sub(first) as f64 / began.elapsed().as_secs_f64()) as u64)
    }

    /// Lets programs act without end, where no traffic of others meets them, as in tests and benchmarks.
    pub fn renew_for_good(&self) -> io::Result<()> {
        self.deadline.write([u64::MAX])
    }

    /// Whether programs act now.
    pub fn holds(&self) -> io::Result<bool> {
        Ok(self.tick()? <= self.deadline.read()?[0])
    }

    /// Writes the check that jumps to `expired` when the lease has ended. It overwrites `R0` to `R5`.
    pub fn write_check(&self, a: &mut Assembler, expired: Label) {
        a.call(TICKS);
        a.value(Register::R1, self.deadline.descriptor(), 0);
        a.load(Size::Double, Register::R1, Register::R1, 0);
        a.jump_if(Test::Above, Register::R0, Register::R1, expired);
    }

    /// The current tick of the kernel's clock, as programs read it.
    pub fn tick(&self) -> io::Result<u64> {
        run(&self.clock, &[0; 60], None, 1)?;
        Ok(self.now.read()?[0])
    }
}

fn clock(now: &WordArray<1>) -> Vec<Instruction> {
    let mut a = Assembler::default();
    a.call(TICKS);
    a.value(Register::R1, now.descriptor(), 0);
    a.store(Size::Double, Register::R1, 0, Register::R0);
    a.set(Register::R0, 2);
    a.exit();
    a.finish().expect("there are no jumps")
}

/// A lease that a thread renews until this is dropped.
#[derive(Debug)]
pub(crate) struct KeptLease {
    is_ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl KeptLease {
    pub(super) fn renew_until_dropped(
        renew: impl Fn() -> io::Result<()> + Send + 'static,
    ) -> io::Result<KeptLease> {
        renew()?;
        let is_ended = Arc::new(AtomicBool::new(false));
        let ended = is_ended.clone();
        let renew_until_ended = move || {
            while !ended.load(Relaxed) {
                // A lease that can't be renewed ends, and programs leave everything to the kernel.
                let _ = renew();
                thread::park_timeout(Lease::RENEWAL);
            }
        };
        let thread = thread::Builder::new().name("lease".to_owned()).spawn(renew_until_ended)?;
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::may_make_namespaces;

    #[test]
    fn a_program_acts_while_the_lease_holds() {
        if !may_make_namespaces() {
            return;
        }
        let lease = Lease::new().unwrap();
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
        lease.deadline.write([lease.tick().unwrap() - 1]).unwrap();
        assert_eq!((acts(), lease.holds().unwrap()), (false, false));
        lease.renew_for_good().unwrap();
        assert_eq!((acts(), lease.holds().unwrap()), (true, true));
    }

    #[test]
    fn ticks_that_are_computed_are_not_ahead_and_hardly_behind() {
        if !may_make_namespaces() {
            return;
        }
        let lease = Lease::new().unwrap();
        let (start, mut computed) = (Instant::now(), 0);
        while start.elapsed() < 3 * Lease::TERM {
            let asked = *lease.asked.lock().unwrap();
            let before = lease.tick().unwrap();
            let (now, term) = lease.now_and_term().unwrap();
            let after = lease.tick().unwrap();
            // A processor may count a tick late.
            assert!(now <= after + 2, "{now} {after}");
            // A tenth of a second.
            assert!(now as f64 + term / 10.0 + 2.0 >= before as f64, "{now} {before} {term}");
            computed += u32::from(*lease.asked.lock().unwrap() == asked);
            thread::sleep(Duration::from_millis(10));
        }
        assert!(computed > 0);
    }

    #[test]
    fn a_lease_lasts_no_longer_than_its_term() {
        if !may_make_namespaces() {
            return;
        }
        let lease = Lease::new().unwrap();
        // At once, and when the ticks of a second are known better.
        for wait in [Duration::ZERO, Duration::from_millis(300)] {
            thread::sleep(wait);
            lease.renew().unwrap();
            let renewed = Instant::now();
            while lease.holds().unwrap() {
                assert!(renewed.elapsed() < 2 * Lease::TERM, "it does not end");
                thread::sleep(Duration::from_millis(5));
            }
        }
    }
}
