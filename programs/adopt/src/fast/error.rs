//! Why ports can't be forwarded by programs.
use super::layout::ROUTED;
use super::memory::NoMemory;
use super::mode::Mode;
use super::routes::FibError;
use artery_device::DeviceError;
use rustix::io::Errno;
use std::fmt;
use std::io;

/// What can go wrong.
#[derive(Debug)]
pub enum Error {
    /// The memory that is shared with programs can't be allocated.
    Memory(NoMemory),
    /// The FIB can't be built or changed.
    Fib(FibError),
    /// An interface can't be claimed, as while another process has it as its port.
    Claim(DeviceError),
    /// More interfaces than there is room for.
    TooManyPorts,
    /// The kernel can't report when runs of programs have ended.
    Waiting(io::Error),
    /// The kernel does not take a program, or not at an interface.
    Refused(Box<Refusal>),
}

/// Why a program is not at an interface.
#[derive(Debug)]
pub struct Refusal {
    /// The kernel's index of the interface.
    pub link: u32,
    /// Who was to run the program.
    pub mode: Mode,
    /// What the kernel answered.
    pub error: io::Error,
    /// The last lines of its verifier, if that is who refused.
    pub verifier: Vec<String>,
}

impl Error {
    /// Whether the kernel did not take a program, or not at an interface.
    pub fn is_refusal(&self) -> bool {
        matches!(self, Error::Refused(_))
    }

    /// The last lines of the kernel's verifier, if that is who refused.
    pub fn verifier(&self) -> &[String] {
        match self {
            Error::Refused(refusal) => &refusal.verifier,
            _ => &[],
        }
    }

    /// Whether memory or descriptors were lacking, which may come back.
    pub fn is_shortage(&self) -> bool {
        match self {
            Error::Memory(error) => is_shortage(error.cause()),
            Error::Fib(FibError::Memory(error)) | Error::Waiting(error) => is_shortage(error),
            Error::Refused(refusal) => refusal.verifier.is_empty() && is_shortage(&refusal.error),
            Error::Fib(_) | Error::Claim(_) | Error::TooManyPorts => false,
        }
    }

    /// Whether this process may not do it, so that the kernel did not look at what it was given.
    pub fn is_for_want_of_rights(&self) -> bool {
        let error = match self {
            Error::Refused(refusal) if refusal.verifier.is_empty() => &refusal.error,
            Error::Memory(error) => error.cause(),
            _ => return false,
        };
        matches!(Errno::from_io_error(error), Some(Errno::PERM | Errno::ACCESS | Errno::NOSYS))
    }
}

/// Whether an error of the kernel says that memory or descriptors were lacking.
pub(crate) fn is_shortage(error: &io::Error) -> bool {
    // A map that is too big for the kernel is not needed any more once routes have gone.
    let lacking =
        [Errno::NOMEM, Errno::NOBUFS, Errno::NOSPC, Errno::MFILE, Errno::NFILE, Errno::AGAIN, Errno::TOOBIG];
    error.kind() == io::ErrorKind::OutOfMemory
        || Errno::from_io_error(error).is_some_and(|errno| lacking.contains(&errno))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Memory(error) => error.fmt(f),
            Error::Fib(error) => error.fmt(f),
            Error::Claim(error) => error.fmt(f),
            Error::TooManyPorts => {
                write!(f, "more than {ROUTED} ports, VLANs counted; adopt fewer")
            }
            Error::Refused(refusal) => refusal.fmt(f),
            Error::Waiting(error) => write!(
                f,
                "the kernel can't say when its programs have ended (membarrier: {error}), so that memory \
                 could not be used again; one started with nohz_full does not say it"
            ),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (error, kernel) = (&self.error, rustix::system::uname());
        let kernel = kernel.release().to_string_lossy();
        if !self.verifier.is_empty() {
            return write!(f, "the verifier of Linux {kernel} refuses the program ({error}); '-v' shows why");
        }
        match (Errno::from_io_error(error), self.mode.is_tc()) {
            (Some(Errno::BUSY | Errno::EXIST), false) => f.write_str(
                "another XDP program is at the interface: end the program that put it there, as another \
                 'artery adopt', or remove it by 'ip link set DEV xdp off'",
            ),
            (Some(Errno::PERM), _) => write!(
                f,
                "Linux {kernel} does not let this process load BPF programs ({error}); CAP_BPF and \
                 CAP_NET_ADMIN are needed: run as root"
            ),
            (Some(Errno::OPNOTSUPP), false) => {
                f.write_str("the driver does not run XDP programs; '--path tc' needs no driver's help")
            }
            (Some(Errno::INVAL | Errno::RANGE | Errno::MSGSIZE), false) => write!(
                f,
                "the driver does not take an XDP program ({error}): the MTU may be too large, or queues too \
                 few ('dmesg' may say which); '--path tc' needs no driver's help"
            ),
            (Some(Errno::NOSYS), _) => {
                write!(f, "Linux {kernel} has no BPF for this process ({error}): a sandbox may keep it away")
            }
            (_, false) => write!(f, "Linux {kernel} does not attach the program for XDP: {error}"),
            (_, true) => write!(f, "Linux {kernel} does not attach the program by tc: {error}"),
        }
    }
}

impl std::error::Error for Error {}

impl From<NoMemory> for Error {
    fn from(error: NoMemory) -> Error {
        Error::Memory(error)
    }
}

impl From<FibError> for Error {
    fn from(error: FibError) -> Error {
        Error::Fib(error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_come_back_is_told_from_what_never_will() {
        let of = |errno: Errno| Error::Fib(FibError::Memory(errno.into())).is_shortage();
        assert_eq!([Errno::MFILE, Errno::NOMEM, Errno::NOBUFS, Errno::TOOBIG].map(of), [true; 4]);
        assert_eq!([Errno::PERM, Errno::INVAL, Errno::NOSYS].map(of), [false; 3]);
        assert!(!Error::Fib(FibError::TooMany).is_shortage());
        let refused = |verifier: &[String]| {
            let error = Errno::NOMEM.into();
            Error::Refused(Box::new(Refusal { link: 1, mode: Mode::Tc, error, verifier: verifier.to_vec() }))
        };
        assert!(refused(&[]).is_shortage() && !refused(&["R1 is bad".to_owned()]).is_shortage());
    }
}
