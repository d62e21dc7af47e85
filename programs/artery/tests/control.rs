//! Access by the control sockets of a router, and what hostile clients can't do there.
#[path = "control/sandbox.rs"]
mod sandbox;

use crate::support::{Folder, Outcome, Router, artery};
use rustix::process::Signal;
use std::io::{BufRead as _, BufReader, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// A user without rights, by convention.
const NOBODY: u32 = 65534;
const CONFIG: &str = "Idle -> c :: Counter -> Discard";
const BANNER: &str = "Click::ControlSocket/1.3\r\n";
/// Long enough for any answer, short enough for a test that fails.
const SOON: Duration = Duration::from_secs(20);

/// A TCP port that no process listens on.
fn free_port() -> String {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

/// A router with a TCP port, and the file that its token is in.
fn with_token(folder: &Folder, more: &[&str]) -> (Router, String, String) {
    let (port, file) = (free_port(), folder.path("token"));
    let args = [&["-p", &port, "--token-file", &file, "-e", CONFIG], more].concat();
    (Router::start(&folder.path("s"), &args), port, file)
}

fn connect(port: &str) -> TcpStream {
    let stream = TcpStream::connect(("127.0.0.1", port.parse().unwrap())).unwrap();
    stream.set_read_timeout(Some(SOON)).unwrap();
    stream
}

/// All that a router says on a connection to which `request` is written, until it ends.
fn said(mut stream: impl Read + Write, request: &[u8]) -> String {
    let _ = stream.write_all(request);
    let mut said = Vec::new();
    let mut chunk = [0; 4096];
    loop {
        match stream.read(&mut chunk) {
            Ok(0) => break,
            Ok(count) => said.extend_from_slice(&chunk[..count]),
            // Reads with a time limit are not restarted after a signal, which other tests
            // of this process get.
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            // The router closed it without reading the rest.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("{error} after {:?}", String::from_utf8_lossy(&said)),
        }
    }
    String::from_utf8(said).unwrap()
}

/// Calls a command as a user without rights, who may be in a group.
fn as_nobody(group: u32, args: &[&str]) -> Outcome {
    let mut command = Command::new("setpriv");
    let who = [format!("--reuid={NOBODY}"), format!("--regid={group}"), "--clear-groups".to_string()];
    let output = command.args(who).arg(env!("CARGO_BIN_EXE_artery")).args(args).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Outcome { status: output.status.code().unwrap_or(-1), out: text(output.stdout), err: text(output.stderr) }
}

#[test]
fn a_write_by_tcp_needs_the_token_and_a_read_does_not() {
    let folder = Folder::new();
    let (mut router, port, file) = with_token(&folder, &["-R"]);
    let found = router.complaint();
    assert_eq!(found, format!("artery: TCP port {port}: writing handlers needs the token in {file}"));
    assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
    let token = std::fs::read_to_string(&file).unwrap();
    let refused = "needs 'AUTH TOKEN' first";
    let reply =
        said(connect(&port), b"READ c.name\nWRITE c.reset\nWRITE hotconfig Idle\nREAD c.name\nQUIT\n");
    assert!(reply.starts_with(BANNER) && reply.matches("DATA 1\r\nc").count() == 2, "{reply}");
    assert_eq!(reply.matches(refused).count(), 2, "{reply}");
    let reply = said(connect(&port), format!("AUTH {token}WRITE c.reset\nQUIT\n").as_bytes());
    let expected = "200 Authenticated\r\n200 Write handler 'c.reset' OK\r\n200 Goodbye!\r\n";
    assert_eq!(reply, format!("{BANNER}{expected}"));
    let reply = said(connect(&port), b"AUTH 0123456789abcdef\nREAD c.name\nWRITE c.reset\n");
    assert_eq!(reply, format!("{BANNER}530 Wrong token\r\n"), "a wrong token ends the connection");
    // More data than a client without write access is given memory for.
    let reply = said(connect(&port), b"WRITEDATA hotconfig 16000000\nxxx");
    assert!(reply.contains(refused) && reply.lines().count() == 2, "{reply}");
}

#[test]
fn a_script_that_does_more_than_find_a_value_is_run_for_writers_only() {
    let folder = Folder::new();
    let written = folder.path("written");
    let config = format!(
        "Idle -> c :: Counter -> Discard; value :: Script(TYPE PASSIVE, return $(add $(c.count) 1));
         file :: Script(TYPE PASSIVE, print >{written} x); other :: Script(TYPE PASSIVE, return $(file.run));
         proxy :: Script(TYPE PROXY, write c.reset, return x); end :: Script(TYPE PASSIVE, stop);
         good :: Script(TYPE PASSIVE, return $(value.run));
         by_proxy :: Script(TYPE PASSIVE, return $(proxy.any));
         joined :: Script(TYPE PASSIVE, set r run, return $(file.$r));
         kills :: Script(TYPE PASSIVE, return $(kill 0 1));
         deep :: Script(TYPE PASSIVE, return $(add 1 $(other.run))); list :: Script(TYPE PASSIVE, set a x);"
    );
    let (port, file) = (free_port(), folder.path("token"));
    let router = Router::start(&folder.path("s"), &["-p", &port, "--token-file", &file, "-e", &config]);
    let asked = ["value.run", "good.run", "by_proxy.run", "joined.run", "kills.run", "deep.run"];
    let asked = asked.map(|handler| format!("READ {handler}\n")).concat()
        + "READ list.shift a\nREAD file.run\nREADDATA .file.run 0\nREAD other.run\nREAD proxy.any\n"
        + "READ proxy.run\nREAD end.run\n";
    let reply = said(connect(&port), format!("{asked}READ proxy.name\nQUIT\n").as_bytes());
    assert_eq!(reply.matches("needs 'AUTH TOKEN' first").count(), 11, "{reply}");
    assert!(reply.matches("DATA 1\r\n1").count() == 2 && reply.contains("DATA 5\r\nproxy"), "{reply}");
    assert!(!std::path::Path::new(&written).exists());
    let token = std::fs::read_to_string(&file).unwrap();
    let reply =
        said(connect(&port), format!("AUTH {token}READ other.run\nREAD proxy.any\nQUIT\n").as_bytes());
    assert!(reply.contains("DATA 1\r\nx"), "{reply}");
    assert!(std::path::Path::new(&written).exists());
    assert_eq!(router.read("end.class"), "Script");
}

#[test]
fn our_own_commands_find_the_token_or_are_told_where_it_is() {
    let folder = Folder::new();
    let (_router, port, file) = with_token(&folder, &[]);
    let call = |more: &[&str]| artery(&[&["handler", "-p", &port], more].concat());
    assert_eq!(call(&["c.name"]).out, "c\n");
    let refused = call(&["c.reset", "--write"]);
    assert!(refused.status == 1 && refused.err.contains(&format!("the token is in {file}")), "{refused:?}");
    assert_eq!(call(&["c.reset", "--write", "--token-file", &file]).status, 0);
    let mut by_environment = Command::new(env!("CARGO_BIN_EXE_artery"));
    by_environment.args(["handler", "-p", &port, "c.reset", "--write"]).env("ARTERY_TOKEN_FILE", &file);
    assert!(by_environment.status().unwrap().success());
    let other = folder.file("other", "0123456789abcdef\n");
    let wrong = call(&["c.reset", "--write", "--token-file", &other]);
    assert!(wrong.status == 1 && wrong.err.contains("Wrong token"), "{wrong:?}");
    let none = call(&["c.reset", "--write", "--token-file", "/nonexistent"]);
    assert!(none.err.contains("/nonexistent: No such file or directory"), "{none:?}");
}

#[test]
fn without_a_file_the_token_is_in_the_runtime_directory_as_long_as_the_router_runs() {
    let folder = Folder::new();
    let port = free_port();
    let mut router = Router::start(&folder.path("s"), &["-p", &port, "-e", CONFIG]);
    let line = router.complaint();
    let file = line.split("the token in ").nth(1).unwrap_or_else(|| panic!("{line}")).to_string();
    assert!(file.ends_with(&format!("/artery-{port}.token")), "{line}");
    assert_eq!(std::fs::metadata(&file).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(artery(&["handler", "-p", &port, "c.reset", "--write"]).status, 0);
    router.signal(Signal::TERM);
    assert_eq!(router.finish().status, 0);
    assert!(!std::path::Path::new(&file).exists());
}

#[test]
fn an_insecure_port_and_one_of_click_take_writes_from_all_and_say_so() {
    let folder = Folder::new();
    let port = free_port();
    let mut router = Router::start(&folder.path("s"), &["-p", &port, "--insecure", "-e", CONFIG]);
    let open =
        format!("warning: TCP port {port} is open to all local users: each of them can write every handler");
    assert_eq!(router.complaint(), open);
    assert_eq!(artery(&["handler", "-p", &port, "c.reset", "--write"]).status, 0);
    let port = free_port();
    let mut click = Command::new(env!("CARGO_BIN_EXE_artery"));
    click.arg0("click").args(["-w", "-p", &port, "-e", CONFIG]).stderr(std::process::Stdio::piped());
    let mut click = click.spawn().unwrap();
    let mut said_first = Vec::new();
    let mut err = click.stderr.take().unwrap();
    while !said_first.ends_with(b"\n") {
        let mut byte = [0];
        err.read_exact(&mut byte).unwrap();
        said_first.push(byte[0]);
    }
    let reply = said(connect(&port), b"WRITE c.reset\nWRITE stop\nQUIT\n");
    assert!(click.wait().unwrap().success());
    let open = format!(
        "warning: TCP port {port} is open to all local users: each of them can write every handler\n"
    );
    assert_eq!(String::from_utf8(said_first).unwrap(), open);
    assert!(reply.starts_with(&format!("{BANNER}200 Write handler 'c.reset' OK\r\n")), "{reply}");
}

#[test]
fn a_request_of_http_ends_the_connection_before_its_body_is_read() {
    let folder = Folder::new();
    let port = free_port();
    let args = [
        "-p",
        &port,
        "--insecure",
        "-R",
        "-e",
        "Idle -> c :: Counter -> Discard; s :: Script(TYPE PASSIVE, export n 0)",
    ];
    let router = Router::start(&folder.path("s"), &args);
    let body = "WRITE hotconfig Idle -> caught :: Discard\r\n";
    for first in [
        "POST / HTTP/1.1",
        "GET / HTTP/1.1",
        "WRITE / HTTP/1.1",
        "Host: localhost",
        "READ c.name\r\nX-Any: 1",
    ] {
        let request = format!("{first}\r\nContent-Type: text/plain\r\n\r\n{body}");
        let reply = said(connect(&port), request.as_bytes());
        assert!(reply.ends_with("501 This is a control socket; it speaks no HTTP\r\n"), "{first}: {reply}");
        assert!(!reply.contains("hotconfig"), "{first}: {reply}");
    }
    assert_eq!(router.read("c.name"), "c");
}

#[test]
fn token_files_that_others_can_read_are_refused_before_anything_starts() {
    let folder = Folder::new();
    let file = folder.file("token", "0123456789abcdef\n");
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o644)).unwrap();
    let port = free_port();
    let refused = artery(&["run", "-p", &port, "--token-file", &file, "-e", CONFIG]);
    assert!(refused.status == 1 && refused.err.contains(&format!("run 'chmod 600 {file}'")), "{refused:?}");
    for wrong in [&["--insecure", "-e", CONFIG][..], &["--token-file", &file, "-e", CONFIG]] {
        assert_eq!(artery(&[&["run"], wrong].concat()).status, 2, "without -p: {wrong:?}");
    }
}

#[test]
fn a_group_reads_by_the_unix_socket_and_only_root_and_the_routers_user_write() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("skipped: only root can change its user");
        return;
    }
    const GROUP: u32 = 4242;
    let folder = Folder::new();
    // Others can enter it, as they can enter /run.
    let outer = std::path::PathBuf::from(folder.path(""));
    std::fs::set_permissions(&outer, std::fs::Permissions::from_mode(0o755)).unwrap();
    let socket = folder.path("s");
    let router = Router::start(&socket, &["--read-group", &GROUP.to_string(), "-e", CONFIG]);
    let file = std::fs::metadata(&socket).unwrap();
    assert_eq!((file.mode() & 0o777, file.gid()), (0o660, GROUP));
    let read = as_nobody(GROUP, &["handler", "-u", &socket, "c.name"]);
    assert_eq!((read.status, read.out.as_str()), (0, "c\n"), "{read:?}");
    let write = as_nobody(GROUP, &["handler", "-u", &socket, "c.reset", "--write"]);
    let why = "Permission denied for 'c.reset': only root and the user that the router runs as may write";
    assert!(write.status == 1 && write.err.contains(why), "{write:?}");
    let other = as_nobody(NOBODY, &["handler", "-u", &socket, "c.name"]);
    assert!(other.status == 1 && other.err.contains("Permission denied"), "{other:?}");
    // The router checks the peer's user, whatever the file's mode is.
    std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o666)).unwrap();
    assert!(as_nobody(NOBODY, &["handler", "-u", &socket, "c.reset", "--write"]).err.contains(why));
    assert_eq!(router.call(&["c.reset", "--write"]).status, 0);
}

