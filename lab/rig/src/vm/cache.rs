//! Where unpacked kernels are kept between runs.

use anyhow::{Context as _, bail};
use std::path::PathBuf;

/// The environment variable that names the folder.
pub const VARIABLE: &str = "ARTERY_VM_CACHE";

/// The folder: `$ARTERY_VM_CACHE`, or `vm` in cargo's target folder. It is made where it is missing.
pub(super) fn folder() -> anyhow::Result<PathBuf> {
    let folder = match std::env::var_os(VARIABLE) {
        Some(named) => PathBuf::from(named),
        None => target()?.join("vm"),
    };
    std::fs::create_dir_all(&folder).with_context(|| format!("cannot make {}", folder.display()))?;
    folder.canonicalize().with_context(|| format!("cannot find {}", folder.display()))
}

fn target() -> anyhow::Result<PathBuf> {
    let program = std::env::current_exe()?;
    match program.ancestors().find(|folder| folder.ends_with("target")) {
        Some(folder) => Ok(folder.into()),
        None => bail!("{} is in no target folder: set {VARIABLE} to a folder for kernels", program.display()),
    }
}
