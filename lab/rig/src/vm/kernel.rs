//! Which kernel: what people type, and the package that answers it best.

use anyhow::bail;
use std::cmp::Ordering;
use std::fmt;
use std::str::FromStr;

/// A kernel as people ask for it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Kernel {
    /// The newest package of a series, such as 6.1.
    Series(u32, u32),
    /// The newest package of Debian's unstable distribution.
    Unstable,
}

/// A package with a kernel in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Package {
    /// The package's name, as apt knows it.
    pub name: String,
    /// What `uname -r` says when it runs.
    pub release: String,
}

impl Kernel {
    /// The kernels of the matrix.
    pub const MATRIX: [Kernel; 4] =
        [Kernel::Series(5, 10), Kernel::Series(6, 1), Kernel::Series(6, 12), Kernel::Unstable];

    /// Debian's distributions that have it, beside the one that the machine itself is.
    pub fn suites(&self) -> &'static [&'static str] {
        match self {
            Kernel::Series(5, 10) => &["bullseye"],
            Kernel::Series(6, 1) => &["bookworm"],
            Kernel::Series(6, 12) => &["trixie"],
            Kernel::Series(..) => &[],
            Kernel::Unstable => &["unstable"],
        }
    }

    /// Whether the machine's own package sources, as they are, may have it.
    pub fn is_in_own_suite(&self) -> bool {
        *self != Kernel::Unstable
    }

    /// Picks the newest of the packages that `apt-cache search` prints. Kernels for real time, for clouds,
    /// without a signature where there is a signed one, and with debug symbols are left out.
    pub fn newest(&self, listing: &str) -> Option<Package> {
        let names = listing.lines().filter_map(|line| line.split(' ').next());
        let fitting = names.filter_map(parse_package).filter(|package| self.admits(&package.release));
        fitting.max_by(|a, b| compare_releases(&a.release, &b.release).then(is_signed(a).cmp(&is_signed(b))))
    }

    fn admits(&self, release: &str) -> bool {
        match self {
            Kernel::Unstable => true,
            Kernel::Series(major, minor) => {
                let mut numbers = release.split(|c: char| !c.is_ascii_digit());
                let mut is_next = |wanted: &u32| numbers.next().is_some_and(|n| n == wanted.to_string());
                is_next(major) && is_next(minor)
            }
        }
    }
}

const PREFIX: &str = "linux-image-";
const UNSIGNED: &str = "-unsigned";

/// Reads `linux-image-6.1.0-56-amd64` or `linux-image-6.12.117+deb12-amd64-unsigned`.
fn parse_package(name: &str) -> Option<Package> {
    let release = name.strip_prefix(PREFIX)?;
    let release = release.strip_suffix(UNSIGNED).unwrap_or(release);
    let version = release.strip_suffix("-amd64")?;
    let is_full = version.split('.').count() >= 3;
    let is_plain = version.starts_with(|c: char| c.is_ascii_digit())
        && !["-cloud", "-rt", "-signed"].iter().any(|flavor| version.contains(flavor));
    (is_full && is_plain).then(|| Package { name: name.into(), release: release.into() })
}

fn is_signed(package: &Package) -> bool {
    !package.name.ends_with(UNSIGNED)
}

/// Compares the numbers in two releases, one after the other.
pub(super) fn compare_releases(a: &str, b: &str) -> Ordering {
    let numbers = |text: &str| -> Vec<u64> {
        text.split(|c: char| !c.is_ascii_digit()).filter_map(|part| part.parse().ok()).collect()
    };
    numbers(a).cmp(&numbers(b))
}

impl FromStr for Kernel {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Kernel> {
        if text == "unstable" {
            return Ok(Kernel::Unstable);
        }
        let numbers = text.split_once('.').and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        match numbers {
            Some((major, minor)) => Ok(Kernel::Series(major, minor)),
            None => bail!("{text:?} is not a kernel: write a series such as 6.1, or unstable"),
        }
    }
}

impl fmt::Display for Kernel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Kernel::Series(major, minor) => write!(f, "{major}.{minor}"),
            Kernel::Unstable => f.write_str("unstable"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LISTING: &str = "\
linux-image-6.1.0-9-amd64 - Linux 6.1 for 64-bit PCs (signed)
linux-image-6.1.0-56-amd64-unsigned - Linux 6.1 for 64-bit PCs
linux-image-6.1.0-56-amd64 - Linux 6.1 for 64-bit PCs (signed)
linux-image-6.1.0-57-cloud-amd64 - Linux 6.1 for x86-64 cloud (signed)
linux-image-6.1.0-57-rt-amd64 - Linux 6.1 for 64-bit PCs, PREEMPT_RT (signed)
linux-image-6.1.0-57-amd64-dbg - Debug symbols for linux-image-6.1.0-57-amd64
linux-image-6.12-amd64 - Linux for 64-bit PCs (meta-package)
linux-image-6.12-amd64-signed-template - Template for signed linux-image packages for amd64
linux-image-6.12.107+deb12-amd64 - Linux 6.12 for 64-bit PCs (signed)
linux-image-6.12.117+deb12-amd64-unsigned - Linux 6.12 for 64-bit PCs
linux-image-amd64 - Linux for 64-bit PCs (meta-package)
";

    fn newest(kernel: &str) -> Option<String> {
        kernel.parse::<Kernel>().unwrap().newest(LISTING).map(|package| package.name)
    }

    #[test]
    fn the_newest_signed_package_of_a_series_is_chosen() {
        assert_eq!(newest("6.1").as_deref(), Some("linux-image-6.1.0-56-amd64"));
        assert_eq!(newest("6.12").as_deref(), Some("linux-image-6.12.117+deb12-amd64-unsigned"));
        assert_eq!(newest("unstable").as_deref(), Some("linux-image-6.12.117+deb12-amd64-unsigned"));
    }

    #[test]
    fn a_series_that_is_not_there_is_not_replaced_by_another() {
        assert_eq!(newest("5.10"), None);
        assert_eq!(newest("6.11"), None);
    }

    #[test]
    fn the_release_has_no_word_of_the_signature() {
        let found = Kernel::Series(6, 12).newest(LISTING).unwrap();
        assert_eq!(found.release, "6.12.117+deb12-amd64");
    }

    #[test]
    fn kernels_are_printed_as_they_are_typed() {
        for text in ["5.10", "6.1", "6.12", "unstable"] {
            assert_eq!(text.parse::<Kernel>().unwrap().to_string(), text);
        }
        for bad in ["", "6", "six.one", "6.1.0", "stable"] {
            assert!(bad.parse::<Kernel>().is_err(), "{bad:?}");
        }
    }
}
