use super::channel::Channel;
use super::message::{DoneResult, FileAnswer, FileMode, FileRefusal, Request};
use super::server::Server;
use super::{Buffer, HelperLimits};
use crate::namespace::{in_namespace, run};
use crate::{DeviceError, HostPortState, TapSettings};
use rustix::fd::{AsFd, OwnedFd};
use serde::de::DeserializeOwned;
use std::fs::File;
use std::io::{self, Write as _};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::thread::JoinHandle;

/// A helper on a thread, and the router's end of its connection.
struct Served {
    channel: Option<Channel>,
    thread: Option<JoinHandle<io::Result<()>>>,
}

impl Served {
    fn start(limits: HelperLimits) -> Served {
        let (channel, theirs) = Channel::pair().unwrap();
        let thread = std::thread::spawn(move || Server::new(limits).serve(&Channel::new(theirs)));
        Served { channel: Some(channel), thread: Some(thread) }
    }

    fn exchange<T: DeserializeOwned>(&self, request: &Request) -> (T, Option<OwnedFd>) {
        self.channel.as_ref().unwrap().exchange(request, None).unwrap()
    }

    fn open(&self, path: &Path, mode: FileMode) -> Result<File, FileRefusal> {
        let request = Request::OpenFile { path: path.to_owned(), mode };
        let (answer, file) = self.exchange::<Result<FileAnswer, FileRefusal>>(&request);
        answer.map(|_| File::from(file.unwrap()))
    }

    fn change(&self, request: &Request) -> Result<(), FileRefusal> {
        self.exchange(request).0
    }

    fn lock(&self) {
        assert_eq!(self.exchange::<DoneResult>(&Request::Lock).0, Ok(()));
    }

    /// How the helper ends when its router does.
    fn end(mut self) -> io::Result<()> {
        self.channel = None;
        self.thread.take().unwrap().join().unwrap()
    }
}

#[test]
fn only_files_that_were_named_are_opened_once_a_helper_is_locked() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    ["named", "learned", "other"].iter().for_each(|name| std::fs::write(path(name), name).unwrap());
    let helper =
        Served::start(HelperLimits { files: vec![(path("named"), false)], ..HelperLimits::default() });
    let mut written = helper.open(&path("log"), FileMode::CreatePrivate).unwrap();
    written.write_all(b"line").unwrap();
    let text = io::read_to_string(helper.open(&path("learned"), FileMode::Read).unwrap()).unwrap();
    assert_eq!(text, "learned");
    helper.lock();
    for name in ["named", "learned", "log"] {
        assert!(helper.open(&path(name), FileMode::Read).is_ok(), "{name}");
    }
    assert!(helper.open(&path("log"), FileMode::AppendPrivate).is_ok());
    for (name, mode) in [
        ("other", FileMode::Read),
        ("named", FileMode::Append),
        ("learned", FileMode::Create),
        ("new", FileMode::Create),
    ] {
        assert_eq!(helper.open(&path(name), mode).unwrap_err(), FileRefusal::Outside, "{name}");
    }
    assert_eq!(std::fs::read_to_string(path("learned")).unwrap(), "learned");
    std::fs::create_dir(path("x")).unwrap();
    let up = folder.path().join("x/../other");
    assert_eq!(helper.open(&up, FileMode::Read).unwrap_err(), FileRefusal::Outside);
    assert_eq!(helper.open(Path::new("named"), FileMode::Read).unwrap_err(), FileRefusal::Outside);
    helper.end().unwrap();
}

#[test]
fn a_path_that_goes_up_is_named_as_it_is_written() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("x")).unwrap();
    std::fs::write(folder.path().join("file"), "text").unwrap();
    let up = folder.path().join("x/../file");
    let helper =
        Served::start(HelperLimits { folders: vec![folder.path().join("x")], ..HelperLimits::default() });
    assert!(helper.open(&up, FileMode::Read).is_ok());
    helper.lock();
    assert!(helper.open(&up, FileMode::Read).is_ok());
    let other = folder.path().join("x/../x/../file");
    assert_eq!(helper.open(&other, FileMode::Read).unwrap_err(), FileRefusal::Outside);
    helper.end().unwrap();
}

