//! Disks that are full, and a /run that can only be read. Logs of packets on a full disk are tested in
//! `programs/artery/tests/files.rs`, captures and prints in `failing.rs` there.

use super::bed::{ALL, Bed, Product, on_the_bed};
use crate::support::{SOON, end};
use artery_rig::{Command, Traffic};

/// Has a command run where `mounts` was done before.
fn where_mounted(bed: &Bed, mounts: &str, words: &[String]) -> Command {
    let script = format!("{mounts} && exec \"$@\"");
    bed.r.command(["unshare", "-m", "sh", "-c", &script, "sh"]).args(words)
}

#[test]
fn without_a_run_that_can_be_written_a_router_says_what_to_do_and_one_with_its_own_socket_forwards() {
    const MOUNT: &str = "mount -t tmpfs -o ro none /run";
    for product in ALL {
        on_the_bed("disks-run", product, |bed| {
            let words = bed.words()?;
            let before = bed.settled_state()?;
            let without: Vec<String> = words[..words.len() - 2].to_vec();
            if product != Product::Adopt {
                let mut refused = where_mounted(bed, MOUNT, &without).spawn()?;
                let output = refused.wait(SOON)?;
                let expected = "can't listen on /run/artery.sock: Read-only file system; name another socket";
                assert!(output.code() == Some(1) && output.stderr.contains(expected), "{output:?}");
                let links = |state: &str| state.lines().filter(|line| line.contains("eth1")).count();
                assert_eq!(links(&bed.host_state()?), links(&before), "nothing was begun");
            }
            let mut process = where_mounted(bed, MOUNT, &words).spawn()?;
            bed.until_forwarded(&mut process)?;
            bed.assert_whole()?;
            end(process).map(drop)
        });
    }
}

#[test]
fn a_state_dump_that_finds_no_room_is_refused_and_the_last_one_stays() {
    on_the_bed("disks-states", Product::Router, |bed| {
        let process = bed.start()?;
        Traffic::between(&bed.a, &bed.b, bed.far()).frames(300).rate(1000).flows(300).run()?;
        let (disk, dump) = (bed.path("disk"), bed.path("disk/states"));
        std::fs::create_dir(&disk).expect("a folder");
        let (disk, dump) = (disk.display(), dump.display());
        let socket = bed.path("control").display().to_string();
        let artery = bed.words()?.remove(0);
        // A disk of one page, on which another dump is already.
        let script = format!(
            "mount -t tmpfs -o size=4k none {disk} && echo before > {dump}
            {artery} pfctl -u {socket} -S {dump}; echo status $?; cat {dump}; ls -A {disk}"
        );
        let output = bed.r.command(["unshare", "-m", "sh", "-c", &script]).output()?;
        assert_eq!(output.stdout, "status 1\nbefore\nstates\n", "{output:?}");
        assert!(output.stderr.contains("No space left on device"), "{output:?}");
        bed.assert_whole()?;
        end(process).map(drop)
    });
}

#[test]
fn a_capture_that_finds_no_room_ends_and_adopted_ports_forward_on() {
    on_the_bed("disks-capture", Product::Adopt, |bed| {
        let process = bed.start()?;
        let disk = bed.path("disk");
        std::fs::create_dir(&disk).expect("a folder");
        let disk = disk.display();
        let socket = bed.path("control").display().to_string();
        let artery = bed.words()?.remove(0);
        let script = format!(
            "mount -t tmpfs -o size=8k none {disk}
            exec {artery} capture -u {socket} -w {disk}/frames --timeout 20"
        );
        let mut capture = bed.r.spawn(["unshare", "-m", "sh", "-c", &script])?;
        while capture.is_running() {
            bed.a.ping_with(bed.far(), 20, &["-i", "0.01", "-s", "1000"])?;
        }
        let output = capture.wait(SOON)?;
        assert_eq!(output.code(), Some(1), "{output:?}");
        assert!(output.stderr.contains("No space left on device"), "{output:?}");
        bed.assert_whole()?;
        end(process).map(drop)
    });
}
