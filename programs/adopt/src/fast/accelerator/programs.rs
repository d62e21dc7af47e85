//! The programs of ports: loading, attaching and replacing them.
use super::super::error::{Error, Refusal};
use super::super::mode::Mode;
use super::super::program::{OtherFibs, ProgramPort, build_program};
use super::vrfs::MAIN;
use super::{Accelerator, AttachedPort};
use crate::fast::layout::MOST_FIBS;
use artery_device::bpf::{self, Attachment, Hook, Instruction, ProgramArray};
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use std::collections::BTreeSet;
use std::io;
use std::thread;

/// Programs of a port that are loaded: the one to attach, and those of other FIBs that it leaves frames to.
struct LoadedPrograms {
    first: OwnedFd,
    others: Option<ProgramArray>,
}

/// Loads a program, and asks the verifier for its reasons if it refuses.
fn load_program(link: u32, mode: Mode, hook: Hook, instructions: &[Instruction]) -> Result<OwnedFd, Error> {
    bpf::load(hook, instructions).map_err(|error| {
        let is_verifier =
            matches!(Errno::from_io_error(&error), Some(Errno::ACCESS | Errno::INVAL | Errno::TOOBIG));
        let log = if is_verifier { bpf::verdict(hook, instructions) } else { String::new() };
        refusal_error(link, mode, error, bpf::last_lines(&log))
    })
}

pub(super) fn refusal_error(link: u32, mode: Mode, error: io::Error, verifier: Vec<String>) -> Error {
    Error::Refused(Box::new(Refusal { link, mode, error, verifier }))
}

impl Accelerator {
    /// Attaches the programs of a port, which look into these FIBs.
    pub(super) fn attach_programs(
        &self,
        link: u32,
        port: u32,
        mode: Mode,
        fibs: &BTreeSet<u32>,
    ) -> Result<(Attachment, Option<ProgramArray>), Error> {
        let LoadedPrograms { first, others } = self.load_programs(link, port, mode, fibs)?;
        let attached = bpf::attach(&first, link, self.hook_of(mode));
        let attached = attached.map_err(|error| refusal_error(link, mode, error, Vec::new()))?;
        Ok((attached, others))
    }

    /// Has the kernel's verifier look at the program for an interface, and attaches nothing.
    pub fn verify_program(&self, link: u32, mode: Mode) -> Result<(), Error> {
        self.load_programs(link, 0, mode, &[MAIN].into()).map(drop)
    }

    /// The program of an interface, for who measures it.
    pub fn program(&self, link: u32) -> Option<Vec<Instruction>> {
        let AttachedPort { port, mode, fibs, others, .. } = self.attached.get(&link)?;
        Some(self.assemble_program(link, *port, *mode, self.first_fib(link, fibs), others.as_ref()))
    }

    fn hook_of(&self, mode: Mode) -> Hook {
        mode.hook(self.memory.takes_buffers)
    }

    /// The FIB of the program that is attached, of those that the programs of an interface look into.
    fn first_fib(&self, link: u32, fibs: &BTreeSet<u32>) -> u32 {
        let own = self.fib_of(link).filter(|fib| fibs.contains(fib));
        own.or_else(|| fibs.first().copied()).unwrap_or(MAIN)
    }

    fn assemble_program(
        &self,
        link: u32,
        number: u32,
        mode: Mode,
        fib: u32,
        others: Option<&ProgramArray>,
    ) -> Vec<Instruction> {
        let port = ProgramPort {
            number,
            capture: self.capture.as_ref(),
            samples: self.samples.as_ref(),
            host_port: mode.host_port(),
            bridge: self.bridges.number_by_member(link),
            others: others.map(|programs| OtherFibs { own: fib, programs }),
        };
        build_program(&self.memory, &self.program_fibs(fib), mode.program_hook(), &port)
    }

    /// Loads a program for each FIB: the attached one leaves frames of other FIBs to the others, each of
    /// which is the program of a port with that FIB alone.
    fn load_programs(
        &self,
        link: u32,
        port: u32,
        mode: Mode,
        fibs: &BTreeSet<u32>,
    ) -> Result<LoadedPrograms, Error> {
        let hook = self.hook_of(mode);
        let load = |fib: u32, others: Option<&ProgramArray>| {
            load_program(link, mode, hook, &self.assemble_program(link, port, mode, fib, others))
        };
        let first = self.first_fib(link, fibs);
        if fibs.len() < 2 {
            return Ok(LoadedPrograms { first: load(first, None)?, others: None });
        }
        let not_made = |error| refusal_error(link, mode, error, Vec::new());
        let others = ProgramArray::new(MOST_FIBS).map_err(not_made)?;
        for fib in fibs.iter().filter(|fib| **fib != first) {
            others.insert_program(*fib, &load(*fib, None)?).map_err(not_made)?;
        }
        Ok(LoadedPrograms { first: load(first, Some(&others))?, others: Some(others) })
    }

    /// Replaces the programs of interfaces. Those of several interfaces are loaded in parallel, as the kernel
    /// verifies each for a tenth of a second.
    pub(super) fn replace_programs(&mut self, links: &[u32]) -> Result<(), Error> {
        let chosen = || self.attached.iter().filter(|(link, _)| links.contains(link));
        let loaded = thread::scope(|scope| {
            let start = |(link, attached): (&u32, &AttachedPort)| {
                let (link, port, mode) = (*link, attached.port, attached.mode);
                let this = &*self;
                scope.spawn(move || Ok((link, this.load_programs(link, port, mode, &this.fibs_of(link))?)))
            };
            let loading: Vec<_> = chosen().map(start).collect();
            let ended = loading.into_iter().map(|thread| thread.join().expect("loading does not panic"));
            ended.collect::<Result<Vec<(u32, LoadedPrograms)>, Error>>()
        })?;
        for (link, programs) in loaded {
            let wanted = self.fibs_of(link);
            let Some(attached) = self.attached.get_mut(&link) else { continue };
            // Until runs of the old program have ended, only what both look into is right.
            attached.fibs.retain(|fib| wanted.contains(fib));
            let not_attached = |error| refusal_error(link, attached.mode, error, Vec::new());
            attached.program.replace(&programs.first).map_err(not_attached)?;
            attached.others = programs.others;
        }
        Ok(())
    }

    pub(super) fn replace_all_programs(&mut self) -> Result<(), Error> {
        let links: Vec<u32> = self.attached.keys().copied().collect();
        self.replace_programs(&links)
    }
}
