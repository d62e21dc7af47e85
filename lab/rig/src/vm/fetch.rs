//! Gets kernels from the machine's own package sources and unpacks them; nothing is installed.

use super::apt::Apt;
use super::cache;
use super::kernel::{Kernel, Package, compare_releases};
use super::tool;
use crate::console::progress;
use anyhow::{Context as _, bail};
use std::fs;
use std::path::{Path, PathBuf};

/// A kernel that lies unpacked in the cache.
#[derive(Clone, Debug)]
pub(super) struct Unpacked {
    /// What `uname -r` says when it runs.
    pub(super) release: String,
    folder: PathBuf,
}

impl Unpacked {
    /// The image that QEMU starts.
    pub(super) fn image(&self) -> anyhow::Result<PathBuf> {
        let Unpacked { release, folder } = self;
        let places = [format!("boot/vmlinuz-{release}"), format!("lib/modules/{release}/vmlinuz")];
        let found = places.iter().map(|place| folder.join(place)).find(|path| path.is_file());
        found.with_context(|| format!("{} has no vmlinuz: remove it and try again", folder.display()))
    }

    /// The folder with its modules.
    pub(super) fn modules(&self) -> PathBuf {
        self.folder.join("lib/modules").join(&self.release)
    }

    /// The files of a module and of those it needs, in the order in which they are loaded.
    pub(super) fn files_of(&self, module: &str) -> anyhow::Result<Vec<PathBuf>> {
        let folder = self.folder.as_os_str();
        let words = ["-d".as_ref(), folder, "-S".as_ref(), self.release.as_ref(), "--show-depends".as_ref()];
        let printed = tool::output("modprobe", words.into_iter().chain([module.as_ref()]))?;
        let files = printed.lines().filter_map(|line| line.strip_prefix("insmod "));
        Ok(files.map(|path| PathBuf::from(path.trim())).collect())
    }
}

/// The kernel, from the cache if it is there, of whatever age.
pub(super) fn cached_or_fetched(kernel: &Kernel) -> anyhow::Result<Unpacked> {
    match cached(kernel)? {
        Some(unpacked) => Ok(unpacked),
        None => newest(kernel),
    }
}

/// The newest that can be had: what is in the cache is used where it is as new, or where nothing
/// else can be had.
pub(super) fn newest(kernel: &Kernel) -> anyhow::Result<Unpacked> {
    let cached = cached(kernel)?;
    match fetch(kernel, cached.as_ref()) {
        Ok(unpacked) => Ok(unpacked),
        Err(error) => match cached {
            Some(unpacked) => {
                progress(&format!("vm: {kernel}: using {} of earlier: {error:#}", unpacked.release));
                Ok(unpacked)
            }
            None => Err(error),
        },
    }
}

fn cached(kernel: &Kernel) -> anyhow::Result<Option<Unpacked>> {
    let folder = cache::folder()?.join(kernel.to_string());
    let Ok(entries) = fs::read_dir(folder) else { return Ok(None) };
    let folders = entries.flatten().map(|entry| entry.path()).filter(|path| path.join(READY).is_file());
    let unpacked = folders.filter_map(|folder| {
        let release = folder.file_name()?.to_str()?.to_owned();
        Some(Unpacked { release, folder })
    });
    Ok(unpacked.max_by(|a, b| compare_releases(&a.release, &b.release)))
}

/// The file that says that a folder is complete.
const READY: &str = "ready";

fn fetch(kernel: &Kernel, cached: Option<&Unpacked>) -> anyhow::Result<Unpacked> {
    let (apt, package) = find(kernel)?;
    if let Some(unpacked) = cached.filter(|unpacked| unpacked.release == package.release) {
        return Ok(unpacked.clone());
    }
    progress(&format!("vm: fetching {}", package.name));
    let home = cache::folder()?.join(kernel.to_string());
    fs::create_dir_all(&home)?;
    let work = tempfile::Builder::new().prefix(".unpacking-").tempdir_in(&home)?;
    unpack(&apt, &package, work.path())?;
    let folder = home.join(&package.release);
    let _ = fs::remove_dir_all(&folder);
    fs::rename(work.path(), &folder).with_context(|| format!("cannot make {}", folder.display()))?;
    Ok(Unpacked { release: package.release, folder })
}

/// Looks for it where it may be; the error says where that was.
fn find(kernel: &Kernel) -> anyhow::Result<(Apt, Package)> {
    let mut reasons = vec![];
    let own = kernel.is_in_own_suite().then_some(None);
    for suite in own.into_iter().chain(kernel.suites().iter().map(|suite| Some(*suite))) {
        let found = Apt::open(suite).and_then(|apt| {
            let listing = apt.kernels()?;
            let package = kernel.newest(&listing).context("it has no such kernel")?;
            Ok((apt, package))
        });
        match found {
            Ok(found) => return Ok(found),
            Err(error) => reasons.push(format!("{}: {error:#}", suite.unwrap_or("this machine's suite"))),
        }
    }
    bail!("no kernel {kernel} from the package sources of this machine ({})", reasons.join("; "))
}

fn unpack(apt: &Apt, package: &Package, folder: &Path) -> anyhow::Result<()> {
    for file in apt.download(package, folder)? {
        tool::output("dpkg", ["-x".as_ref(), file.as_os_str(), folder.as_os_str()])?;
        fs::remove_file(file)?;
    }
    // Newer packages keep modules below usr only, where older tools don't look.
    if !folder.join("lib").exists() {
        std::os::unix::fs::symlink("usr/lib", folder.join("lib"))?;
    }
    tool::output("depmod", ["-b".as_ref(), folder.as_os_str(), package.release.as_ref()])?;
    fs::write(folder.join(READY), "")?;
    Ok(())
}