#[test]
fn idle_connections_end_and_so_does_a_request_that_never_does() {
    let folder = Folder::new();
    let port = free_port();
    let args = ["-p", &port, "--insecure", "--control-timeout", "0.3", "-e", CONFIG];
    let _router = Router::start(&folder.path("s"), &args);
    // A client that sends nothing, or lines without a command: the connection ends by itself.
    for nothing in [&b""[..], b"\r\n\n\n  \n"] {
        assert_eq!(said(connect(&port), nothing), BANNER, "{nothing:?}");
        let unix = UnixStream::connect(folder.path("s")).unwrap();
        unix.set_read_timeout(Some(SOON)).unwrap();
        assert_eq!(said(unix, nothing), BANNER, "{nothing:?}");
    }
}

#[test]
fn idle_and_slow_connections_do_not_keep_others_out() {
    let folder = Folder::new();
    let (router, port, _) = with_token(&folder, &[]);
    let ask = || said(connect(&port), b"READ c.name\nQUIT\n");
    // Some clients send nothing, some have begun a request, some do not read the reply.
    let mut held: Vec<TcpStream> = (0..40).map(|_| connect(&port)).collect();
    for (n, stream) in held.iter_mut().enumerate() {
        let part: &[u8] = [&b""[..], b"READ c.na", b"READ c.name\n"][n % 3];
        // Those that are too many may be gone.
        let _ = stream.write_all(part);
    }
    let deadline = Instant::now() + SOON;
    let mut reply = ask();
    while !reply.contains("DATA 1\r\nc") {
        assert!(reply.contains("590 Too many connections") && Instant::now() < deadline, "{reply}");
        held.iter_mut().skip(1).step_by(3).for_each(|slow| drop(slow.write_all(b"x")));
        reply = ask();
    }
    // The Unix socket was never full.
    assert_eq!(router.read("c.name"), "c");
}

