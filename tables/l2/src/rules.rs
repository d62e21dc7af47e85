//! The rules of a port as frames meet them: first match wins, and a rule that only marks lets the next one
//! decide.
use super::command::{ArpKind, ArpOperation, ArpRule, Rule, RuleAction, RuleDirection};
use super::mac::bits_of;
use super::sight::{FrameView, RARP};
use artery_wire::EtherType;
use std::sync::Arc;

/// The direction of a frame, as its port sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Direction {
    /// Into the switch, by the port.
    In,
    /// Out of the switch.
    Out,
}

/// A mark for the packet filter.
pub type Mark = Arc<str>;

/// A rule, its addresses as numbers.
#[derive(Clone, Debug)]
struct Test {
    action: RuleAction,
    source: Option<u64>,
    destination: Option<u64>,
    mark: Option<Mark>,
    arp: Option<ArpRule>,
}

/// The rules of a port for one direction.
#[derive(Clone, Debug, Default)]
pub(super) struct Rules(Box<[Test]>);

impl Rules {
    /// Those of a list that are about a direction.
    pub(super) fn new(rules: &[Rule], direction: Direction) -> Rules {
        let is_about = |rule: &&Rule| match rule.direction {
            RuleDirection::In => direction == Direction::In,
            RuleDirection::Out => direction == Direction::Out,
            RuleDirection::Both => true,
        };
        let test = |rule: &Rule| Test {
            action: rule.action,
            source: rule.source.map(bits_of),
            destination: rule.destination.map(bits_of),
            mark: rule.tag.as_deref().map(Arc::from),
            arp: rule.arp.clone(),
        };
        Rules(rules.iter().filter(is_about).map(test).collect())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether a frame may pass, and the mark that they give it.
    pub(super) fn apply_rules(&self, sight: &FrameView<'_>, is_tagged: bool) -> Result<Option<Mark>, ()> {
        let mut mark = None;
        for test in self.0.iter().filter(|test| test.is_met(sight, is_tagged)) {
            mark = test.mark.clone().or(mark);
            match test.action {
                RuleAction::Block => return Err(()),
                RuleAction::Pass => return Ok(mark),
                RuleAction::Match => {}
            }
        }
        Ok(mark)
    }
}

impl Test {
    fn is_met(&self, sight: &FrameView<'_>, is_tagged: bool) -> bool {
        self.source.is_none_or(|source| source == sight.source)
            && self.destination.is_none_or(|destination| destination == sight.destination)
            && self.arp.as_ref().is_none_or(|rule| is_arp(rule, sight, is_tagged))
    }
}

/// Whether a frame is an ARP or RARP message that matches a rule (RFC 826, RFC 903).
fn is_arp(rule: &ArpRule, sight: &FrameView<'_>, is_tagged: bool) -> bool {
    let Some((ether_type, arp)) = sight.parse_arp(is_tagged) else { return false };
    let (kind, base) = match rule.kind {
        ArpKind::Arp => (EtherType::ARP, 0),
        ArpKind::Rarp => (RARP, 2),
    };
    let wanted = rule.operation.map(|operation| match operation {
        ArpOperation::Request => base + 1,
        ArpOperation::Reply => base + 2,
    });
    ether_type == kind
        && wanted.is_none_or(|wanted| arp.operation().0 == wanted)
        && rule.sender_link.is_none_or(|address| arp.sender_ether() == address)
        && rule.target_link.is_none_or(|address| arp.target_ether() == address)
        && rule.sender.is_none_or(|address| arp.sender_ip() == address)
        && rule.target.is_none_or(|address| arp.target_ip() == address)
}

#[cfg(test)]
mod tests {
    use super::super::command::parse_rule;
    use super::*;
    use artery_wire::EtherAddr;
    use artery_wire::build::{arp_reply, arp_request, ether};

    const A: &str = "02:00:00:00:00:0a";
    const B: &str = "02:00:00:00:00:0b";

    fn rules(lines: &[&str], direction: Direction) -> Rules {
        let rule = |line: &&str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            parse_rule(&words).unwrap_or_else(|error| panic!("{line}: {error}"))
        };
        Rules::new(&lines.iter().map(rule).collect::<Vec<_>>(), direction)
    }
    fn ask(rules: &Rules, bytes: &[u8]) -> Result<Option<String>, ()> {
        rules
            .apply_rules(&FrameView::new(bytes).unwrap(), false)
            .map(|mark| mark.map(|mark| mark.to_string()))
    }

    #[test]
    fn the_first_rule_that_is_met_decides_and_without_one_frames_pass() {
        let plain = ether(B, A).raw(EtherType::IPV4, b"").bytes();
        let in_first = rules(&[&format!("pass in on em0 src {A}"), "block in on em0"], Direction::In);
        assert_eq!(ask(&in_first, &plain), Ok(None));
        assert_eq!(ask(&in_first, &ether(A, B).raw(EtherType::IPV4, b"").bytes()), Err(()));
        assert_eq!(ask(&rules(&["block in on em0"], Direction::Out), &plain), Ok(None));
        assert_eq!(ask(&rules(&["block on em0"], Direction::Out), &plain), Err(()));
        assert_eq!(ask(&rules(&[&format!("block on em0 dst {A}")], Direction::Out), &plain), Ok(None));
        assert!(Rules::default().is_empty());
    }

    #[test]
    fn marks_stay_and_the_last_one_counts() {
        let plain = ether(B, A).raw(EtherType::IPV4, b"").bytes();
        let lines = ["match in on em0 tag one", "pass in on em0 tag two"];
        assert_eq!(ask(&rules(&lines[..1], Direction::In), &plain), Ok(Some("one".into())));
        assert_eq!(ask(&rules(&lines, Direction::In), &plain), Ok(Some("two".into())));
    }

    #[test]
    fn fields_of_arp_are_looked_at_one_by_one() {
        let question = arp_request(A, "10.0.0.1", "10.0.0.2").bytes();
        let answer = arp_reply(A, "10.0.0.1", B, "10.0.0.2").bytes();
        let plain = ether(B, A).raw(EtherType::IPV4, [0; 28]).bytes();
        let mut reverse = question.clone();
        reverse[12..14].copy_from_slice(&RARP.0.to_be_bytes());
        reverse[21] = 3;
        for (words, met) in [
            ("arp", [true, true, false, false]),
            ("arp request", [true, false, false, false]),
            ("arp reply", [false, true, false, false]),
            ("rarp", [false, false, true, false]),
            ("rarp request", [false, false, true, false]),
            ("rarp reply", [false, false, false, false]),
            (&format!("arp sha {A}"), [true, true, false, false]),
            (&format!("arp sha {B}"), [false, false, false, false]),
            (&format!("arp tha {B}"), [false, true, false, false]),
            ("arp spa 10.0.0.1 tpa 10.0.0.2", [true, true, false, false]),
            ("arp spa 10.0.0.2", [false, false, false, false]),
            ("arp tpa 10.0.0.1", [false, false, false, false]),
        ] {
            let rules = rules(&[&format!("block in on em0 {words}")], Direction::In);
            let found = [&question, &answer, &reverse, &plain].map(|bytes| ask(&rules, bytes).is_err());
            assert_eq!(found, met, "{words}");
        }
        let cut = rules(&["block in on em0 arp"], Direction::In);
        (14..42).for_each(|len| assert_eq!(ask(&cut, &question[..len]), Ok(None), "{len}"));
        assert_eq!(EtherAddr::ZERO, artery_wire::Arp::new(&question[14..]).unwrap().target_ether());
    }
}
