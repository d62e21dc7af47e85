//! System calls, by seccomp: a list of those that a router makes. All others fail with EPERM, and nothing
//! ends for it.
use anyhow::Context as _;
use libc::c_long;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter_all_threads,
};
use std::collections::BTreeMap;

/// Which process is restricted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Process {
    /// The one that parses packets.
    Router,
    /// The one that keeps rights: it opens packet sockets and calls bpf(2), too.
    Helper,
    /// `artery adopt`: it calls bpf(2), and runs a program that lists rules.
    Adopt,
    /// The same with a graph, which opens packet sockets.
    AdoptGraph,
}

/// Calls of both processes, on all machines.
const ALLOWED: &[c_long] = &[
    // Memory.
    libc::SYS_brk,
    libc::SYS_mmap,
    libc::SYS_munmap,
    libc::SYS_mprotect,
    libc::SYS_mremap,
    libc::SYS_madvise,
    libc::SYS_mincore,
    libc::SYS_msync,
    libc::SYS_membarrier,
    libc::SYS_memfd_create,
    // Threads, signals and time.
    libc::SYS_clone3,
    libc::SYS_futex,
    libc::SYS_set_robust_list,
    libc::SYS_get_robust_list,
    libc::SYS_rseq,
    libc::SYS_set_tid_address,
    libc::SYS_exit,
    libc::SYS_exit_group,
    libc::SYS_wait4,
    libc::SYS_waitid,
    libc::SYS_sched_yield,
    libc::SYS_sched_getaffinity,
    libc::SYS_sched_setaffinity,
    libc::SYS_sched_getparam,
    libc::SYS_sched_getscheduler,
    libc::SYS_getcpu,
    libc::SYS_gettid,
    libc::SYS_getpid,
    libc::SYS_getppid,
    libc::SYS_tgkill,
    libc::SYS_tkill,
    libc::SYS_kill,
    libc::SYS_rt_sigaction,
    libc::SYS_rt_sigprocmask,
    libc::SYS_rt_sigpending,
    libc::SYS_rt_sigreturn,
    libc::SYS_rt_sigsuspend,
    libc::SYS_rt_sigtimedwait,
    libc::SYS_sigaltstack,
    libc::SYS_restart_syscall,
    libc::SYS_prctl,
    libc::SYS_nanosleep,
    libc::SYS_clock_nanosleep,
    libc::SYS_clock_gettime,
    libc::SYS_clock_getres,
    libc::SYS_gettimeofday,
    libc::SYS_timerfd_create,
    libc::SYS_timerfd_settime,
    libc::SYS_timerfd_gettime,
    libc::SYS_setitimer,
    libc::SYS_getitimer,
    libc::SYS_times,
    // The identity of this process.
    libc::SYS_getuid,
    libc::SYS_geteuid,
    libc::SYS_getgid,
    libc::SYS_getegid,
    libc::SYS_getgroups,
    libc::SYS_getresuid,
    libc::SYS_getresgid,
    libc::SYS_getpgid,
    libc::SYS_getsid,
    libc::SYS_getpriority,
    libc::SYS_getrlimit,
    libc::SYS_prlimit64,
    libc::SYS_getrusage,
    libc::SYS_sysinfo,
    libc::SYS_uname,
    libc::SYS_getrandom,
    libc::SYS_capget,
    libc::SYS_getcwd,
    libc::SYS_umask,
    // Files and descriptors.
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_readv,
    libc::SYS_writev,
    libc::SYS_pread64,
    libc::SYS_pwrite64,
    libc::SYS_preadv,
    libc::SYS_pwritev,
    libc::SYS_preadv2,
    libc::SYS_pwritev2,
    libc::SYS_lseek,
    libc::SYS_close,
    libc::SYS_close_range,
    libc::SYS_dup,
    libc::SYS_dup3,
    libc::SYS_fcntl,
    libc::SYS_flock,
    libc::SYS_fsync,
    libc::SYS_fdatasync,
    libc::SYS_ftruncate,
    libc::SYS_fallocate,
    libc::SYS_fadvise64,
    libc::SYS_fstat,
    libc::SYS_newfstatat,
    libc::SYS_statx,
    libc::SYS_statfs,
    libc::SYS_fstatfs,
    libc::SYS_faccessat,
    libc::SYS_faccessat2,
    libc::SYS_readlinkat,
    libc::SYS_getdents64,
    libc::SYS_openat,
    libc::SYS_unlinkat,
    libc::SYS_renameat,
    libc::SYS_renameat2,
    libc::SYS_mkdirat,
    libc::SYS_sendfile,
    libc::SYS_copy_file_range,
    libc::SYS_splice,
    libc::SYS_pipe2,
    libc::SYS_eventfd2,
    libc::SYS_epoll_create1,
    libc::SYS_epoll_ctl,
    libc::SYS_epoll_pwait,
    libc::SYS_epoll_pwait2,
    libc::SYS_ppoll,
    libc::SYS_pselect6,
    // Sockets.
    libc::SYS_socketpair,
    libc::SYS_bind,
    libc::SYS_connect,
    libc::SYS_listen,
    libc::SYS_accept,
    libc::SYS_accept4,
    libc::SYS_getsockname,
    libc::SYS_getpeername,
    libc::SYS_getsockopt,
    libc::SYS_setsockopt,
    libc::SYS_sendto,
    libc::SYS_sendmsg,
    libc::SYS_sendmmsg,
    libc::SYS_recvfrom,
    libc::SYS_recvmsg,
    libc::SYS_recvmmsg,
    libc::SYS_shutdown,
];

