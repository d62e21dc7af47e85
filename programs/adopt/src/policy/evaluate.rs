//! What becomes of packets in chains: whether any could meet something else than acceptance.
//!
//! Where it is not known whether a rule matches, both ways are followed. What is found stands in the way of
//! some packets at least; nothing that does is left out.
use super::packet::{self, Loaded, Packet};
use super::ruleset::*;
use super::sets::{Found, SetValue};
use super::value::{PartialBytes, Truth};
use crate::kernel::Family;

/// The kernel's limit on nested chains (`NFT_JUMP_STACK_SIZE`).
const MOST_NESTED: usize = 16;
/// Rules that are looked at for one packet and chain of a hook, so that none takes forever.
const MOST_RULES: usize = 20_000;

/// What stands in the way, where.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) struct Obstacle {
    pub(super) chain: usize,
    /// `None` for the policy of the chain.
    pub(super) rule: Option<usize>,
    pub(super) what: String,
    /// Whether all packets that were asked about meet it.
    pub(super) is_sure: bool,
}

/// How a chain ends for a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum End {
    Accepted,
    /// Something stands in the way of all packets that come there.
    Stopped,
    /// It may be that nothing was decided.
    Left,
}

/// What stands in the way of a packet in a chain of a hook, at most `most` things.
pub(super) fn evaluate(
    ruleset: &Ruleset,
    base: &BaseChain,
    packet: &Packet<'_>,
    most: usize,
) -> Vec<Obstacle> {
    let mut walk = Walk::new(ruleset, packet, most);
    if walk.walk_chain(base.chain, 0) == End::Left && !base.accepts && !walk.is_done() {
        walk.add(base.chain, None, "its policy drops".to_owned());
    }
    // Verdicts of a map may add several at once.
    walk.found.truncate(most);
    walk.found
}

/// The flow tables that rules may give a packet's connection to.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct FlowTables {
    /// By their places; `None` for one that is not known.
    pub(super) found: Vec<Option<usize>>,
    /// Whether no packet comes to chains behind.
    pub(super) is_end: bool,
}

/// What flow tables rules in a chain of a hook may give the connection of a packet to.
pub(super) fn find_flow_tables(ruleset: &Ruleset, base: &BaseChain, packet: &Packet<'_>) -> FlowTables {
    let mut walk = Walk { keeps_obstacles: false, ..Walk::new(ruleset, packet, usize::MAX) };
    let stops = match walk.walk_chain(base.chain, 0) {
        End::Stopped => true,
        End::Left => !base.accepts,
        End::Accepted => false,
    };
    // Otherwise some were accepted before.
    let is_end = stops && walk.is_sure;
    FlowTables { found: walk.flow_tables, is_end }
}

struct Walk<'a> {
    ruleset: &'a Ruleset,
    packet: &'a Packet<'a>,
    registers: PartialBytes,
    found: Vec<Obstacle>,
    most: usize,
    rules_left: usize,
    /// Whether all packets come to where the walk is.
    is_sure: bool,
    keeps_obstacles: bool,
    /// Flow tables that the connection may be given to, each once.
    flow_tables: Vec<Option<usize>>,
}

