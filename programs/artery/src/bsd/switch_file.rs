//! hostname.veb0 and hostname.bridge0: what each line means for a switch.
use super::etc::{Etc, File, Kind};
use super::hostname::{Line, lines, words};
use super::plan::{Port, PortKind, Shell, Switch, shell, shell_verdict};
use super::verdict::{Judged, Place, Verdict};
use artery_device::system_message;
use artery_l2 as switch;
use artery_l2::command::{Command, Untagged, parse, parse_rule};
use artery_l2::stp::{Outgoing, SpanningSwitch};
use artery_l2::{Config, Role};
use artery_rcu::Domain;
use std::collections::BTreeMap;
use std::time::Duration;

/// What a port of another switch is refused with, in part.
pub(super) const OTHERS: &str = "it can be one of one switch only";

/// Reads the file of a switch.
pub(super) struct Reader<'a> {
    etc: &'a Etc,
    file: &'a File,
    runs_commands: bool,
    /// Ports of other switches, and whose they are.
    owners: &'a BTreeMap<String, String>,
    /// The switch that the lines describe, which checks each command; None if memory runs out.
    trial: Option<SpanningSwitch>,
    read: Read,
}

/// What a switch's file was read as.
pub(super) struct Read {
    pub(super) switch: Switch,
    pub(super) shell: Vec<Shell>,
    pub(super) judged: Vec<Judged>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(
        etc: &'a Etc,
        file: &'a File,
        runs_commands: bool,
        owners: &'a BTreeMap<String, String>,
    ) -> Reader<'a> {
        let kind = Kind::of(&file.interface);
        let switch = Switch {
            name: file.interface.clone(),
            kind,
            is_up: false,
            description: None,
            ports: Vec::new(),
            commands: Vec::new(),
        };
        let read = Read { switch, shell: Vec::new(), judged: Vec::new() };
        Reader { etc, file, runs_commands, owners, trial: trial(file), read }
    }

    pub(super) fn read(mut self) -> Read {
        for line in lines(&self.file.text) {
            let file = self.etc.folder.join(self.file.name()).display().to_string();
            let place = Place { file, line: line.number };
            // The rules of a file that a line names are inserted after it.
            let at = self.read.judged.len();
            let verdict = self.line(&place, &line);
            self.read.judged.insert(at, Judged { place, text: line.text, verdict });
        }
        self.read
    }

    fn line(&mut self, place: &Place, line: &Line) -> Verdict {
        if let Some(text) = line.text.strip_prefix('!') {
            self.read.shell.push(shell(place, text, &self.file.interface));
            return shell_verdict(self.runs_commands, "switch");
        }
        let words = match words(&line.text) {
            Ok(words) => words,
            Err(why) => return Verdict::Refused(why),
        };
        let words: Vec<&str> = words.iter().map(String::as_str).collect();
        if let Some(verdict) = self.of_any_interface(&words) {
            return verdict;
        }
        match parse(&words) {
            Ok(commands) => {
                commands.into_iter().fold(Verdict::Honoured, |all, command| all.and(self.command(command)))
            }
            Err(error) => Verdict::Refused(error.to_string()),
        }
    }

    /// Commands that every interface has, and that mean something else or nothing for a switch.
    fn of_any_interface(&mut self, words: &[&str]) -> Option<Verdict> {
        let name = &self.file.interface;
        Some(match words {
            ["description" | "descr", text] => {
                self.read.switch.description = Some(text.to_string());
                Verdict::Honoured
            }
            ["-description" | "-descr"] => Verdict::Honoured,
            ["inet" | "inet6" | "dhcp" | "autoconf", ..] => Verdict::Refused(format!(
                "a switch has no address; give the host a port of it by 'add vport0' in hostname.{name}, and \
                 that port the address in hostname.vport0"
            )),
            ["mtu", ..] => Verdict::Refused(format!(
                "{name} has no MTU, as each port carries what its link carries; say it in the files of the \
                 ports"
            )),
            _ => return None,
        })
    }

    fn command(&mut self, command: Command) -> Verdict {
        match command {
            Command::Create => Verdict::Honoured,
            Command::Destroy => {
                Verdict::Refused("a file that makes a switch can't end it; take the line away".to_string())
            }
            Command::Up | Command::Down => {
                self.read.switch.is_up = command == Command::Up;
                Verdict::Honoured
            }
            Command::Add(port) => {
                let kind =
                    if Kind::of(&port) == Kind::HostPort { PortKind::HostPort } else { PortKind::Link };
                self.add(port, kind)
            }
            Command::AddSpan(port) => self.add(port, PortKind::Span),
            Command::Del(port) => self.remove(&port, false),
            Command::DelSpan(port) => self.remove(&port, true),
            Command::Addresses | Command::Groups | Command::Rules(_) | Command::Flush | Command::FlushAll => {
                Verdict::Approximated(format!(
                    "does nothing at the start; ask the switch that runs: 'artery ifconfig {} {command}'",
                    self.file.interface
                ))
            }
            Command::RuleFile(file) => self.rules_of(&file),
            Command::Link { number, on } if self.read.switch.kind == Kind::Bridge => match on {
                true => Verdict::Refused(link_of_bridge(number).to_string()),
                false => Verdict::Honoured,
            },
            command => self.property(command),
        }
    }

    fn add(&mut self, name: String, kind: PortKind) -> Verdict {
        let own = &self.read.switch;
        if own.port(&name).is_some() {
            return Verdict::Refused(format!(
                "{name} is a port of {} already; take one of the lines away",
                own.name
            ));
        }
        if let Some(other) = self.owners.get(&name) {
            return Verdict::Refused(format!("{name} is a port of {other} already; {OTHERS}"));
        }
        if kind == PortKind::Span && Kind::of(&name) == Kind::HostPort {
            return Verdict::Refused(format!(
                "{name} is the host's port, and can't be a span port; name an interface of the machine"
            ));
        }
        if Kind::of(&name).is_switch() {
            return Verdict::Refused(format!("{name} is a switch; only other interfaces can be ports"));
        }
        let command = if kind == PortKind::Span { Command::AddSpan } else { Command::Add };
        if let Err(why) = self.try_out(&command(name.clone())) {
            return Verdict::Refused(why);
        }
        self.read.switch.ports.push(Port::new(name, kind));
        Verdict::Honoured
    }

    /// Whether the switch would do it.
    fn try_out(&self, command: &Command) -> Result<(), String> {
        let apply =
            |trial: &SpanningSwitch| trial.apply_command(command, Duration::ZERO, &mut Outgoing::new());
        self.trial.as_ref().map_or(Ok(()), apply).map_err(|error| error.to_string())
    }

    fn remove(&mut self, name: &str, is_span: bool) -> Verdict {
        let switch = &mut self.read.switch;
        let is_meant = |port: &Port| port.name == name && (port.kind == PortKind::Span) == is_span;
        if !switch.ports.iter().any(is_meant) {
            return self.no_port(name);
        }
        switch.ports.retain(|port| port.name != name);
        switch.commands.retain(|command| command.port() != Some(name));
        let command = if is_span { Command::DelSpan } else { Command::Del };
        self.try_out(&command(name.to_string())).map_or_else(Verdict::Refused, |()| Verdict::Honoured)
    }

    fn no_port(&self, name: &str) -> Verdict {
        Verdict::Refused(format!(
            "{name} is not a port of {0}; write 'add {name}' to hostname.{0}, above this line",
            self.file.interface
        ))
    }

    /// A property of the switch or a port, set when it starts.
    fn property(&mut self, command: Command) -> Verdict {
        if let Some(port) = command.port().filter(|port| self.read.switch.port(port).is_none()) {
            return self.no_port(port);
        }
        if let Err(why) = self.try_out(&command) {
            return Verdict::Refused(why);
        }
        let verdict = match &command {
            Command::Link { number: 2, on: true } => {
                Verdict::Approximated("accepted, but IPsec is not looked into; by veb(4) neither".to_string())
            }
            Command::Untagged { port, to } => {
                if let Err(why) = self.read.switch.set_passed_through(port, *to == Untagged::Passthrough) {
                    return Verdict::Refused(why);
                }
                Verdict::Honoured
            }
            _ => Verdict::Honoured,
        };
        self.read.switch.commands.push(command);
        verdict
    }

    /// Adds the rules of a file.
    fn rules_of(&mut self, name: &str) -> Verdict {
        let path = self.etc.path(name);
        let text = match artery_device::files::read(&path) {
            Ok(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Err(error) => return Verdict::Refused(format!("{}: {}", path.display(), system_message(&error))),
        };
        for line in lines(&text) {
            let words: Vec<&str> = line.text.split_whitespace().collect();
            let verdict = match parse_rule(&words) {
                Ok(rule) => self.property(Command::Rule(Box::new(rule))),
                Err(error) => Verdict::Refused(error.to_string()),
            };
            let place = Place { file: path.display().to_string(), line: line.number };
            self.read.judged.push(Judged { place, text: line.text, verdict });
        }
        Verdict::Honoured
    }
}

