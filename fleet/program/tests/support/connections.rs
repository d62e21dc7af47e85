//! Servers on hosts of their own, and clients with real connections to the service, by several machines
//! (ECMP).

use std::io::{ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use artery_rig::{EchoServer, Host, Result, Rig, Switch};

const SERVICE: &str = "192.0.2.1";
const PORT: u16 = 80;
/// After so long without progress of any connection, those without an answer are lost.
const PATIENCE: Duration = Duration::from_secs(15);
/// The pause between two looks at connections.
const PAUSE: Duration = Duration::from_millis(2);

/// A server on a host of its own.
pub struct Server {
    pub host: Host,
    program: Option<EchoServer>,
}

/// The address of a server, by its number.
pub fn server(number: u8) -> String {
    format!("10.78.0.{}", 100 + number)
}

impl Server {
    pub fn start(rig: &Rig, switch: &Switch, number: u8) -> Result<Server> {
        let host = rig.host(&format!("web{number}"))?;
        rig.plug(&host, "eth0", switch)?;
        host.address("eth0", &format!("{}/24", server(number)))?.address("lo", &format!("{SERVICE}/32"))?;
        // Machines alone may know that it has the service's address.
        host.sysctl("net.ipv4.conf.all.arp_ignore", "1")?.sysctl("net.ipv4.conf.all.arp_announce", "2")?;
        host.offloads("eth0", false)?;
        let mut server = Server { host, program: None };
        server.listen(number)?;
        Ok(server)
    }

    pub fn listen(&mut self, number: u8) -> Result<()> {
        self.program = Some(EchoServer::start(&self.host, PORT, number)?);
        Ok(())
    }

    /// Ends the program; the host's kernel refuses connections from then on.
    pub fn end(&mut self) {
        self.program = None;
    }

    /// Has a machine's health checks get no answer from it, or ends that. Connections of clients go on.
    pub fn ignore_checks_of(&self, machine: usize, ignores: bool) -> Result<()> {
        let verb = if ignores { "add" } else { "del" };
        self.host.run(["ip", "route", verb, "blackhole", &format!("10.78.0.{machine}/32")]).map(drop)
    }
}

/// A host that spreads its connections over machines.
pub struct Client(pub Host);

impl Client {
    pub fn create(rig: &Rig, switch: &Switch) -> Result<Client> {
        let host = rig.host("client")?;
        rig.plug(&host, "eth0", switch)?;
        host.address("eth0", "10.78.0.200/24")?.offloads("eth0", false)?;
        host.sysctl("net.ipv4.fib_multipath_hash_policy", "1")?;
        // Answers come from servers, which have another link address than machines.
        host.sysctl("net.ipv4.conf.all.rp_filter", "0")?;
        Ok(Client(host))
    }

    pub fn spread_over(&self, machines: &[usize]) -> Result<()> {
        let mut words: Vec<String> = ["ip", "route", "replace", "192.0.2.1/32"].map(String::from).to_vec();
        for machine in machines {
            words.extend(["nexthop".to_string(), "via".to_string(), format!("10.78.0.{machine}")]);
        }
        self.0.run(words).map(drop)
    }

    pub fn open(&self, count: usize) -> Result<Connections> {
        self.0.enter(|| Connections((0..count).map(|_| connect().unwrap()).collect()))
    }

    /// Opens connections without end until it has to stop.
    pub fn open_on(&self) -> Opening {
        let has_ended = Arc::new(AtomicBool::new(false));
        let (host, ends) = (self.0.clone(), has_ended.clone());
        let open = move || {
            let mut streams = Vec::new();
            while !ends.load(Relaxed) {
                streams.push(connect().unwrap());
                std::thread::sleep(Duration::from_millis(5));
            }
            Connections(streams)
        };
        Opening { has_ended, thread: std::thread::spawn(move || host.enter(open).unwrap()) }
    }
}

pub struct Opening {
    has_ended: Arc<AtomicBool>,
    thread: JoinHandle<Connections>,
}

impl Opening {
    pub fn stop(self) -> Connections {
        self.has_ended.store(true, Relaxed);
        self.thread.join().unwrap()
    }
}

/// Connects, and waits for the server's number.
fn connect() -> std::io::Result<(TcpStream, u8)> {
    let service: SocketAddr = format!("{SERVICE}:{PORT}").parse().unwrap();
    let stream = TcpStream::connect_timeout(&service, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    let mut number = [0];
    (&stream).read_exact(&mut number)?;
    stream.set_nonblocking(true)?;
    Ok((stream, number[0]))
}

/// Open connections, and the number of the server of each.
pub struct Connections(Vec<(TcpStream, u8)>);

impl Connections {
    pub fn len(&self) -> usize {
        self.0.len()
    }

    pub fn add(&mut self, more: Connections) {
        self.0.extend(more.0);
    }

    /// How many a server has.
    pub fn at(&self, number: u8) -> usize {
        self.0.iter().filter(|(_, server)| *server == number).count()
    }

    /// Has each exchange a message, and says how many were reset or got no answer; those are closed.
    pub fn harmed(&mut self) -> usize {
        let before = self.0.len();
        let send = |mut one: (TcpStream, u8)| one.0.write_all(b"x").is_ok().then_some(one);
        let mut waiting: Vec<_> = self.0.drain(..).filter_map(send).collect();
        let mut progress = Instant::now();
        while !waiting.is_empty() && progress.elapsed() < PATIENCE {
            let count = waiting.len();
            let mut left = Vec::new();
            for mut one in waiting {
                match one.0.read(&mut [0]) {
                    Ok(1) => self.0.push(one),
                    Err(error) if error.kind() == ErrorKind::WouldBlock => left.push(one),
                    _ => {}
                }
            }
            waiting = left;
            if waiting.len() < count {
                progress = Instant::now();
            }
            std::thread::sleep(PAUSE);
        }
        before - self.0.len()
    }
}