#[test]
fn a_named_pipe_without_another_end_holds_nobody_up() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    let made = std::process::Command::new("mkfifo").arg(&pipe).status().unwrap();
    assert!(made.success());
    let helper = Served::start(HelperLimits::default());
    let request = Request::OpenFile { path: pipe.clone(), mode: FileMode::Read };
    let (answer, connection) = helper.exchange::<Result<FileAnswer, FileRefusal>>(&request);
    assert_eq!(answer, Ok(FileAnswer::Later));
    helper.lock();
    std::fs::write(&pipe, "text").unwrap();
    let later = Channel::new(connection.unwrap()).receive::<Result<FileAnswer, FileRefusal>>().unwrap();
    let (answer, file) = later.unwrap();
    assert_eq!(answer, Ok(FileAnswer::Opened));
    assert_eq!(io::read_to_string(File::from(file.unwrap())).unwrap(), "text");
    helper.end().unwrap();
}

#[test]
fn a_folder_that_is_allowed_holds_files_and_no_links_that_lead_out() {
    let (folder, outside) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let path = |name: &str| folder.path().join(name);
    std::fs::write(outside.path().join("secret"), "x").unwrap();
    std::fs::create_dir(path("sub")).unwrap();
    symlink(outside.path().join("secret"), path("link")).unwrap();
    symlink(outside.path(), path("folder")).unwrap();
    let helper =
        Served::start(HelperLimits { folders: vec![folder.path().to_owned()], ..HelperLimits::default() });
    helper.lock();
    helper.open(&path("sub/new"), FileMode::Create).unwrap().write_all(b"text").unwrap();
    let written = helper.open(&path("sub/new"), FileMode::Read).unwrap();
    assert_eq!(std::io::read_to_string(written).unwrap(), "text");
    for link in ["link", "folder/secret"] {
        let refused = helper.open(&path(link), FileMode::Read).unwrap_err();
        assert_eq!(refused, FileRefusal::System(libc::EACCES), "{link}");
    }
    assert_eq!(helper.open(folder.path(), FileMode::Read).unwrap_err(), FileRefusal::Outside);
    helper.end().unwrap();
}

#[test]
fn files_are_renamed_and_removed_only_where_that_was_agreed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    ["read", "written", "socket"].iter().for_each(|name| std::fs::write(path(name), name).unwrap());
    let files = vec![(path("read"), false), (path("written"), true)];
    let helper =
        Served::start(HelperLimits { files, removable: vec![path("socket")], ..HelperLimits::default() });
    let rename = |name: &str| helper.change(&Request::RenameToOld { path: path(name) });
    let remove = |name: &str| helper.change(&Request::RemoveFile { path: path(name) });
    assert_eq!((rename("read"), rename("written")), (Err(FileRefusal::Outside), Ok(())));
    assert_eq!((remove("read"), remove("socket")), (Err(FileRefusal::Outside), Ok(())));
    let mut left: Vec<PathBuf> =
        std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    left.sort();
    assert_eq!(left, [path("read"), path("written.old")]);
    helper.end().unwrap();
}

#[test]
fn names_that_begin_so_are_read_in_a_folder_that_is_listed() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name);
    ["hostname.em0", "shadow"].iter().for_each(|name| std::fs::write(path(name), name).unwrap());
    let patterns = vec![(folder.path().to_owned(), "hostname.".to_owned())];
    let helper = Served::start(HelperLimits { patterns, ..HelperLimits::default() });
    helper.lock();
    assert!(helper.open(&path("hostname.em0"), FileMode::Read).is_ok());
    assert_eq!(helper.open(&path("hostname.em0"), FileMode::Append).unwrap_err(), FileRefusal::Outside);
    assert_eq!(helper.open(&path("shadow"), FileMode::Read).unwrap_err(), FileRefusal::Outside);
    helper.end().unwrap();
}

#[test]
fn what_is_no_request_ends_the_helper_without_a_panic() {
    for nonsense in ["null", "{\"Lock\":1}", "\"Unknown\"", "{\"BringUp\":{\"name\":\"x\",\"more\":1}}"] {
        let helper = Served::start(HelperLimits::default());
        let value: serde_json::Value = serde_json::from_str(nonsense).unwrap();
        helper.channel.as_ref().unwrap().send(&value, None).unwrap();
        assert!(helper.end().is_err(), "{nonsense}");
    }
}

