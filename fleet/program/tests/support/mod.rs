//! Routers and `artery-fleet` processes for tests.

use std::collections::{BTreeMap, HashMap};
use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use artery_wire::TcpFlags;
use artery_wire::build::ip4;
use rustix::process::{Pid, Signal};
use serde_json::Value;

/// How many flows a capture has.
pub const FLOWS: u16 = 300;

/// The program of the router: `$ARTERY`, or what the workspace beside this one has built.
pub fn artery() -> Option<PathBuf> {
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../target/debug/artery");
    std::env::var_os("ARTERY").map(PathBuf::from).or_else(|| built.exists().then_some(built))
}

/// Says why a test is skipped.
pub fn skip(why: &str) {
    println!("skipped: {why}");
}

/// A process that ends with its test.
pub struct Process(Child);

impl Process {
    pub fn start(command: &mut Command) -> Process {
        Process(command.spawn().unwrap())
    }

    fn stop(&mut self) {
        // It may have ended already.
        let _ = self.0.kill();
        let _ = self.0.wait();
    }

    fn signal(&self, signal: Signal) {
        rustix::process::kill_process(Pid::from_child(&self.0), signal).unwrap();
    }

    /// Waits for its own end, and says whether that was a success.
    fn ends_well(&mut self) -> bool {
        self.0.wait().unwrap().success()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        self.stop();
    }
}

/// A router that plays its capture once `f.active` is true, and has the balancer `b`.
pub struct Router {
    process: Process,
    program: PathBuf,
    pub socket: PathBuf,
}

impl Router {
    pub fn stop(&mut self) {
        self.process.stop();
    }

    /// As SIGSTOP, which has it stand still, and SIGCONT.
    pub fn signal(&self, signal: Signal) {
        self.process.signal(signal);
    }

    pub fn start(program: &Path, folder: &Path, name: &str) -> Router {
        let capture = folder.join(format!("{name}.pcap"));
        std::fs::write(&capture, pcap()).unwrap();
        let config = format!(
            "f :: FromDump({}, ACTIVE false) -> MarkIPHeader(0) -> b :: FlowBalancer(
             SERVICE 192.0.2.1:80 tcp, MEMBER a 10.0.0.1, MEMBER b 10.0.0.2, MEMBER c 10.0.0.3);
             b -> c :: Counter -> Discard; b[1] -> Discard;",
            capture.display()
        );
        let socket = folder.join(format!("{name}.sock"));
        // A router that was killed leaves its socket.
        let _ = std::fs::remove_file(&socket);
        let mut command = Command::new(program);
        command.arg("run").arg("-u").arg(&socket).args(["-o", "-", "-e", &config]);
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
        // It prints its configuration when its socket is there.
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut String::new()).unwrap();
        Router { process: Process(child), program: program.to_path_buf(), socket }
    }

    /// `artery router FILE` on a host, as it is with `balancer = "service1"`.
    pub fn start_configured(program: &Path, prefix: &[String], file: &Path, socket: &Path) -> Router {
        let _ = std::fs::remove_file(socket);
        let mut command = Command::new(&prefix[0]);
        command.args(&prefix[1..]).arg(program).arg("router").arg(file).arg("-u").arg(socket);
        let child = command.stdin(Stdio::null()).spawn().unwrap();
        let router =
            Router { process: Process(child), program: program.to_path_buf(), socket: socket.to_path_buf() };
        let is_up = || std::os::unix::net::UnixStream::connect(socket).is_ok();
        wait_for("the router's socket", is_up, |is_up| *is_up);
        router
    }

    pub fn call(&self, words: &[&str]) -> String {
        let mut command = Command::new(&self.program);
        let output = command.arg(words[0]).arg("-u").arg(&self.socket).args(&words[1..]).output().unwrap();
        assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    pub fn write(&self, handler: &str, value: &str) {
        self.call(&["handler", handler, value]);
    }

    pub fn read(&self, handler: &str) -> String {
        self.call(&["handler", handler]).trim_end().to_string()
    }

    /// Plays the capture to its end.
    pub fn play(&self) {
        self.write("f.active", "true");
        let all = (2 * FLOWS).to_string();
        wait_for("packets", || self.read("c.count"), |count| *count == all);
    }

    /// The member of each client's flow.
    pub fn flows(&self) -> BTreeMap<u64, String> {
        self.export(&["flow", "export"])
    }

    pub fn exceptions(&self) -> BTreeMap<u64, String> {
        self.export(&["flow", "export", "--exceptions"])
    }

    /// How many flows packets were seen of here, and how many are known from peers only.
    pub fn own_and_copies(&self) -> (usize, usize) {
        let lines = self.lines(&["flow", "export"]);
        let flows: Vec<bool> = lines.iter().filter_map(|line| line["imported"].as_bool()).collect();
        let copies = flows.iter().filter(|is_copy| **is_copy).count();
        (flows.len() - copies, copies)
    }

    fn export(&self, words: &[&str]) -> BTreeMap<u64, String> {
        let member = |line: &Value| Some((line["sport"].as_u64()?, line["member"].as_str()?.into()));
        self.lines(words).iter().filter_map(member).collect()
    }

    fn lines(&self, words: &[&str]) -> Vec<Value> {
        let mut command = Command::new(&self.program);
        let output = command.arg("flow").arg("-u").arg(&self.socket).args(&words[1..]).output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }
}