impl<'a> Walk<'a> {
    fn new(ruleset: &'a Ruleset, packet: &'a Packet<'a>, most: usize) -> Walk<'a> {
        let registers = PartialBytes::unknown(REGISTER_BYTES);
        let (found, flow_tables) = Default::default();
        Walk {
            ruleset,
            packet,
            registers,
            found,
            most,
            rules_left: MOST_RULES,
            is_sure: true,
            keeps_obstacles: true,
            flow_tables,
        }
    }
    fn is_done(&self) -> bool {
        self.found.len() >= self.most
    }

    fn add(&mut self, chain: usize, rule: Option<usize>, what: String) {
        let is_sure = self.is_sure;
        if self.keeps_obstacles {
            self.found.push(Obstacle { chain, rule, what, is_sure });
        }
    }

    fn add_flow_table(&mut self, table: Option<usize>) {
        if !self.flow_tables.contains(&table) {
            self.flow_tables.push(table);
        }
    }

    /// The rules after this one are not evaluated, and may give the connection to any flow table.
    fn give_up(&mut self, chain: usize, rule: Option<usize>, what: &str) -> End {
        self.add(chain, rule, what.to_owned());
        self.add_flow_table(None);
        End::Stopped
    }

    fn walk_chain(&mut self, number: usize, depth: usize) -> End {
        let Some(chain) = self.ruleset.chains.get(number) else { return End::Stopped };
        if depth > MOST_NESTED {
            return self.give_up(number, None, "too many chains within one another");
        }
        let mut may_leave = false;
        for (at, rule) in chain.rules.iter().enumerate() {
            if self.is_done() {
                return End::Stopped;
            }
            if self.rules_left == 0 {
                return self.give_up(number, Some(at), "too many rules");
            }
            self.rules_left -= 1;
            let (end, leaves) = self.walk_rule(number, at, rule, depth);
            may_leave |= leaves;
            match end {
                Some(_) if may_leave => return End::Left,
                Some(end) => return end,
                None => {}
            }
        }
        End::Left
    }

    /// How the chain ends for all that come to a rule, or `None` if some come to the next one; and whether
    /// some leave the chain here undecided.
    fn walk_rule(&mut self, chain: usize, at: usize, rule: &Rule, depth: usize) -> (Option<End>, bool) {
        self.registers = PartialBytes::unknown(REGISTER_BYTES);
        let mut matches = Truth::Yes;
        let was_sure = self.is_sure;
        let (mut end, mut has_decided, mut leaves) = (None, false, false);
        for step in &rule.steps {
            matches = matches.and(self.take_step(step));
            if matches == Truth::No {
                break;
            }
            self.is_sure &= matches == Truth::Yes;
            if let Some(what) = self.find_effect(step) {
                self.add(chain, Some(at), what);
            }
            let (is_one, verdicts) = match step {
                Step::Decide(verdict) => (true, vec![verdict.clone()]),
                Step::VerdictMap { set, at: key } => self.find_verdicts(*set, *key),
                _ => continue,
            };
            has_decided = true;
            if !is_one {
                matches = Truth::Unknown;
                self.is_sure = false;
            }
            for verdict in &verdicts {
                end = self.follow_verdict(chain, at, verdict, depth);
                leaves |= end == Some(End::Left);
            }
            if verdicts != [Verdict::Continue] {
                break;
            }
        }
        if matches == Truth::Yes {
            return (end, leaves);
        }
        // Some packets come to the next rule: all that came to this one, if nothing was decided here.
        self.is_sure = was_sure && !(matches == Truth::Unknown && has_decided);
        (None, leaves)
    }

    /// What a rule does, beside deciding, to a packet that comes to a step.
    fn find_effect(&self, step: &Step) -> Option<String> {
        match step {
            Step::Effect(what) => Some(what.clone()),
            // That it stays 0 changes nothing.
            Step::SetMark { at } => (self.registers.slice(*at, 4).equals(&[0; 4]) != Truth::Yes)
                .then(|| "meta mark set".to_owned()),
            Step::Lookup { set, .. } | Step::VerdictMap { set, .. } => {
                let has_effects = self.ruleset.sets.get(*set).is_none_or(|set| set.has_effects);
                has_effects.then(|| "elements of a set that count or limit".to_owned())
            }
            _ => None,
        }
    }

    /// `None` if the next rule comes.
    fn follow_verdict(&mut self, chain: usize, at: usize, verdict: &Verdict, depth: usize) -> Option<End> {
        match verdict {
            Verdict::Accept => Some(End::Accepted),
            Verdict::Return => Some(End::Left),
            Verdict::Continue => None,
            Verdict::Goto(target) => Some(self.walk_chain(*target, depth + 1)),
            Verdict::Jump(target) => match self.walk_chain(*target, depth + 1) {
                End::Left => None,
                end => Some(end),
            },
            Verdict::Drop => {
                self.add(chain, Some(at), "it drops or rejects".to_owned());
                Some(End::Stopped)
            }
            Verdict::Other => {
                self.add(chain, Some(at), "what it decides is not understood".to_owned());
                Some(End::Stopped)
            }
        }
    }

    /// Whether the rule goes on behind a step.
    fn take_step(&mut self, step: &Step) -> Truth {
        match step {
            Step::Load { to, length, source } => {
                let loaded = self.load_value(source, *length);
                self.store_value(*to, &loaded.value);
                loaded.is_there
            }
            Step::Immediate { to, bytes } => {
                self.store_value(*to, &PartialBytes::known(bytes.as_slice()));
                Truth::Yes
            }
            Step::MaskXor { from, to, mask, xor } => {
                let new = self.registers.slice(*from, mask.len()).mask_xor(mask, xor);
                self.store_value(*to, &new);
                Truth::Yes
            }
            Step::Swap { from, to, length, size } => {
                let new = self.registers.slice(*from, *length).swap(*size);
                self.store_value(*to, &new);
                Truth::Yes
            }
            Step::Compare { at, order, with } => self.compare_register(*at, *order, with),
            Step::Range { at, from, to, is_inverted } => {
                self.registers.slice(*at, from.len()).is_within(from, to).invert_if(*is_inverted)
            }
            Step::Lookup { set, at, into, is_inverted } => {
                let Some(set) = self.ruleset.sets.get(*set) else { return Truth::Unknown };
                let found = set.lookup(&self.registers.slice(*at, set.key_length));
                let data = found.data();
                if let Some(into) = into {
                    self.store_value(*into, &data.unwrap_or_else(|| PartialBytes::unknown(set.data_length)));
                }
                found.truth.invert_if(*is_inverted)
            }
            Step::VerdictMap { set, at } => {
                let set = self.ruleset.sets.get(*set);
                set.map_or(Truth::Unknown, |set| set.lookup(&self.registers.slice(*at, set.key_length)).truth)
            }
            Step::Test(condition) => condition.is_so(self.packet),
            Step::AddFlow { table } if [packet::TCP, packet::UDP].contains(&self.packet.protocol) => {
                self.add_flow_table(*table);
                // The rule ends where the kernel has it in one, or can't add it now.
                Truth::Unknown
            }
            Step::AddFlow { .. } => Truth::No,
            Step::Decide(_) | Step::SetMark { .. } | Step::Effect(_) | Step::Nothing => Truth::Yes,
        }
    }

    /// Whether a map of verdicts surely has a single one, and those that it may be.
    fn find_verdicts(&self, set: usize, key: usize) -> (bool, Vec<Verdict>) {
        let Some(set) = self.ruleset.sets.get(set) else { return (false, vec![Verdict::Other]) };
        let Found { truth, values } = set.lookup(&self.registers.slice(key, set.key_length));
        let verdict = |value: &&SetValue| value.verdict.clone().unwrap_or(Verdict::Other);
        let mut verdicts: Vec<Verdict> = Vec::new();
        for verdict in values.iter().map(verdict) {
            if !verdicts.contains(&verdict) {
                verdicts.push(verdict);
            }
        }
        if set.is_changing {
            verdicts.push(Verdict::Other);
        }
        (truth == Truth::Yes && verdicts.len() == 1, verdicts)
    }

    fn compare_register(&self, at: usize, order: Order, with: &[u8]) -> Truth {
        let value = self.registers.slice(at, with.len());
        let (least, most) = (vec![0; with.len()], vec![0xff; with.len()]);
        match order {
            Order::Equal => value.equals(with),
            Order::NotEqual => value.equals(with).invert_if(true),
            Order::LessOrEqual => value.is_within(&least, with),
            Order::Greater => value.is_within(&least, with).invert_if(true),
            Order::GreaterOrEqual => value.is_within(with, &most),
            Order::Less => value.is_within(with, &most).invert_if(true),
        }
    }

    fn load_value(&self, source: &Source, length: usize) -> Loaded {
        let packet = self.packet;
        let known = |bytes: &[u8]| match bytes.len() == length {
            true => PartialBytes::known(bytes).into(),
            false => Loaded::unknown(length),
        };
        let is_v4 = packet.family == Family::V4;
        match source {
            Source::Header(header, at) => packet.load_header(*header, *at, length),
            Source::Port { is_input, field } => packet.load_port(*is_input, *field),
            Source::Connection(field) => packet.load_connection(*field, length),
            Source::Mark => packet.load_mark(),
            Source::Route { is_source, field } => packet.load_route(*is_source, *field),
            Source::Family => known(&[if is_v4 { 2 } else { 10 }]),
            Source::Protocol => known(&[packet.protocol]),
            Source::Ethertype => known(if is_v4 { &[8, 0] } else { &[0x86, 0xdd] }),
            Source::Unknown => Loaded::unknown(length),
        }
    }

    /// Fills registers of four bytes to their ends.
    fn store_value(&mut self, to: usize, value: &PartialBytes) {
        let filled = value.len().next_multiple_of(4);
        self.registers.replace(to, &PartialBytes::known(vec![0; filled]));
        self.registers.replace(to, value);
    }
}

#[cfg(test)]
mod tests {
    use super::super::packet::{Port, State};
    use super::super::sets::Set;
    use super::*;

