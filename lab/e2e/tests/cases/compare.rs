//! What came out against what was expected: by port, as sets, since only a port's own order is kept and
//! exceptions may pass others.

use super::packet::{self, UsualHeader};
use super::side::Output;
use super::text::{CaseFile, Round, Who, usual};

/// A line of outputs as cases write it, without the side: `out p2: ip …`.
pub(super) fn line(output: &Output, file: &CaseFile) -> String {
    text(output.port, &output.frame, file)
}

fn text(port: u8, frame: &[u8], file: &CaseFile) -> String {
    let free: &[_] = if is_from_router(frame, file) { &file.setup.free } else { &[] };
    format!("out p{port}: {}", packet::describe(frame, usual(port, false), free))
}

/// Whether a packet's source is one of Artery's own addresses.
fn is_from_router(frame: &[u8], file: &CaseFile) -> bool {
    if file.setup.free.is_empty() {
        return false;
    }
    let usual = UsualHeader { src: artery_wire::EtherAddr::ZERO, dst: artery_wire::EtherAddr::ZERO };
    let described = packet::describe(frame, usual, &[]);
    let mut words = described.split(' ').skip_while(|word| !matches!(*word, "ip" | "ip6"));
    let source = words.nth(1);
    source.is_some_and(|source| file.own_addresses().iter().any(|own| own == source))
}

pub(super) fn is_same(output: &Output, port: u8, frame: &[u8], file: &CaseFile) -> bool {
    output.port == port
        && (output.frame == frame || text(port, &output.frame, file) == text(port, frame, file))
}

/// The text of an Ethernet address that a file gives by name.
pub(super) fn mac(name: &str) -> String {
    packet::mac_of(name).map_or_else(|| name.to_owned(), |mac| mac.to_string())
}

/// What is expected of a side in a round, as lines.
pub(super) fn expected(round: &Round, who: Who, file: &CaseFile) -> Vec<String> {
    let of_side = round.outputs.iter().filter(|expected| expected.who.includes(who));
    of_side.map(|expected| text(expected.port, &expected.frame, file)).collect()
}

/// Lines that are in one list more often than in another.
pub(super) fn beyond(lines: &[String], other: &[String]) -> Vec<String> {
    let mut rest = other.to_vec();
    let mut is_extra = |line: &&String| match rest.iter().position(|other| other == *line) {
        Some(at) => {
            rest.remove(at);
            false
        }
        None => true,
    };
    lines.iter().filter(|line| is_extra(line)).cloned().collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_compared_by_how_often_they_come() {
        let lines = |text: &str| text.split(' ').map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(beyond(&lines("a b a"), &lines("b a")), ["a"]);
        assert!(beyond(&lines("b a"), &lines("a b a")).is_empty());
    }
}