#[test]
fn clients_that_ask_without_a_pause_do_not_keep_others_out() {
    let folder = Folder::new();
    let (router, port, file) = with_token(&folder, &[]);
    let token = std::fs::read_to_string(file).unwrap();
    /// Ends the others, also if an assertion fails.
    struct Finish<'a>(&'a AtomicBool);
    impl Drop for Finish<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let ends = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let _finish = Finish(&ends);
        for _ in 0..40 {
            scope.spawn(|| {
                while !ends.load(Relaxed) {
                    let mut stream = connect(&port);
                    let mut goes_on = || {
                        let sent = stream.write_all(b"READ c.name\n");
                        sent.is_ok() && matches!(stream.read(&mut [0; 512]), Ok(1..))
                    };
                    while !ends.load(Relaxed) && goes_on() {
                        std::thread::sleep(Duration::from_millis(100));
                    }
                }
            });
        }
        // What writes keeps its connection, whatever comes.
        let mut writer = BufReader::new(connect(&port));
        writer.get_mut().write_all(format!("AUTH {}\n", token.trim()).as_bytes()).unwrap();
        let mut answers = || {
            let mut line = String::new();
            while !line.contains("200") {
                line.clear();
                assert!(writer.read_line(&mut line).unwrap() > 0, "the connection ended");
            }
            std::thread::sleep(Duration::from_millis(50));
            writer.get_mut().write_all(b"WRITE c.reset\n").unwrap();
        };
        for _ in 0..20 {
            answers();
            // The others come back at once, so that a reader may have to make room before it is answered.
            let began = Instant::now();
            while !said(connect(&port), b"READ c.name\nQUIT\n").contains("DATA 1\r\nc") {
                assert!(began.elapsed() < SOON);
            }
        }
    });
    assert_eq!(router.read("c.name"), "c");
}

