//! State that the copies of a Veb on several workers share, made from its arguments.
use super::links::Links;
use artery_common::frame_filter::{FilterPort, parse_port_address};
use artery_engine::{ArgError, Args, HandlerError};
use artery_l2::command::{Command, PortFlag, TIMEOUTS, VlanId, parse, parse_rule};
use artery_l2::stp::{Outgoing, SpanningSwitch};
use artery_l2::{Config, MOST_ENTRIES, Port, Role, Switch};
use artery_lang::args::unquote;
use artery_wire::EtherAddr;
use std::fmt::Display;
use std::time::Duration;

/// Longest file with rules that is read.
const LONGEST_FILE: u64 = 1 << 20;

/// The part of a switch that its copies share.
pub(super) struct SharedSwitch {
    pub(super) spanning: SpanningSwitch,
    pub(super) name: String,
    /// The names of its ports, in the order of inputs and outputs.
    pub(super) names: Vec<String>,
    /// What this machine calls the interfaces behind them, where they are any.
    pub(super) devices: Vec<String>,
    /// The same ports for rules of a packet filter.
    pub(super) interfaces: Vec<FilterPort>,
    /// The IFCONFIG commands, until the first copy runs them.
    initial_commands: Vec<String>,
}

impl SharedSwitch {
    pub(super) fn new(args: &Args<'_>) -> Result<SharedSwitch, ArgError> {
        let config = parse_config(args)?;
        let names: Vec<String> = config.ports.iter().map(|port| port.name.clone()).collect();
        check_ports(args, names.len())?;
        let interfaces = filter_ports(args, &names);
        let name = config.name.clone();
        let addresses = bridge_addresses(args, &name, &names)?;
        let spanning = SpanningSwitch::new(args.domain(), config, &addresses)
            .map_err(|why| ArgError::wrong(why.to_string()))?;
        let shared = SharedSwitch {
            spanning,
            name,
            devices: names.iter().map(|name| args.names().device_name(name).to_string()).collect(),
            names,
            interfaces,
            initial_commands: args.rest("IFCONFIG").iter().map(|text| unquote(text)).collect(),
        };
        for words in &shared.initial_commands {
            // Ages of addresses count from the clock of the running router. The spanning tree sends nothing
            // while all links are down.
            let told = shared.apply_ifconfig(words, Duration::ZERO, &mut Outgoing::new());
            told.map_err(|why| argument_error("IFCONFIG", words, why))?;
        }
        Ok(shared)
    }

    pub(super) fn switch(&self) -> &Switch {
        self.spanning.switch()
    }

    /// Sets the links of all ports.
    pub(super) fn set_links(&self, links: &Links, now: Duration, outgoing: &mut Outgoing) {
        let all = (0..).zip(links.port_links());
        all.for_each(|(port, link)| self.spanning.set_link(port, link, now, outgoing));
    }

    /// Runs ifconfig commands, up to the first that is refused.
    pub(super) fn apply_ifconfig(
        &self,
        words: &str,
        now: Duration,
        outgoing: &mut Outgoing,
    ) -> Result<(), HandlerError> {
        let words: Vec<&str> = words.split_whitespace().collect();
        for command in parse(&words).map_err(to_handler_error)? {
            match &command {
                Command::RuleFile(file) => self.add_rules(file, now)?,
                command => self.spanning.apply_command(command, now, outgoing).map_err(to_handler_error)?,
            }
        }
        Ok(())
    }

