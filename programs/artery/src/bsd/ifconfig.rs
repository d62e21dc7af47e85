//! `artery ifconfig`: the switches of a running router, shown and changed in the words of ifconfig(8).
use super::etc::Kind;
use super::hostname::lines;
use super::switch_file::link_of_bridge;
use crate::control_socket::Client;
use crate::ip_router::elements;
use crate::options::Reach;
use crate::output::print_stdout;
use anyhow::{anyhow, bail};
use artery_device::{files, system_message};
use artery_l2::command::{Command, Rule, parse, parse_rule};
use clap::Args;

/// The last lines of its help.
pub(crate) const EXAMPLES: &str = "Examples:
  artery ifconfig                            all switches
  artery ifconfig veb0                       one: its ports, and the addresses it knows
  artery ifconfig veb0 link1                 have the packet filter see IP
  artery ifconfig veb0 -discover em2 static em1 02:00:00:00:00:01
  artery ifconfig veb0 rule block in on em0 arp request spa 10.0.0.1
  artery ifconfig veb0 untagged em0 10 tagged em1 10,20-29
  artery ifconfig veb0 stp em0 stp em1       have these ports take part in a spanning tree
  artery ifconfig veb0 flush                 forget the addresses that were learned

  artery ifconfig veb0 addr                  the addresses that are known
  artery ifconfig veb0 rules em0             the rules of a port

The words are those of ifconfig(8) for veb(4) and bridge(4); of several on a line none is done if one is not a
command, and none behind one that the switch refuses. 'rule' takes all that follow it. Our own are: storm IF
broadcast|multicast|unknown N (frames a second, '-storm IF broadcast' for no limit), ifmaxaddr IF N, evict (a
new address takes the place of an old one), snoop, querier ADDRESS, groups, mcastrouter and fastleave IF
(frames for groups of IP go to their members only), hairpin, nobroadcast and nomulticast IF, and bpduguard,
bpdufilter and rootguard IF. Options stand before IF; without -u and -p the router is the one at
$ARTERY_SOCKET, or else at /run/artery.sock.";

#[derive(Args)]
pub(crate) struct IfconfigOptions {
    #[command(flatten)]
    reach: Reach,
    /// All switches, which is what is shown if none is named
    #[arg(short = 'a')]
    _all: bool,
    /// The switch, and behind it what it is to do
    #[arg(value_name = "WORD", trailing_var_arg = true, allow_hyphen_values = true)]
    words: Vec<String>,
}

/// Shows switches, or changes one.
pub(crate) fn command(options: &IfconfigOptions) -> anyhow::Result<u8> {
    let words: Vec<&str> = options.words.iter().flat_map(|word| word.split_whitespace()).collect();
    let (name, words) = match words.split_first() {
        Some((name, words)) => (Some(*name), words),
        None => (None, [].as_slice()),
    };
    // Mistakes in the words are reported whether or not a router runs.
    let commands = parse(words).map_err(|error| anyhow!("{}: {error}", name.unwrap_or_default()))?;
    let mut switches = Switches::find(&options.reach)?;
    match name {
        None => switches.show(|_| true),
        Some(name) if words.is_empty() => switches.show_named(name),
        Some(name) => switches.run_commands(name, &commands),
    }
    .map(|()| 0)
}

/// The class of switches.
const CLASS: &str = "Veb";

/// The switches of a running router.
struct Switches {
    client: Client,
    names: Vec<String>,
}

impl Switches {
    fn find(reach: &Reach) -> anyhow::Result<Switches> {
        let mut client = Client::connect(reach)?;
        let all = elements(&mut client)?.into_iter();
        let names: Vec<String> = all.filter(|one| one.class == CLASS).map(|one| one.name).collect();
        if names.is_empty() {
            bail!("this router has no {CLASS}; 'artery show elements' lists what it has");
        }
        Ok(Switches { client, names })
    }