/// Older forms of these, which not all machines have.
#[cfg(target_arch = "x86_64")]
const ALLOWED_HERE: &[c_long] = &[
    libc::SYS_arch_prctl,
    libc::SYS_time,
    libc::SYS_alarm,
    libc::SYS_pause,
    libc::SYS_getpgrp,
    libc::SYS_open,
    libc::SYS_stat,
    libc::SYS_lstat,
    libc::SYS_access,
    libc::SYS_readlink,
    libc::SYS_unlink,
    libc::SYS_rename,
    libc::SYS_mkdir,
    libc::SYS_getdents,
    libc::SYS_dup2,
    libc::SYS_pipe,
    libc::SYS_eventfd,
    libc::SYS_epoll_create,
    libc::SYS_epoll_wait,
    libc::SYS_poll,
    libc::SYS_select,
];
#[cfg(not(target_arch = "x86_64"))]
const ALLOWED_HERE: &[c_long] = &[];

/// What it takes to run a program.
#[cfg(target_arch = "x86_64")]
const TO_RUN_PROGRAMS: &[c_long] = &[libc::SYS_execve, libc::SYS_vfork, libc::SYS_pidfd_open];
#[cfg(not(target_arch = "x86_64"))]
const TO_RUN_PROGRAMS: &[c_long] = &[libc::SYS_execve, libc::SYS_pidfd_open];

/// Families of the sockets that all but the helper open.
const COMMON_FAMILIES: &[i32] = &[libc::AF_UNIX, libc::AF_INET, libc::AF_INET6, libc::AF_NETLINK];

/// Flags of clone(2) that make namespaces.
const CLONE_NAMESPACES: u64 = 0x7e02_0000;
/// Requests of terminals that type for their user.
const TERMINAL_INPUT: [u64; 2] = [0x5412, 0x541c];

/// From now on this process makes no other calls.
pub(super) fn restrict(process: Process) -> anyhow::Result<()> {
    for filter in filters(process)? {
        apply_filter_all_threads(&filter).context("can't restrict system calls by seccomp")?;
    }
    Ok(())
}

type Rules = BTreeMap<c_long, Vec<SeccompRule>>;

/// One filter refuses calls that are not on the list; the other makes the C library call clone(2) instead of
/// clone3(2), whose flags no filter can see.
fn filters(process: Process) -> anyhow::Result<[BpfProgram; 2]> {
    let refuse = |errno: i32| SeccompAction::Errno(errno.unsigned_abs());
    let clone3 = [(libc::SYS_clone3, Vec::new())].into();
    // The list comes last: it has no call that installs filters.
    Ok([
        filter(clone3, SeccompAction::Allow, refuse(libc::ENOSYS))?,
        filter(allowed(process)?, refuse(libc::EPERM), SeccompAction::Allow)?,
    ])
}

