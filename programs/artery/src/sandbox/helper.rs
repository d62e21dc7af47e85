//! The helper: this program, started once more before the rights are given up.
use super::calls;
use crate::output::Output;
use artery_device::privsep::{self, HelperLife};
use artery_engine::Handle;
use rustix::fd::OwnedFd;
use rustix::process::{Pid, WaitOptions, waitpid};
use rustix::thread::{CapabilitySet, capability_is_in_bounding_set};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use std::io;
use std::io::ErrorKind::{BrokenPipe, ConnectionReset};
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// What the helper is called with, and shown as.
const NAME: &str = "artery-privsep";
const NAME_OF_THREAD: &std::ffi::CStr = c"artery-privsep";
/// This program, also where its file has been replaced.
const PROGRAM: &str = "/proc/self/exe";

/// How long the end of the helper is waited for; one that is stopped can't end.
const LONGEST_END: Duration = Duration::from_secs(1);

/// What a helper keeps: for sockets and devices, programs, and files of other users
/// that a configuration names.
const KEPT: CapabilitySet = CapabilitySet::NET_ADMIN
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::BPF)
    .union(CapabilitySet::PERFMON)
    .union(CapabilitySet::DAC_OVERRIDE);

/// Starts the helper with its end of the connection; gives its process.
pub(super) fn spawn(socket: OwnedFd) -> io::Result<u32> {
    let mut command = Command::new(PROGRAM);
    command.arg0(NAME).arg(NAME).stdin(Stdio::from(socket)).stdout(Stdio::null());
    // Signals of the terminal are for the router, which ends the helper by ending.
    let child = command.process_group(0).spawn()?;
    Ok(child.id())
}

/// Ends the helper, and waits a while for it, so that nothing of a router is left once that has ended.
pub(crate) fn end() {
    let Some(helper) = privsep::helper() else { return };
    helper.release();
    let Some(process) = i32::try_from(helper.id()).ok().and_then(Pid::from_raw) else { return };
    let deadline = Instant::now() + LONGEST_END;
    while matches!(waitpid(Some(process), WaitOptions::NOHANG), Ok(None)) && Instant::now() < deadline {
        std::thread::sleep(Duration::from_micros(200));
    }
}

/// Serves a router, if that is what this process was started for; gives the exit status.
pub(crate) fn serve_if_helper(arguments: &[std::ffi::OsString]) -> Option<u8> {
    if arguments.first()? != NAME || arguments.get(1)? != NAME {
        return None;
    }
    Some(match serve() {
        Ok(()) => 0,
        // The router was ended while it started.
        Err(error) if matches!(error.kind(), BrokenPipe | ConnectionReset) => 0,
        Err(error) => {
            Output::for_terminal().print_error(&format!("the helper process of the sandbox: {error}"));
            1
        }
    })
}

fn serve() -> io::Result<()> {
    // ps(1) and top(1) show it; else it would be called 'exe', as its file.
    let _ = rustix::thread::set_name(NAME_OF_THREAD);
    // Service managers send SIGTERM to all processes of a service: the router drains first, and this one ends
    // with it.
    let ignored = Arc::new(AtomicBool::new(false));
    for signal in [SIGTERM, SIGINT, SIGHUP] {
        signal_hook::flag::register(signal, ignored.clone())?;
    }
    let socket = rustix::io::dup(rustix::stdio::stdin())?;
    privsep::serve(socket, || {
        privsep::limit_capabilities(kept(), CapabilitySet::empty())?;
        rustix::thread::set_no_new_privs(true)?;
        // Where the kernel has no seccomp, the router finds that out, too, and reports it.
        let _ = calls::restrict(calls::Process::Helper);
        Ok(())
    })
}

/// Before Linux 5.8 CAP_SYS_ADMIN was what loads programs.
fn kept() -> CapabilitySet {
    match capability_is_in_bounding_set(CapabilitySet::BPF) {
        Ok(_) => KEPT,
        Err(_) => KEPT.union(CapabilitySet::SYS_ADMIN),
    }
}

/// Ends the router should its helper end: what hides frames from the host, and AF_XDP, end with the helper.
pub(crate) fn watch(
    life: HelperLife,
    handle: Handle,
    voice: Output,
    failed: Arc<AtomicBool>,
) -> io::Result<()> {
    let body = move || {
        life.wait();
        if !handle.has_ended() {
            failed.store(true, Relaxed);
            voice.print_error(
                "the helper process of the sandbox has ended, and with it the router's rights to its ports",
            );
            handle.record_end("its helper process has ended");
            handle.request_drained_stop();
        }
    };
    std::thread::Builder::new().name("helper-watch".to_string()).spawn(body).map(drop)
}
