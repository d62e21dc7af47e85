//! The first root file system of a machine: busybox, the modules that the host's files are
//! reached by, a script.

use super::cpio::Cpio;
use super::fetch::Unpacked;
use super::tool;
use anyhow::{Context as _, bail};
use std::collections::BTreeSet;
use std::path::Path;

/// What the host's files are reached by. Newer kernels have some of it built in.
const MODULES: [&str; 4] = ["virtio_pci", "9p", "9pnet_virtio", "overlay"];
const FOLDERS: [&str; 9] = ["bin", "dev", "proc", "sys", "modules", "lower", "upper", "root", "tmp"];

/// The archive for a kernel.
pub(super) fn archive(kernel: &Unpacked) -> anyhow::Result<Vec<u8>> {
    let mut archive = Cpio::default();
    FOLDERS.iter().for_each(|folder| archive.directory(folder));
    archive.program("bin/busybox", &busybox()?);
    archive.program("init", include_bytes!("guest/init.sh"));
    let mut order = String::new();
    let mut seen = BTreeSet::new();
    for module in MODULES {
        for file in kernel.files_of(module)? {
            if seen.insert(file.clone()) {
                let (name, content) = module_in(&file)?;
                archive.program(&format!("modules/{name}"), &content);
                order += &format!("{name}\n");
            }
        }
    }
    archive.program("modules/order", order.as_bytes());
    Ok(archive.finish())
}

/// It must stand alone: there are no libraries in this root.
fn busybox() -> anyhow::Result<Vec<u8>> {
    let path = tool::find("busybox")?;
    let content = std::fs::read(&path).context("cannot read busybox")?;
    if names_loader(&content) {
        bail!("{} needs libraries: install busybox-static", path.display());
    }
    Ok(content)
}

/// Whether a program of 64 bits asks for a loader of shared libraries (ELF, program header PT_INTERP).
fn names_loader(program: &[u8]) -> bool {
    let number = |at: usize, bytes: usize| -> usize {
        let field = program.get(at..at.saturating_add(bytes)).unwrap_or_default();
        field.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte))
    };
    let (start, size, count) = (number(32, 8), number(54, 2), number(56, 2));
    (0..count).any(|header| number(start.saturating_add(header * size), 4) == 3)
}

/// A module's name and content; busybox can't load compressed ones.
fn module_in(file: &Path) -> anyhow::Result<(String, Vec<u8>)> {
    let name = file.file_name().and_then(|name| name.to_str()).context("a module without a name")?;
    let unpacked = |tool_name: &str, ending: &str| -> anyhow::Result<(String, Vec<u8>)> {
        let mut command = std::process::Command::new(tool::find(tool_name)?);
        let done = command.arg("-dc").arg(file).output()?;
        anyhow::ensure!(done.status.success(), "{tool_name} cannot unpack {}", file.display());
        Ok((name.trim_end_matches(ending).to_owned(), done.stdout))
    };
    match file.extension().and_then(|extension| extension.to_str()) {
        Some("xz") => unpacked("xz", ".xz"),
        Some("zst") => unpacked("zstd", ".zst"),
        _ => Ok((name.to_owned(), std::fs::read(file)?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_needs_libraries_is_known_by_its_headers() {
        let mut program = vec![0; 64 + 2 * 56];
        program[32] = 64;
        program[54] = 56;
        program[56] = 2;
        assert!(!names_loader(&program));
        program[64 + 56] = 3;
        assert!(names_loader(&program));
        assert!(!names_loader(&[]));
        program[32..40].fill(0xff);
        assert!(!names_loader(&program));
    }
}