/// A switch that has all ports of a file at hand.
fn trial(file: &File) -> Option<SpanningSwitch> {
    let mut config = Config::new(&file.interface);
    for line in lines(&file.text) {
        let words = words(&line.text).unwrap_or_default();
        for pair in words.windows(2).filter(|pair| ["add", "addspan"].contains(&pair[0].as_str())) {
            let mut port = switch::Port::new(&pair[1], Role::Detached);
            port.is_vport = Kind::of(&pair[1]) == Kind::HostPort;
            // A port that is listed twice is refused when its line is checked.
            let _ = config.connect_port(port);
        }
    }
    SpanningSwitch::new(&Domain::new(), config, &[]).ok()
}

impl Switch {
    /// Notes whether frames without a tag that arrive at a port are the host's; says why they can't be.
    fn set_passed_through(&mut self, name: &str, is_passed_through: bool) -> Result<(), String> {
        let Some(port) = self.ports.iter_mut().find(|port| port.name == name) else { return Ok(()) };
        let takes_none = || format!("{name} takes no frames that could be the host's; name a port by 'add'");
        let is_host_port = || {
            format!(
                "{name} is the host's port, which has no other behind it; '-untagged {name}' drops what \
                 comes there without a tag"
            )
        };
        match port.kind {
            PortKind::Span if is_passed_through => return Err(takes_none()),
            PortKind::HostPort if is_passed_through => return Err(is_host_port()),
            PortKind::Link | PortKind::Span | PortKind::HostPort | PortKind::OfRouter | PortKind::Routed => {
                port.is_passed_through = is_passed_through
            }
        }
        Ok(())
    }
}