#[test]
fn a_megabyte_of_empty_lines_is_read_at_once_and_unknown_commands_have_an_end() {
    let folder = Folder::new();
    let (_router, port, _) = with_token(&folder, &[]);
    let mut lines = vec![b'\n'; 1 << 20];
    lines.extend(b"READ c.name\nQUIT\n");
    let began = Instant::now();
    assert!(said(connect(&port), &lines).contains("DATA 1\r\nc"));
    println!("a megabyte of empty lines: {:?}", began.elapsed());
    let reply = said(connect(&port), &b" \nx\n".repeat(1 << 18));
    assert!(reply.ends_with("590 Too many lines without a command\r\n"), "{}", reply.len());
    assert_eq!(reply.matches("501 Command 'X' unimplemented").count(), 100);
}

#[test]
fn metrics_are_answered_although_idle_and_slow_clients_hold_connections() {
    let folder = Folder::new();
    let port = free_port();
    let at = format!("127.0.0.1:{port}");
    let _router = Router::start(&folder.path("s"), &["--metrics", &at, "-e", CONFIG]);
    let mut held: Vec<TcpStream> = (0..40).map(|_| connect(&port)).collect();
    let ask = || said(connect(&port), b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n");
    let deadline = Instant::now() + SOON;
    let mut reply = ask();
    while !reply.starts_with("HTTP/1.1 200 OK") {
        assert!(reply.starts_with("HTTP/1.1 503") && Instant::now() < deadline, "{reply}");
        held.iter_mut().for_each(|slow| drop(slow.write_all(b"G")));
        reply = ask();
    }
    // A request that does not end has an end all the same.
    assert_eq!(said(connect(&port), b"GET /metrics HTTP/1.1\r\n"), "");
}

#[test]
fn metrics_are_what_prometheus_takes_and_its_dashboard_asks_for() {
    let folder = Folder::new();
    let port = free_port();
    let at = format!("127.0.0.1:{port}");
    let _router = Router::start(&folder.path("s"), &["--metrics", &at, "-e", CONFIG]);
    let ask = |accept: &str| {
        let request = format!("GET /metrics HTTP/1.1\r\nHost: a\r\nAccept: {accept}\r\n\r\n");
        let reply = said(connect(&port), request.as_bytes());
        reply.split_once("\r\n\r\n").expect(&reply).1.to_string()
    };
    let text = ask("text/plain");
    let open = ask("application/openmetrics-text; version=1.0.0");
    assert!(!text.contains("# EOF") && open.ends_with("# EOF\n"), "{open}");
    let families = |text: &str| {
        let names = text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next());
        names.map(|name| name.trim_end_matches("_total").to_string()).collect::<Vec<_>>()
    };
    assert_eq!(families(&text), families(&open));
    let program = format!("artery_build_info{{version=\"{}\",mode=\"run\"}} 1\n", env!("CARGO_PKG_VERSION"));
    assert!(text.contains(&program) && open.contains(&program), "{text}");
    let board = include_str!("../../../packaging/examples/grafana/artery.json");
    let asked = board.split(|c: char| c != '_' && !c.is_alphanumeric());
    for name in asked.filter(|word| word.starts_with("artery_") && !word.starts_with("artery_adopt_")) {
        let family = name.trim_end_matches("_total").trim_end_matches("_bucket");
        assert!(families(&text).iter().any(|known| known == family), "the dashboard asks for {name}");
    }
    check_by_promtool(&text);
}