    /// Adds the rules of a file, one a line; empty lines and those that begin with `#` are skipped.
    fn add_rules(&self, file: &str, now: Duration) -> Result<(), HandlerError> {
        let length = std::fs::metadata(file).map_err(|why| to_handler_error(format!("{file}: {why}")))?.len();
        if length > LONGEST_FILE {
            return Err(to_handler_error(format!("{file}: {length} bytes are too many for a file of rules")));
        }
        let text = artery_device::files::read_to_string(file)
            .map_err(|why| to_handler_error(format!("{file}: {why}")))?;
        let mut rules = Vec::new();
        for (number, line) in (1..).zip(text.lines()) {
            let words: Vec<&str> = line.split_whitespace().collect();
            if words.first().is_some_and(|word| !word.starts_with('#')) {
                rules.push(
                    parse_rule(&words).map_err(|why| to_handler_error(format!("{file}:{number}: {why}")))?,
                );
            }
        }
        let apply = |rule| self.switch().apply_command(&Command::Rule(Box::new(rule)), now);
        rules.into_iter().try_for_each(apply).map_err(|why| to_handler_error(format!("{file}: {why}")))
    }

    /// The number of a port.
    pub(super) fn port_number(&self, name: &str) -> Option<u16> {
        self.names.iter().position(|of| of == name).map(|at| at as u16)
    }
}

pub(super) fn to_handler_error(why: impl Display) -> HandlerError {
    HandlerError::refused(why.to_string())
}

fn argument_error(argument: &str, text: &str, why: impl Display) -> ArgError {
    ArgError::wrong_at(text, format!("{argument} {text}: {why}"))
}

/// The source addresses of BPDUs, one a port: ETHER, or else those of the interfaces. The lowest is the
/// switch's own. Without any, an address is derived from the switch's name, so that it stays the same.
fn bridge_addresses(args: &Args<'_>, switch: &str, ports: &[String]) -> Result<Vec<EtherAddr>, ArgError> {
    if let Some(address) = args.read::<Option<EtherAddr>>("ETHER")? {
        return match address.is_group() || address == EtherAddr::ZERO {
            true => Err(argument_error("ETHER", &address.to_string(), "is not the MAC address of a host")),
            false => Ok(vec![address; ports.len()]),
        };
    }
    let known: Vec<Option<EtherAddr>> = ports.iter().map(|port| args.names().lookup_ether(port)).collect();
    let own = known.iter().flatten().min().copied().unwrap_or_else(|| address_from_name(switch));
    Ok(known.into_iter().map(|address| address.unwrap_or(own)).collect())
}

/// An address of local administration, by a sum over the name (FNV-1a).
fn address_from_name(name: &str) -> EtherAddr {
    let sum = name
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |sum, byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let [a, b, c, d, e, ..] = sum.to_be_bytes();
    EtherAddr([2, a, b, c, d, e])
}

fn parse_config(args: &Args<'_>) -> Result<Config, ArgError> {
    let mut config = Config::new(args.name());
    config.is_up = args.read("UP")?;
    config.links = [args.read("LINK0")?, args.read("LINK1")?, args.read("LINK2")?];
    let vlan: u16 = args.read("VNETID")?;
    config.vnetid = Some(
        VlanId::new(vlan)
            .ok_or_else(|| argument_error("VNETID", &vlan.to_string(), "is none of 1 to 4094"))?,
    );
    for digits in args.rest("RESERVED") {
        config.reserved |= 1 << parse_reserved(digits)?;
    }
    parse_limits(args, &mut config)?;
    for text in args.rest("PORT") {
        parse_port(&mut config, text)?;
    }
    for name in args.rest("SPAN") {
        config
            .connect_port(Port::new(name.trim(), Role::Span))
            .map_err(|why| argument_error("SPAN", name, why))?;
    }
    if config.ports.is_empty() {
        for at in 0..args.inputs().max(args.outputs()) {
            config
                .connect_port(Port::new(format!("p{at}"), Role::Member))
                .map_err(|why| ArgError::wrong(why.to_string()))?;
        }
    }
    Ok(config)
}