    fn show(&mut self, is_meant: impl Fn(&str) -> bool) -> anyhow::Result<()> {
        let names: Vec<String> = self.names.iter().filter(|name| is_meant(name)).cloned().collect();
        for name in names {
            print_stdout(&self.query(&name, "show", "")?)?;
        }
        Ok(())
    }

    /// Shows one, or all of a class such as `veb`.
    fn show_named(&mut self, name: &str) -> anyhow::Result<()> {
        let is_of_class = |one: &str| class(one) == name && one != name;
        match self.names.iter().any(|one| is_of_class(one)) {
            true => self.show(is_of_class),
            false => self.known(name).and_then(|()| self.show(|one| one == name)),
        }
    }

    /// Whether there is a switch of this name.
    fn known(&mut self, name: &str) -> anyhow::Result<()> {
        if self.names.iter().any(|one| one == name) {
            return Ok(());
        }
        for switch in self.names.clone() {
            if has_port(&self.query(&switch, "show", "")?, name) {
                bail!(
                    "{name} is a port of {switch}, which 'artery ifconfig {switch}' shows; 'artery netstat \
                     -I {name}' counts what goes through it"
                );
            }
        }
        bail!("{name}: no such interface; the switches of this router are {}", self.names.join(", "))
    }

    fn query(&mut self, switch: &str, handler: &str, parameters: &str) -> anyhow::Result<String> {
        let text = self.client.query(&format!("{switch}.{handler}"), parameters)?;
        Ok(if text.is_empty() || text.ends_with('\n') { text } else { text + "\n" })
    }

    /// Has a switch carry out the commands, and prints the output of those that show something.
    fn run_commands(&mut self, switch: &str, commands: &[Command]) -> anyhow::Result<()> {
        self.known(switch)?;
        let commands = of_kind(Kind::of(switch), commands).map_err(|why| anyhow!("{switch}: {why}"))?;
        for step in steps(&commands)? {
            let done = match &step {
                Step::Ask(handler, parameters) => {
                    self.query(switch, handler, parameters).and_then(|answer| print_stdout(&answer))
                }
                Step::Tell(words) => self.client.write_plain(&format!("{switch}.ifconfig"), words),
            };
            done.map_err(|error| anyhow!("{switch}: {error:#}"))?;
        }
        Ok(())
    }
}

/// The commands as a switch of this kind means them: what veb(4) has link0 to link2 for, bridge(4) does in
/// any case or not at all.
fn of_kind(kind: Kind, commands: &[Command]) -> Result<Vec<Command>, &'static str> {
    let mut kept = commands.to_vec();
    if kind == Kind::Bridge {
        let link = |command: &Command| match command {
            Command::Link { number, on } => Some((*number, *on)),
            _ => None,
        };
        if let Some((number, _)) = commands.iter().filter_map(link).find(|(_, on)| *on) {
            return Err(link_of_bridge(number));
        }
        kept.retain(|command| link(command).is_none());
    }
    Ok(kept)
}

/// The name without its number.
fn class(name: &str) -> &str {
    name.trim_end_matches(|c: char| c.is_ascii_digit())
}

/// Whether a switch shows a port of this name.
fn has_port(shown: &str, name: &str) -> bool {
    shown.lines().any(|line| line.trim_start().split(' ').next() == Some(name) && line.contains(" flags="))
}