    #[test]
    fn a_map_of_many_verdicts_adds_no_more_than_is_asked_for() {
        let mut set = Set::new(4, 0, false, false);
        for key in 0..9_u8 {
            let verdict = Some(Verdict::Jump(1 + usize::from(key)));
            set.add_exact(vec![0, 0, 0, key], SetValue { data: None, verdict });
        }
        let rule = |steps: Vec<Step>| vec![Rule { name: String::new(), steps }];
        let chain = |rules| Chain { name: String::new(), remedy: String::new(), rules };
        let mut chains = vec![chain(rule(vec![
            Step::Load { to: 0, length: 4, source: Source::Unknown },
            Step::VerdictMap { set: 0, at: 0 },
        ]))];
        chains.extend((0..9).map(|_| chain(rule(vec![Step::Decide(Verdict::Drop)]))));
        let base = BaseChain { chain: 0, hook: Hook::Forward, priority: 0, family: None, accepts: true };
        let ruleset = Ruleset { chains, sets: vec![set], ..Ruleset::default() };
        let packet = Packet {
            family: Family::V4,
            protocol: 17,
            source: None,
            destination: None,
            ports: [None; 2],
            echo: [None; 2],
            input: Port::Any,
            output: Port::Any,
            state: State::Established,
            direction: None,
            status: (0, 0),
            tuples: None,
            is_routed: [false; 2],
        };
        for most in [1, 2, 20] {
            assert_eq!(evaluate(&ruleset, &base, &packet, most).len(), most.min(9));
        }
    }
}