/// Why link0 to link2 of bridge(4), which mean nothing like those of veb(4), can't be set.
pub(super) fn link_of_bridge(number: u8) -> &'static str {
    match number {
        0 => {
            "link0 of bridge(4) drops IP multicast, for which a Veb has no word; have the packet filter do \
             it, as by 'block drop quick to 224.0.0.0/4' in pf.conf"
        }
        1 => {
            "link1 of bridge(4) drops multicast other than IP's, for which a Veb has no word; limit it by \
             'storm IF multicast 0', or block addresses by 'rule block in on IF dst ADDRESS'"
        }
        _ => "link2 of bridge(4) has IPsec look at what passes, which is not done here; take it away",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(name: &str, text: &str) -> Read {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("rules"), "# of em0\npass in on em0\nblock in on em9\n").unwrap();
        let file = File { interface: name.into(), text: text.into() };
        let etc = Etc { folder: folder.path().into(), ..Etc::default() };
        Reader::new(&etc, &file, false, &BTreeMap::new()).read()
    }

    /// Why the last line is refused.
    fn refused(name: &str, text: &str) -> String {
        let read = read(name, text);
        match &read.judged.last().unwrap().verdict {
            Verdict::Refused(why) => why.clone(),
            other => panic!("{text}: {other:?}"),
        }
    }

    #[test]
    fn what_is_said_of_ports_is_kept_in_order_and_goes_with_them() {
        let read =
            read("veb0", "add em0\nadd em1\nprotected em0 1\n-learn em1 maxaddr 10\nlink1\ndel em0\nup");
        let commands: Vec<String> = read.switch.commands.iter().map(Command::to_string).collect();
        assert_eq!(commands, ["-learn em1", "maxaddr 10", "link1"]);
        assert_eq!(read.switch.ports, [Port::new("em1".into(), PortKind::Link)]);
        assert!(read.switch.is_up && read.judged.iter().all(|line| !line.is_refused()));
    }

    #[test]
    fn what_is_said_of_the_spanning_tree_is_honoured() {
        let text =
            "add em0\nadd em1\nstp em0 ifcost em0 5 edge em1\nspanpriority 4096 proto stp\nbpduguard em1";
        let read = read("bridge0", text);
        assert!(read.judged.iter().all(|line| line.verdict == Verdict::Honoured), "{:?}", read.judged);
        assert_eq!(read.switch.commands.len(), 6);
        let refusal = refused("bridge0", "add em0 proto stp\nifcost em0 70000");
        assert_eq!(refusal, "cost 70000 is not 1 to 200000000 (stp: 65535)");
    }

    #[test]
    fn host_ports_and_span_ports_differ_from_links() {
        let read = read("veb0", "add vport0\nadd vether1\naddspan em0");
        let kinds: Vec<PortKind> = read.switch.ports.iter().map(|port| port.kind).collect();
        assert_eq!(kinds, [PortKind::HostPort, PortKind::HostPort, PortKind::Span]);
    }

    #[test]
    fn rules_of_a_file_stand_behind_its_name_with_places_of_their_own() {
        let read = read("veb0", "add em0\nrulefile /etc/rules\nup");
        let lines: Vec<(usize, &str)> =
            read.judged.iter().map(|line| (line.place.line, line.text.as_str())).collect();
        assert_eq!(
            lines,
            [
                (1, "add em0"),
                (2, "rulefile /etc/rules"),
                (2, "pass in on em0"),
                (3, "block in on em9"),
                (3, "up")
            ]
        );
        assert!(read.judged[3].is_refused() && read.switch.commands.len() == 1);
    }

    #[test]
    fn what_is_refused_says_what_helps() {
        for (name, text, expected) in [
            (
                "veb0",
                "learn em0",
                "em0 is not a port of veb0; write 'add em0' to hostname.veb0, above this line",
            ),
            ("veb0", "add em0\nadd em0", "em0 is a port of veb0 already; take one of the lines away"),
            (
                "veb0",
                "addspan vport0",
                "vport0 is the host's port, and can't be a span port; name an interface of the machine",
            ),
            ("veb0", "add veb1", "veb1 is a switch; only other interfaces can be ports"),
            ("veb0", "destroy", "a file that makes a switch can't end it; take the line away"),
            ("veb0", "ad em0", "'ad' is not a command of a switch; did you mean 'add'?"),
            ("veb0", "description \"x", "a \" is missing at the end"),
        ] {
            assert_eq!(refused(name, text), expected);
        }
        assert!(
            refused("veb0", "inet 10.0.0.1/24").starts_with("a switch has no address; give the host a port")
        );
        assert!(refused("bridge0", "link0").starts_with("link0 of bridge(4) drops IP multicast"));
        assert!(refused("veb0", "rulefile nowhere").ends_with("No such file or directory"));
    }
}