/// Has Prometheus's own tool read metrics, where it is installed (`scripts/skipped` says where it is not).
fn check_by_promtool(metrics: &str) {
    let mut tool = Command::new("promtool");
    tool.args(["check", "metrics"]).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut tool = match tool.spawn() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return,
        started => started.unwrap(),
    };
    tool.stdin.take().unwrap().write_all(metrics.as_bytes()).unwrap();
    let end = tool.wait_with_output().unwrap();
    assert!(end.status.success(), "{}", String::from_utf8_lossy(&end.stderr));
}

/// What the kernel says of a process in a line of its status, a number.
fn status_of(process: u32, field: &str) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap();
    line.trim_start_matches(':').trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn many_replacements_leave_neither_memory_nor_threads_behind() {
    let folder = Folder::new();
    let config =
        "Idle -> FlowBalancer(SERVICE 192.0.2.1:80, MEMBER a 10.0.0.1, MEMBER b 10.0.0.2) -> Discard";
    let router = Router::start(&folder.path("s"), &["-R", "-e", config]);
    let mut client = UnixStream::connect(folder.path("s")).unwrap();
    client.set_read_timeout(Some(SOON)).unwrap();
    let mut replies = BufReader::new(client.try_clone().unwrap());
    let mut replace = |times: u32| {
        for _ in 0..times {
            write!(client, "WRITEDATA hotconfig {}\r\n{config}", config.len()).unwrap();
            let mut reply = String::new();
            while !reply.starts_with("200 ") {
                assert!(reply.is_empty() || reply == BANNER, "{reply}");
                reply.clear();
                assert!(replies.read_line(&mut reply).unwrap() > 0, "it hung up");
            }
        }
    };
    replace(1);
    let memory = status_of(router.id(), "VmRSS");
    let threads = status_of(router.id(), "Threads");
    replace(150);
    let now = status_of(router.id(), "VmRSS");
    assert!(now <= 2 * memory, "{memory} kB became {now} kB");
    let now = status_of(router.id(), "Threads");
    assert!(now <= threads + 2, "{threads} threads became {now}");
    // Those that are refused: the mistakes of the rest are looked for, too.
    drop((client, replies));
    let refuse = || {
        let refused = router.call(&["hotconfig", "Idle -> Discrd; f :: Frob"]);
        assert!(refused.status == 1 && refused.err.contains("Discrd"), "{refused:?}");
    };
    refuse();
    let memory = status_of(router.id(), "VmSize");
    (0..10).for_each(|_| refuse());
    let now = status_of(router.id(), "VmSize");
    assert!(now <= memory + memory / 4, "{memory} kB became {now} kB");
}