fn parse_limits(args: &Args<'_>, config: &mut Config) -> Result<(), ArgError> {
    let limits = &mut config.limits;
    (limits.entries, limits.rate) = (args.read("MAXADDR")?, args.read("LEARN_RATE")?);
    if !(1..=MOST_ENTRIES).contains(&limits.entries) {
        let wants = format!("is none of 1 to {MOST_ENTRIES}");
        return Err(argument_error("MAXADDR", &limits.entries.to_string(), wants));
    }
    limits.timeout = match args.read::<u32>("TIMEOUT")? {
        0 => u32::MAX,
        seconds if TIMEOUTS.contains(&seconds) => seconds,
        wrong_one => {
            let wants =
                format!("is neither 0, for never, nor one of {} to {}", TIMEOUTS.start(), TIMEOUTS.end());
            return Err(argument_error("TIMEOUT", &wrong_one.to_string(), wants));
        }
    };
    (limits.evicts, limits.damping) = (args.read("EVICT")?, args.read("DAMPING")?);
    Ok(())
}

/// The last digit of an address reserved for bridges.
fn parse_reserved(digits: &str) -> Result<u8, ArgError> {
    let digits = digits.trim();
    let last = u8::from_str_radix(digits, 16).ok().filter(|last| *last < 16);
    last.ok_or_else(|| argument_error("RESERVED", digits, "is none of 00 to 0f"))
}

/// Ports as rules name them, with the addresses of PORT arguments. Those of SPAN arguments follow.
fn filter_ports(args: &Args<'_>, names: &[String]) -> Vec<FilterPort> {
    let of_port = |(n, name): (usize, &String)| {
        let text = args.rest("PORT").get(n).map(|text| unquote(text)).unwrap_or_default();
        FilterPort {
            name: name.clone(),
            addresses: text.split_whitespace().filter_map(parse_port_address).collect(),
        }
    };
    names.iter().enumerate().map(of_port).collect()
}

/// `NAME [ADDRESS/LENGTH…] [vport] [detached] [sticky] [FLAG…]`.
fn parse_port(config: &mut Config, text: &str) -> Result<(), ArgError> {
    let text = unquote(text);
    let mut words = text.split_whitespace();
    let name = words.next().ok_or_else(|| argument_error("PORT", &text, "wants a name"))?;
    let mut port = Port::new(name, Role::Member);
    let mut flags = Vec::new();
    for word in words {
        let (on, bare) = word.strip_prefix('-').map_or((true, word), |bare| (false, bare));
        match (word, PortFlag::from_word(bare)) {
            (_, Some(flag)) if flag.is_of_tree() => {
                let wants = "is of the spanning tree; IFCONFIG takes it, as in";
                return Err(argument_error(
                    "PORT",
                    &text,
                    format!("'{word}' {wants} IFCONFIG \"{word} {name}\""),
                ));
            }
            (_, Some(flag)) => flags.push((flag, on)),
            ("vport", _) => port.is_vport = true,
            ("sticky", _) => port.is_sticky = true,
            ("detached", _) => port.role = Role::Detached,
            _ if parse_port_address(word).is_some() => (),
            _ => {
                let wants = "is not a valid ADDRESS/LENGTH and none of vport, detached, sticky, learn, \
                    discover, locked and blocknonip; IFCONFIG takes all words";
                return Err(argument_error("PORT", &text, format!("'{word}' {wants}")));
            }
        }
    }
    config.connect_port(port).map_err(|why| argument_error("PORT", &text, why))?;
    flags
        .into_iter()
        .try_for_each(|(flag, on)| config.set_flag(name, flag, on))
        .map_err(|why| argument_error("PORT", &text, why))
}

/// Refuses inputs and outputs that belong to no port.
fn check_ports(args: &Args<'_>, ports: usize) -> Result<(), ArgError> {
    let (inputs, outputs) = (args.inputs(), args.outputs());
    let fits = inputs <= ports && (outputs == ports || outputs == 2 * ports);
    let (named, plural) = (format!("{ports} port"), if ports == 1 { "" } else { "s" });
    match fits {
        true => Ok(()),
        false => Err(ArgError::wrong(format!(
            "{inputs} inputs and {outputs} outputs are connected; {named}{plural} {} as many outputs, or \
             twice as many for what is the host's",
            if ports == 1 { "needs" } else { "need" }
        ))),
    }
}
