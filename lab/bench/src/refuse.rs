//! Runs a program whose calls of bpf(2) the kernel refuses, as sandboxes of containers do.

use anyhow::{Context as _, anyhow};
use clap::Args;
use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The name of the subcommand.
pub const SUBCOMMAND: &str = "refuse-bpf";

/// What bpf(2) answers, and to whom.
#[derive(Args)]
pub struct Refused {
    /// The error: `EPERM` or `ENOSYS`
    error: String,
    /// The program and its arguments
    #[arg(trailing_var_arg = true, required = true, allow_hyphen_values = true)]
    command: Vec<String>,
}

/// Becomes the program; returns only if that fails.
pub fn run(refused: &Refused) -> anyhow::Result<()> {
    let number = match refused.error.as_str() {
        "EPERM" => libc::EPERM,
        "ENOSYS" => libc::ENOSYS,
        other => return Err(anyhow!("{other}: bpf(2) answers EPERM or ENOSYS")),
    };
    let filter = SeccompFilter::new(
        [(libc::SYS_bpf, Vec::new())].into(),
        SeccompAction::Allow,
        SeccompAction::Errno(number as u32),
        std::env::consts::ARCH.try_into().context("seccomp filters do not support this processor")?,
    )?;
    apply_filter(&BpfProgram::try_from(filter)?)?;
    let (program, arguments) = refused.command.split_first().context("which program?")?;
    Err(Command::new(program).args(arguments).exec()).context(program.clone())
}