/// One request to the router: a query or a write.
#[derive(Debug, PartialEq, Eq)]
enum Step {
    /// A handler, and its parameters.
    Ask(&'static str, String),
    /// Words that are done in order, up to one that is refused.
    Tell(String),
}

fn steps(commands: &[Command]) -> anyhow::Result<Vec<Step>> {
    let mut steps = Vec::new();
    for command in commands {
        match command {
            Command::Create => bail!("the switch runs already; 'up' has it forward"),
            Command::Destroy => bail!("a switch ends with its router; 'down' has it forward no more"),
            Command::Addresses => steps.push(Step::Ask("addr", String::new())),
            Command::Groups => steps.push(Step::Ask("groups", String::new())),
            Command::Rules(port) => steps.push(Step::Ask("rules", port.clone())),
            Command::RuleFile(file) => {
                let rules = rules(file)?.into_iter();
                steps.extend(rules.map(|rule| Step::Tell(Command::Rule(Box::new(rule)).to_string())));
            }
            command => match steps.last_mut() {
                Some(Step::Tell(words)) if !words.starts_with("rule ") => *words += &format!(" {command}"),
                _ => steps.push(Step::Tell(command.to_string())),
            },
        }
    }
    Ok(steps)
}

/// The rules of a file, one a line.
fn rules(file: &str) -> anyhow::Result<Vec<Rule>> {
    let bytes = files::read(file).map_err(|error| anyhow!("{file}: {}", system_message(&error)))?;
    let rule = |line: super::hostname::Line| {
        let words: Vec<&str> = line.text.split_whitespace().collect();
        parse_rule(&words).map_err(|error| anyhow!("{file}:{}: {error}", line.number))
    };
    lines(&String::from_utf8_lossy(&bytes)).into_iter().map(rule).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps_of(line: &str) -> anyhow::Result<Vec<Step>> {
        steps(&parse(&line.split(' ').collect::<Vec<_>>()).unwrap())
    }

    #[test]
    fn words_that_change_are_told_at_once_and_those_that_ask_between_them() {
        let tell = |words: &str| Step::Tell(words.to_string());
        assert_eq!(steps_of("add em0 link1 maxaddr 10").unwrap(), [tell("add em0 link1 maxaddr 10")]);
        assert_eq!(
            steps_of("up addr down rules em0").unwrap(),
            [tell("up"), Step::Ask("addr", String::new()), tell("down"), Step::Ask("rules", "em0".into())]
        );
    }

    #[test]
    fn each_rule_of_a_file_is_told_for_itself() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("rules");
        std::fs::write(&file, "# both\npass in on em0\n\nblock on em1 # rest\n").unwrap();
        let line = format!("rulefile {} up", file.display());
        let words = ["rule pass in on em0", "rule block in/out on em1", "up"];
        assert_eq!(steps_of(&line).unwrap(), words.map(|words| Step::Tell(words.to_string())));
        std::fs::write(&file, "pass in on em0\nblok on em1").unwrap();
        let error = steps_of(&line).unwrap_err().to_string();
        assert!(error.contains("rules:2: not 'blok', but 'block', 'pass' or 'match'"), "{error}");
    }

    #[test]
    fn ports_are_told_from_addresses_in_what_is_shown() {
        let shown = "veb0: flags=41<UP,RUNNING>\n\tem0 flags=3<LEARNING,DISCOVER>\n\
            \t\tport 2 ifpriority 0 ifcost 0\n\
            \tAddresses (max cache: 100, timeout: 240):\n\t\t02:00:00:00:00:01 em1 0 flags=0<>\n";
        assert!(has_port(shown, "em0") && !has_port(shown, "em1") && !has_port(shown, "port"));
        assert_eq!((class("veb12"), class("veb")), ("veb", "veb"));
    }

    #[test]
    fn a_bridge_keeps_its_packet_filter_whatever_is_said_of_links() {
        let commands = parse(&["-link1", "up"]).unwrap();
        assert_eq!(of_kind(Kind::Bridge, &commands), Ok(vec![Command::Up]));
        assert_eq!(of_kind(Kind::Veb, &commands), Ok(commands));
        let refusal = of_kind(Kind::Bridge, &parse(&["up", "link1"]).unwrap()).unwrap_err();
        assert!(refusal.starts_with("link1 of bridge(4) drops multicast"), "{refusal}");
    }

    #[test]
    fn a_switch_that_runs_is_neither_made_nor_ended() {
        for word in ["create", "destroy"] {
            assert!(steps_of(word).is_err(), "{word}");
        }
    }
}
