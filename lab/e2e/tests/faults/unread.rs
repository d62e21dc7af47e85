//! Standard error that is not read, as that of a terminal which Ctrl-S has stopped: messages wait for no
//! reader, and neither do packets and the end.

use super::bed::{Bed, Product, on_the_bed};
use crate::support::{SOON, meanwhile, until};
use artery_rig::{Process, Result, Signal, Traffic};
use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read as _, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::time::Duration;

#[test]
fn a_router_whose_messages_are_not_read_forwards_and_ends_when_told() {
    on_the_bed("unread", Product::Router, unread);
}

#[test]
fn a_switch_whose_messages_are_not_read_forwards_and_ends_when_told() {
    on_the_bed("unread", Product::Switch, unread);
}

#[test]
fn adopted_ports_whose_messages_are_not_read_forward_and_are_left_when_told() {
    on_the_bed("unread", Product::Adopt, unread);
}

fn unread(bed: &Bed) -> Result<()> {
    let path = bed.path("stderr");
    let mut pipe = open_pipe(bed, &path)?;
    let script = format!("exec \"$@\" 2> {}", path.display());
    let words = [vec!["sh".into(), "-c".into(), script, "sh".into()], bed.words()?].concat();
    let mut process = bed.r.command(words).spawn()?;
    until(SOON, || Ok(bed.ask(&["handler", "version"])?.run().is_ok()))?;
    until(SOON, || Ok(bed.a.ping(bed.far(), 1)?.received == 1))?;
    drain(&mut pipe);
    fill(&mut pipe);

    let traffic = Traffic::between(&bed.a, &bed.b, bed.far()).frames(1000).rate(500);
    let (report, ()) = meanwhile(traffic, |is_running| {
        while is_running() {
            make_messages(bed, &mut process)?;
        }
        Ok(())
    })?;
    assert_eq!((report.received, report.duplicated), (report.sent, 0), "{:?}: {report}", bed.product);

    // It can be read again, and then no longer.
    let mut said = drain(&mut pipe);
    until(SOON, || {
        make_messages(bed, &mut process)?;
        said += &drain(&mut pipe);
        Ok(said.contains("messages before this one were dropped: standard error was not read"))
    })?;
    fill(&mut pipe);
    make_messages(bed, &mut process)?;
    process.stop(Duration::from_secs(2)).map(drop)
}

/// Makes it say something: of a port whose link goes down and up, or that it reads the kernel's tables again.
fn make_messages(bed: &Bed, process: &mut Process) -> Result<()> {
    if bed.product == Product::Adopt {
        process.signal(Signal::HUP);
    }
    let toggles = "link set eth2 down\nlink set eth2 up\n".repeat(5);
    bed.r.command(["ip", "-batch", "-"]).input(toggles).limit(SOON).run().map(drop)
}

fn open_pipe(bed: &Bed, path: &Path) -> Result<File> {
    bed.r.command(["mkfifo", &path.display().to_string()]).run()?;
    let nonblocking = rustix::fs::OFlags::NONBLOCK.bits() as i32;
    Ok(OpenOptions::new().read(true).write(true).custom_flags(nonblocking).open(path).expect("a pipe"))
}

fn fill(pipe: &mut File) {
    for size in [4096, 1] {
        while pipe.write(&vec![b'\n'; size]).is_ok() {}
    }
}

fn drain(pipe: &mut File) -> String {
    let mut said = Vec::new();
    match pipe.read_to_end(&mut said) {
        Err(error) if error.kind() == ErrorKind::WouldBlock => {}
        other => panic!("the pipe is open for writing: {other:?}"),
    }
    String::from_utf8_lossy(&said).into_owned()
}