/// A capture of connections: a SYN of each, and then a packet that proves it.
fn pcap() -> Vec<u8> {
    let words = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<_>>();
    let mut bytes = words(&[0xa1b2_c3d4, 0x0004_0002, 0, 0, 65535, 101]);
    for flags in [TcpFlags::SYN, TcpFlags::ACK] {
        for client in 1..=FLOWS {
            let packet = ip4().src("198.51.100.7").dst("192.0.2.1").tcp(client, 80).flags(flags).bytes();
            let length = packet.len() as u32;
            bytes.extend(words(&[0, 0, length, length]));
            bytes.extend(packet);
        }
    }
    bytes
}

/// What an `artery-fleet` is configured with.
pub struct Settings<'a> {
    pub fleet: &'a str,
    pub balancer: &'a str,
    pub machine: &'a str,
    /// Names the files; the same as the machine unless two have one name.
    pub files: &'a str,
    pub listen: String,
    pub peers: Vec<String>,
    pub socket: &'a Path,
    pub more: String,
    /// Words before the program, as of `ip netns exec`.
    pub prefix: Vec<String>,
}

pub struct Fleet {
    process: Process,
    config: PathBuf,
}

impl Fleet {
    pub fn stop(&mut self) {
        self.process.stop();
    }

    /// Sends SIGTERM, and waits for the end.
    pub fn terminate(&mut self) {
        self.process.signal(Signal::TERM);
        assert!(self.process.ends_well());
    }

    /// `artery-fleet leave`; if that is a success, the process must end by itself.
    pub fn leave(&mut self, options: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_artery-fleet"));
        let output = command.arg("leave").args(options).arg("--config").arg(&self.config).output().unwrap();
        assert!(!output.status.success() || self.process.ends_well());
        output
    }

    /// Another command of the program, by this machine's configuration, on `host`.
    pub fn call(&self, prefix: &[String], words: &[&str]) -> Output {
        let program = env!("CARGO_BIN_EXE_artery-fleet").to_string();
        let all: Vec<_> = prefix.iter().chain([&program]).collect();
        let mut command = Command::new(all[0]);
        command.args(&all[1..]).args(words).arg("--config").arg(&self.config).output().unwrap()
    }

    /// The state of the announcement in the status.
    pub fn announcement(&self) -> String {
        self.status()["announcement"]["state"].as_str().unwrap_or_default().to_string()
    }

    pub fn start(folder: &Path, settings: &Settings<'_>) -> Fleet {
        let Settings { fleet, balancer, machine, files, listen, peers, socket, more, prefix } = settings;
        let config = folder.join(format!("{files}.toml"));
        let status = folder.join(format!("{files}.status"));
        let text = format!(
            "fleet = {fleet:?}\nid = \"1\"\nmachine = {machine:?}\nlisten = [{listen:?}]\npeers = {peers:?}\n\
             control = {socket:?}\nbalancer = {balancer:?}\nstatus = {status:?}\n{more}"
        );
        std::fs::write(&config, text).unwrap();
        let program = env!("CARGO_BIN_EXE_artery-fleet").to_string();
        let words: Vec<_> = prefix.iter().chain([&program]).collect();
        let mut command = Command::new(words[0]);
        command.args(&words[1..]).arg("run").arg("--config").arg(&config);
        Fleet { process: Process(command.spawn().unwrap()), config }
    }

    /// The status; null while the process does not answer.
    pub fn status(&self) -> Value {
        let mut command = Command::new(env!("CARGO_BIN_EXE_artery-fleet"));
        let output = command.args(["status", "--json", "--config"]).arg(&self.config).output().unwrap();
        serde_json::from_slice(&output.stdout).unwrap_or_default()
    }

    pub fn status_text(&self) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_artery-fleet"));
        let output = command.args(["status", "--config"]).arg(&self.config).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    }

    /// Waits until all exceptions of a peer were fetched.
    pub fn await_peer(&self, machine: &str) {
        let is_complete = |status: &Value| peer(status, machine)["is_complete"] == true;
        wait_for(machine, || self.status(), is_complete);
    }
}

/// What a status says of a peer.
pub fn peer<'a>(status: &'a Value, machine: &str) -> &'a Value {
    let peers = status["peers"].as_array().map_or(&[][..], Vec::as_slice);
    peers.iter().find(|peer| peer["machine"] == machine).unwrap_or(&Value::Null)
}

/// Waits until a value is as wanted, which is returned; one that never is fails the test.
#[track_caller]
pub fn wait_for<T: std::fmt::Debug>(
    what: &str,
    mut value: impl FnMut() -> T,
    is_wanted: impl Fn(&T) -> bool,
) -> T {
    let deadline = Instant::now() + Duration::from_secs(60);
    loop {
        let found = value();
        if is_wanted(&found) {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: {found:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Free ports of 127.0.0.1, as far as one can know.
pub fn endpoints<const N: usize>() -> [String; N] {
    let listeners: HashMap<usize, _> =
        (0..N).map(|n| (n, std::net::TcpListener::bind("127.0.0.1:0").unwrap())).collect();
    std::array::from_fn(|n| listeners[&n].local_addr().unwrap().to_string())
}