fn filter(rules: Rules, other: SeccompAction, named: SeccompAction) -> anyhow::Result<BpfProgram> {
    let machine =
        std::env::consts::ARCH.try_into().context("seccomp filters are not made for this machine")?;
    let filter = SeccompFilter::new(rules, other, named, machine).context("can't make a seccomp filter")?;
    filter.try_into().context("can't make a seccomp filter")
}

fn allowed(process: Process) -> anyhow::Result<Rules> {
    let mut rules: Rules = ALLOWED.iter().chain(ALLOWED_HERE).map(|call| (*call, Vec::new())).collect();
    rules.insert(libc::SYS_clone, vec![rule(&[(0, SeccompCmpOp::MaskedEq(CLONE_NAMESPACES), 0)])?]);
    let not_input: Vec<_> = TERMINAL_INPUT.iter().map(|request| (1, SeccompCmpOp::Ne, *request)).collect();
    rules.insert(libc::SYS_ioctl, vec![rule(&not_input)?]);
    match process {
        Process::Router => drop(rules.insert(libc::SYS_socket, sockets(COMMON_FAMILIES)?)),
        Process::Adopt | Process::AdoptGraph => {
            let more: &[i32] = if process == Process::AdoptGraph { &[libc::AF_PACKET] } else { &[] };
            rules.insert(libc::SYS_socket, sockets(&[COMMON_FAMILIES, more].concat())?);
            rules.extend(
                TO_RUN_PROGRAMS
                    .iter()
                    .chain(&[libc::SYS_bpf, libc::SYS_capset])
                    .map(|call| (*call, Vec::new())),
            );
        }
        Process::Helper => {
            let more = [libc::SYS_socket, libc::SYS_bpf, libc::SYS_openat2, libc::SYS_setrlimit];
            rules.extend(more.map(|call| (call, Vec::new())));
        }
    }
    Ok(rules)
}

/// Sockets of these families.
fn sockets(families: &[i32]) -> anyhow::Result<Vec<SeccompRule>> {
    let of = |family: &i32| rule(&[(0, SeccompCmpOp::Eq, family.unsigned_abs().into())]);
    families.iter().map(of).collect()
}

/// A call passes if all of these arguments (number, comparison, value) are so.
fn rule(arguments: &[(u8, SeccompCmpOp, u64)]) -> anyhow::Result<SeccompRule> {
    let condition = |(number, operation, value): &(u8, SeccompCmpOp, u64)| {
        SeccompCondition::new(*number, SeccompCmpArgLen::Dword, operation.clone(), *value)
    };
    let conditions = arguments.iter().map(condition).collect::<Result<Vec<_>, _>>();
    conditions.and_then(SeccompRule::new).context("can't make a rule of a seccomp filter")
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fd::AsFd as _;
    use rustix::net::{AddressFamily, SocketType};
    use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};
    use seccompiler::apply_filter;

    /// Does something on a thread that is restricted.
    fn restricted<T: Send + 'static>(process: Process, job: impl FnOnce() -> T + Send + 'static) -> T {
        let run = move || {
            filters(process).unwrap().iter().for_each(|filter| apply_filter(filter).unwrap());
            job()
        };
        std::thread::spawn(run).join().unwrap()
    }

    #[test]
    fn a_router_starts_threads_and_no_programs() {
        let (started, program) = restricted(Process::Router, || {
            let started = std::thread::spawn(|| 7).join().unwrap();
            (started, std::process::Command::new("true").status())
        });
        assert_eq!(started, 7);
        assert_eq!(program.unwrap_err().kind(), std::io::ErrorKind::PermissionDenied);
    }

    #[test]
    fn a_router_opens_common_sockets_alone_and_makes_no_namespaces() {
        let of = |family| {
            restricted(Process::Router, move || {
                rustix::net::socket(family, SocketType::DGRAM, None).err() == Some(rustix::io::Errno::PERM)
            })
        };
        assert_eq!([AddressFamily::INET, AddressFamily::UNIX].map(of), [false, false]);
        let refused = [AddressFamily::PACKET, AddressFamily::XDP, AddressFamily::VSOCK].map(of);
        assert_eq!(refused, [true, true, true]);
        let namespaces = || {
            let own = std::fs::File::open("/proc/self/ns/net").unwrap();
            move_into_link_name_space(own.as_fd(), Some(LinkNameSpaceType::Network))
        };
        assert_eq!(restricted(Process::Router, namespaces), Err(rustix::io::Errno::PERM));
    }
}
