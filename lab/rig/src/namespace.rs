//! One network namespace: making it, going into it with a thread, setting its kernel variables.

use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::thread;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::cleanup::NAMESPACES;
use super::error::{Result, RigError};

/// Kernel variables every host starts with, whatever the machine's own settings are: new namespaces inherit
/// the IPv4 ones. No duplicate address detection, so that IPv6 addresses can be used at once.
pub(super) const INITIAL: [(&str, &str); 6] = [
    ("net.ipv6.conf.all.accept_dad", "0"),
    ("net.ipv6.conf.default.accept_dad", "0"),
    ("net.ipv6.conf.all.forwarding", "0"),
    ("net.ipv4.ip_forward", "0"),
    ("net.ipv4.conf.all.rp_filter", "0"),
    ("net.ipv4.conf.default.rp_filter", "0"),
];

/// Runs `work` on a thread inside a namespace. Sockets made there stay there, whichever thread uses them.
pub(super) fn enter<T: Send>(namespace: &str, work: impl FnOnce() -> T + Send) -> Result<T> {
    let inside = || move_in(namespace).map(|()| work());
    let outcome = thread::scope(|scope| scope.spawn(inside).join());
    match outcome {
        Ok(result) => result.map_err(RigError::system(format!("cannot enter the namespace {namespace}"))),
        Err(cause) => std::panic::resume_unwind(cause),
    }
}

fn move_in(namespace: &str) -> io::Result<()> {
    let file = File::open(Path::new(NAMESPACES).join(namespace))?;
    Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
}

/// Sets a kernel variable of the namespace this thread is in.
pub(super) fn write_variable(name: &str, value: &str) -> Result<()> {
    fs::write(variable_path(name), value).map_err(RigError::system(format!("cannot set {name} to {value:?}")))
}

/// Reads a kernel variable of the namespace this thread is in.
pub(super) fn read_variable(name: &str) -> Result<String> {
    let text = fs::read_to_string(variable_path(name));
    Ok(text.map_err(RigError::system(format!("cannot read {name}")))?.trim_end().to_owned())
}

/// As in sysctl(8): slashes separate where a name has any, so that an interface's name may contain a dot.
fn variable_path(name: &str) -> PathBuf {
    let relative = if name.contains('/') { name.to_owned() } else { name.replace('.', "/") };
    Path::new("/proc/sys").join(relative.trim_start_matches('/'))
}

/// Checks that a host's name can be part of a namespace's name.
pub(super) fn check_host_name(name: &str) -> Result<()> {
    let rule = "a host's name has 1 to 32 letters, digits, '-' or '_'";
    let fits = (1..=32).contains(&name.len());
    let clean = name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
    if fits && clean { Ok(()) } else { Err(RigError::BadName { name: name.into(), rule }) }
}

/// Checks that the kernel will take an interface's name, and that no tool will take it for an option.
pub(super) fn check_interface_name(name: &str) -> Result<()> {
    let rule = "an interface's name has 1 to 15 visible characters without '/' or ':', and no '-' in front";
    let fits = (1..=15).contains(&name.len()) && name != "." && name != "..";
    let clean = name.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'/' && byte != b':');
    if fits && clean && !name.starts_with('-') {
        Ok(())
    } else {
        Err(RigError::BadName { name: name.into(), rule })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dots_separate_a_variable_unless_slashes_do() {
        assert_eq!(variable_path("net.ipv4.ip_forward"), Path::new("/proc/sys/net/ipv4/ip_forward"));
        let dotted = Path::new("/proc/sys/net/ipv4/conf/eth0.7/rp_filter");
        assert_eq!(variable_path("net/ipv4/conf/eth0.7/rp_filter"), dotted);
    }

    #[test]
    fn names_that_would_reach_elsewhere_are_refused() {
        for name in ["", "a/b", "..", "a b", &"x".repeat(33)] {
            assert!(check_host_name(name).is_err(), "{name:?}");
        }
        for name in ["", "a/b", "..", "-all", "sixteen-letters!", "a b"] {
            assert!(check_interface_name(name).is_err(), "{name:?}");
        }
        assert!(check_host_name("router-1").is_ok());
        assert!(check_interface_name("eth0.100").is_ok());
    }
}
