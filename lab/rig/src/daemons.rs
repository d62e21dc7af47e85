//! Routing daemons on hosts of a rig: BIRD, and those of FRR. Each has its files in a folder
//! that goes with it.
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::error::{Result, Skip};
use super::host::Host;
use super::process::Process;

/// Where Debian keeps FRR's daemons.
const FRR: &str = "/usr/lib/frr";
/// How long a daemon may take to start.
const LIMIT: Duration = Duration::from_secs(10);

/// The daemons of one host, which end when this is dropped.
pub struct Daemons {
    host: Host,
    folder: TempDir,
    running: Vec<Process>,
}

impl Daemons {
    /// Starts BIRD with a configuration.
    pub fn bird(host: &Host, config: &str) -> Result<Daemons> {
        let folder = tempfile::tempdir().expect("a folder");
        let [file, socket] = ["conf", "ctl"].map(|name| text(&folder.path().join(name)));
        std::fs::write(&file, config).expect("a file in a folder of our own");
        let bird = host.spawn(["bird", "-f", "-c", &file, "-s", &socket])?;
        let daemons = Daemons { host: host.clone(), folder, running: vec![bird] };
        until_started("bird", || daemons.birdc("show status").is_ok());
        Ok(daemons)
    }

    /// Starts zebra, and further daemons of FRR with their configurations.
    pub fn frr(host: &Host, daemons: &[(&str, &str)]) -> Result<Daemons> {
        Daemons::frr_with(host, ("", &[]), daemons)
    }

    /// The same with a configuration of zebra, and options of its command line.
    pub fn frr_with(host: &Host, zebra: (&str, &[&str]), daemons: &[(&str, &str)]) -> Result<Daemons> {
        let folder = tempfile::tempdir().expect("a folder");
        // They run as a user of their own.
        std::fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).expect("a folder of our own");
        let path = |name: &str| text(&folder.path().join(name));
        let mut running = Vec::new();
        for (daemon, config) in [("zebra", zebra.0)].iter().chain(daemons) {
            let program = format!("{FRR}/{daemon}");
            if !Path::new(&program).exists() {
                return Err(Skip::MissingTool(format!("{daemon} of FRR")).into());
            }
            let [file, pid, socket] = ["conf", "pid", "vty"].map(|end| path(&format!("{daemon}.{end}")));
            std::fs::write(&file, config).expect("a file in a folder of our own");
            let files = ["-f", &file, "-i", &pid, "-z", &path("zserv"), "--vty_socket", &path("")];
            // No port for telnet.
            let options = ["-P", "0", "--log", "stdout"];
            let control = ["--bfdctl".to_string(), path("bfdctl")];
            let of_bfdd: Vec<&str> = control.iter().map(String::as_str).collect();
            let more: &[&str] = match *daemon {
                "zebra" => zebra.1,
                "bfdd" => &of_bfdd,
                _ => &[],
            };
            running.push(host.command([program.as_str()]).args(options).args(more).args(files).spawn()?);
            until_started(daemon, || Path::new(&socket).exists());
        }
        Ok(Daemons { host: host.clone(), folder, running })
    }

    /// Kills the daemons, so that they send no goodbye.
    pub fn kill(&mut self) {
        self.running.iter_mut().for_each(Process::kill);
    }

    /// Runs a command of birdc; gives what BIRD answers.
    pub fn birdc(&self, command: &str) -> Result<String> {
        let socket = text(&self.folder.path().join("ctl"));
        let words = command.split(' ');
        let birdc = self.host.command(["birdc", "-s", &socket]).args(words).limit(6 * LIMIT);
        Ok(birdc.run()?.stdout)
    }

    /// What daemons of FRR answer.
    pub fn vtysh(&self, commands: &[&str]) -> Result<String> {
        let folder = text(self.folder.path());
        let commands = commands.iter().flat_map(|command| ["-c", command]);
        Ok(self.host.command(["vtysh", "--vty_socket", &folder]).args(commands).run()?.stdout)
    }
}

fn until_started(daemon: &str, is_started: impl Fn() -> bool) {
    let deadline = Instant::now() + LIMIT;
    while !is_started() {
        assert!(Instant::now() < deadline, "{daemon} has not started within {LIMIT:?}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn text(path: &Path) -> String {
    path.display().to_string()
}