#[test]
fn a_helper_changes_ports_and_its_own_devices_and_no_others() {
    in_namespace(|| {
        run("ip link add port type veth peer name other");
        let helper = Served::start(HelperLimits::default());
        let bring_up =
            |name: &str| helper.exchange::<DoneResult>(&Request::BringUp { name: name.to_owned() }).0;
        assert_eq!(bring_up("port"), Ok(()));
        helper.lock();
        assert_eq!(bring_up("port"), Ok(()));
        assert!(matches!(bring_up("other"), Err(DeviceError::BeyondHelper { .. })), "it is not a port");
        run("ip link del port");
        run("ip link add port type veth peer name other");
        assert_eq!(bring_up("port"), Ok(()), "a port that is made again is one");
        let index = crate::Interface::find("other").unwrap().index;
        let request = Request::SetLinkLocal { index, addresses: Vec::new() };
        assert!(matches!(helper.exchange::<DoneResult>(&request).0, Err(DeviceError::BeyondHelper { .. })));
        run("ip tuntap add foreign mode tap");
        for name in ["foreign", "new"] {
            let settings = TapSettings::new(name);
            let request = Request::TapQueue { name: name.to_owned(), settings };
            let (made, queue) = helper.exchange::<Result<String, DeviceError>>(&request);
            assert!(matches!(made, Err(DeviceError::BeyondHelper { .. })) && queue.is_none(), "{name}");
        }
        let request = Request::PacketSocket { name: "port".to_owned(), buffer: Buffer::Receive(16 << 20) };
        let (made, socket) = helper.exchange::<DoneResult>(&request);
        assert_eq!(made, Ok(()));
        assert!(socket.unwrap().as_fd().try_clone_to_owned().is_ok());
        helper.end().unwrap();
    });
}

#[test]
fn a_helper_keeps_its_own_devices_like_ports_and_no_other_interfaces() {
    in_namespace(|| {
        run("ip link add port type veth peer name other");
        let helper = Served::start(HelperLimits::default());
        let settings = TapSettings { is_host_port: true, ..TapSettings::new("hp-port") };
        let request = Request::TapQueue { name: settings.name.clone(), settings };
        let (made, queue) = helper.exchange::<Result<String, DeviceError>>(&request);
        assert_eq!((made.as_deref(), queue.is_some()), (Ok("hp-port"), true));
        helper.lock();
        let find = |name: &str| crate::Interface::find(name).unwrap();
        let keep = |name: &str, addresses: &[(&str, u8)]| {
            let addresses = addresses.iter().map(|(address, len)| (address.parse().unwrap(), *len)).collect();
            let state = HostPortState { mac: [2, 0, 0, 0, 0, 7], mtu: 1400, has_carrier: true, addresses };
            helper.exchange::<Result<(), i32>>(&Request::KeepHostPort { index: find(name).index, state }).0
        };
        assert_eq!(keep("hp-port", &[("10.0.1.1", 24)]), Ok(()));
        assert_eq!((find("hp-port").mac, find("hp-port").mtu), (Some([2, 0, 0, 0, 0, 7]), 1400));
        let addresses = || {
            let all = crate::host_addresses().unwrap().into_iter();
            all.map(|one| one.address.to_string()).filter(|one| one.starts_with("10.")).collect::<Vec<_>>()
        };
        assert_eq!(addresses(), ["10.0.1.1"]);
        run("ip address add 10.0.1.9/32 dev hp-port");
        assert_eq!(keep("hp-port", &[("10.0.1.2", 24)]), Ok(()));
        assert_eq!(addresses(), ["10.0.1.9", "10.0.1.2"], "its own address goes, and not another program's");
        for name in ["port", "other", "lo"] {
            let before = find(name);
            assert_eq!(keep(name, &[("10.0.1.3", 24)]), Err(libc::EPERM), "{name}");
            assert_eq!((find(name).mac, find(name).mtu), (before.mac, before.mtu), "{name}");
        }
        assert_eq!(addresses(), ["10.0.1.9", "10.0.1.2"]);
        helper.end().unwrap();
    });
}
