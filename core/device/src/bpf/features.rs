//! What the kernel offers to programs of this process, found out by trying. Nothing is attached.
use super::maps::{Array, try_array};
use super::{Hook, instruction, load};
use rustix::io::Errno;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use std::io;

/// Whether the kernel takes a program for a hook: one that leaves all frames to the kernel.
pub fn takes_programs(hook: Hook) -> io::Result<()> {
    let answer = match hook {
        Hook::TcIngress => -1,
        Hook::Xdp { .. } => 2,
    };
    load(hook, &[instruction(0xb7, 0, 0, 0, answer), instruction(0x95, 0, 0, 0, 0)]).map(drop)
}

/// Whether the kernel makes arrays that a process can map (Linux 5.5).
pub fn shares_arrays() -> io::Result<()> {
    Array::new(4096).map(drop)
}

/// Whether programs and maps count as memory that a process keeps from being swapped out, so that
/// RLIMIT_MEMLOCK limits them (before Linux 5.11). The limit of this process is 0 meanwhile.
pub fn counts_locked_memory() -> io::Result<bool> {
    shares_arrays()?;
    let before = getrlimit(Resource::Memlock);
    setrlimit(Resource::Memlock, Rlimit { current: Some(0), ..before })?;
    let made = try_array(4096);
    setrlimit(Resource::Memlock, before)?;
    match made {
        Ok(_) => Ok(false),
        Err(error) if Errno::from_io_error(&error) == Some(Errno::PERM) => Ok(true),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::may_make_namespaces;

    #[test]
    fn a_kernel_that_takes_a_program_of_artery_says_so() {
        if !may_make_namespaces() {
            return;
        }
        takes_programs(Hook::TcIngress).unwrap();
        takes_programs(Hook::XDP).unwrap();
        shares_arrays().unwrap();
    }

    #[test]
    fn the_limit_of_locked_memory_is_as_before_it_was_asked_for() {
        if !may_make_namespaces() {
            return;
        }
        // The first question may raise it for good.
        counts_locked_memory().unwrap();
        let before = getrlimit(Resource::Memlock);
        counts_locked_memory().unwrap();
        assert_eq!(getrlimit(Resource::Memlock), before);
    }
}
