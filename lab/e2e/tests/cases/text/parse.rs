//! Lines to a file. All mistakes are found at once.

use super::step::{self, Step};
use super::{Case, CaseFile, Line, Neighbor, Round, Setup, port};
use crate::cases::packet::MOST_PORTS;
use std::path::Path;

/// A mistake: its line from 1, and what is wrong.
type Found = (usize, String);

/// How long late packets are waited for when expectations are updated, in ms.
const SETTLE_MS: u64 = 100;

/// A heading of a file with its indented lines, such as `kernel:` or `case: NAME`.
struct Section {
    line: usize,
    word: String,
    rest: String,
    /// Without comments and empty lines, which files keep.
    body: Vec<Line>,
    raw: Vec<String>,
}

pub(super) fn file(path: &Path, text: &str) -> Result<CaseFile, Vec<Found>> {
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    let mut mistakes = Vec::new();
    let sections = sections(&lines, &mut mistakes);
    let mut setup = Setup { ports: 2, ..Setup::default() };
    let mut cases = Vec::new();
    // First, as packets name ports.
    for section in sections.iter().filter(|section| section.word == "ports") {
        match section.rest.parse() {
            Ok(ports) if (1..=MOST_PORTS).contains(&ports) => setup.ports = ports,
            _ => mistakes.push((section.line, format!("write 'ports: 2', of at most {MOST_PORTS}"))),
        }
    }
    for section in &sections {
        if section.word == "case" {
            cases.push(case(section, &setup, &mut mistakes));
        } else if let Err(found) = set_up(section, &mut setup) {
            mistakes.extend(found);
        }
    }
    check(&setup, &cases, &mut mistakes);
    mistakes.sort();
    if mistakes.is_empty() {
        Ok(CaseFile { path: path.to_owned(), lines, setup, cases })
    } else {
        Err(mistakes)
    }
}

fn sections(lines: &[String], mistakes: &mut Vec<Found>) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for (number, text) in (1..).zip(lines) {
        let is_comment = text.trim_start().starts_with('#') || text.trim().is_empty();
        if text.starts_with(char::is_whitespace) || text.is_empty() {
            let Some(section) = sections.last_mut() else {
                if !is_comment {
                    mistakes.push((number, "this line belongs to nothing; headings are not indented".into()));
                }
                continue;
            };
            section.raw.push(text.clone());
            if !is_comment {
                section.body.push(Line { number, text: text.trim().to_owned() });
            }
        } else if !is_comment {
            let (head, rest) = text.split_once(':').unwrap_or((text, ""));
            let (word, rest) = (head.trim().to_owned(), rest.trim().to_owned());
            sections.push(Section { line: number, word, rest, body: Vec::new(), raw: Vec::new() });
        }
    }
    sections
}

fn set_up(section: &Section, setup: &mut Setup) -> Result<(), Vec<Found>> {
    let Section { line, word, rest, body, raw } = section;
    let wrong = |message: &str| vec![(*line, message.to_owned())];
    let words: Vec<&str> = rest.split_whitespace().collect();
    match (word.as_str(), &words[..]) {
        ("ports", _) => {}
        ("artery", [_, ..]) => {
            let all = [rest.as_str()].into_iter().chain(body.iter().map(|line| line.text.as_str()));
            setup.artery = Some(Line { number: *line, text: all.collect::<Vec<_>>().join(" ") });
        }
        ("kernel", []) => setup.kernel = body.clone(),
        ("neighbor", [address, mac, "dev", device]) => setup.neighbors.push(Neighbor {
            address: (*address).into(),
            mac: (*mac).into(),
            device: (*device).into(),
        }),
        ("mtu", [name, mtu]) => {
            let port = port(name, setup.ports).map_err(|message| wrong(&message))?;
            setup.mtus.push((port, mtu.parse().map_err(|_| wrong("write 'mtu: p2 1400'"))?));
        }
        ("free", [_, ..]) => {
            for field in words {
                let (layer, field) = field.split_once('.').ok_or_else(|| wrong("write 'free: ip.id'"))?;
                setup.free.push((layer.to_owned(), field.to_owned()));
            }
        }
        ("long", [_, ..]) => setup.long = Some(rest.clone()),
        ("fence", []) => setup.fence = fence(body, setup.ports)?,
        (word, _) if word.starts_with("file ") => {
            let name = word["file ".len()..].trim();
            setup.files.push((name.to_owned(), dedented(raw)));
        }
        _ => {
            let known = "artery: COMMAND, kernel:, file NAME:, ports: N, neighbor: IP ETHER dev PORT, mtu: \
                PORT BYTES, free: LAYER.FIELD, fence:, long: REASON and case: NAME";
            return Err(wrong(&format!("unknown heading '{word}: {rest}'; headings are {known}")));
        }
    }
    Ok(())
}

/// Lines of a file, less what all are indented by.
fn dedented(lines: &[String]) -> String {
    let depth = |line: &String| line.len() - line.trim_start().len();
    let least = lines.iter().filter(|line| !line.trim().is_empty()).map(depth).min().unwrap_or(0);
    let text: Vec<&str> = lines.iter().map(|line| line.get(least..).unwrap_or("")).collect();
    text.join("\n").trim_end().to_owned() + "\n"
}

fn fence(body: &[Line], ports: u8) -> Result<Round, Vec<Found>> {
    let (mut round, mut mistakes) = (Round::default(), Vec::new());
    for line in body {
        match step::parse(line.number, &line.text, ports) {
            Ok(Step::Input(input)) => round.inputs.push(input),
            Ok(Step::Output(output)) => round.outputs.push(output),
            Ok(_) => mistakes.push((line.number, "a fence has lines 'in' and 'out' only".to_owned())),
            Err(message) => mistakes.push((line.number, message)),
        }
    }
    if mistakes.is_empty() { Ok(round) } else { Err(mistakes) }
}

fn case(section: &Section, setup: &Setup, mistakes: &mut Vec<Found>) -> Case {
    let mut case =
        Case { line: section.line, name: section.rest.clone(), settle_ms: SETTLE_MS, ..Case::default() };
    for line in &section.body {
        match step::parse(line.number, &line.text, setup.ports) {
            Ok(Step::Input(input)) => inward(&mut case.rounds, line.number).inputs.push(input),
            Ok(Step::Command(command)) => inward(&mut case.rounds, line.number).commands.push(command),
            Ok(Step::Output(output)) => {
                let Some(round) = case.rounds.last_mut() else {
                    mistakes.push((line.number, "nothing goes in before this comes out".into()));
                    continue;
                };
                round.outputs.push(output);
                round.output_lines.end = line.number;
            }
            Ok(Step::Counter(counter)) => case.counters.push(counter),
            Ok(Step::Show(show)) => case.shows.push(show),
            Ok(Step::Differs(reason)) => case.differs = Some(reason),
            Ok(Step::ArteryOnly(reason)) => case.artery_only = Some(reason),
            Ok(Step::Settle(ms)) => case.settle_ms = ms,
            Ok(Step::Then) => {
                let output_lines = line.number..line.number;
                case.rounds.push(Round { output_lines, ..Round::default() });
            }
            Err(message) => mistakes.push((line.number, message)),
        }
    }
    case
}

/// The round that a line of what goes in belongs to: a new one after what came out.
fn inward(rounds: &mut Vec<Round>, number: usize) -> &mut Round {
    if rounds.last().is_none_or(|round| !round.outputs.is_empty()) {
        rounds.push(Round::default());
    }
    let last = rounds.last_mut().expect("there is one now");
    last.output_lines = number..number;
    last
}

/// What can be wrong about lines that are right one by one.
fn check(setup: &Setup, cases: &[Case], mistakes: &mut Vec<Found>) {
    if setup.artery.is_none() {
        mistakes.push((1, "nothing starts Artery; write 'artery: router --port p1=10.0.1.1/24 …'".into()));
    }
    if setup.fence.inputs.is_empty() || setup.fence.outputs.is_empty() {
        let remedy = "write 'fence:' with a packet in at each port, and what comes of it";
        mistakes.push((1, format!("nothing tells when all packets have been dealt with; {remedy}")));
    }
    let fenced = |port: u8| setup.fence.inputs.iter().any(|input| input.port == port);
    for case in cases {
        if case.rounds.is_empty() {
            mistakes.push((case.line, "the case does nothing; write 'in p1: PACKET'".into()));
        }
        if let Some(input) = case.inputs().find(|input| !fenced(input.port)) {
            let port = input.port;
            mistakes.push((case.line, format!("a packet goes in at p{port}, where the fence has none")));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CaseFile, Who};
    use std::path::Path;

    const SETUP: &str = "artery: router --port p1=10.0.1.1/24\n    --no-host\nfence:\n    \
         in p1: ip 1.1.1.1 > 2.2.2.2 proto 1\n    out p1: ip 1.1.1.1 > 2.2.2.2 proto 1\n";

    fn parse(text: &str) -> Result<CaseFile, Vec<String>> {
        let parsed = CaseFile::parse(Path::new("a.test"), &format!("{SETUP}{text}"));
        parsed.map_err(|mistakes| mistakes.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn what_goes_in_after_what_came_out_is_another_round() {
        let packet = "ip 1.1.1.1 > 2.2.2.2 proto 1";
        let file = parse(&format!(
            "case: two rounds\n    in p1: {packet}\n    # A comment.\n    out p2: {packet}\n    \
             artery out p2: {packet}\n    in p1: {packet}\n    then:\n    in p1: {packet}\n"
        ))
        .unwrap();
        let rounds = &file.cases[0].rounds;
        let sizes: Vec<(usize, usize)> =
            rounds.iter().map(|round| (round.inputs.len(), round.outputs.len())).collect();
        assert_eq!(sizes, [(1, 2), (1, 0), (1, 0)]);
        assert_eq!(rounds[0].output_lines, 7..10);
        assert_eq!(rounds[0].outputs[1].who, Who::Artery);
        assert!(file.cases[0].unexplained().unwrap().contains("say why with 'differs: REASON'"));
        assert_eq!(file.setup.artery.unwrap().text, "router --port p1=10.0.1.1/24 --no-host");
    }

    #[test]
    fn all_mistakes_are_found_with_their_lines_and_what_to_do() {
        let text = "ports: 9\nlink: p1\ncase: nothing\ncase: wrong\n    in p3: ip 1.1.1.1 > 2.2.2.2\n    \
             out p1: ip 1.1.1.1\n    counter: drops\n    go: there\n";
        let mistakes = parse(text).unwrap_err();
        let expected = [
            "a.test:6: write 'ports: 2', of at most 8",
            "a.test:7: unknown heading 'link: p1'; headings are artery: COMMAND",
            "a.test:8: the case does nothing; write 'in p1: PACKET'",
            "a.test:9: the case does nothing",
            "a.test:10: 'p3' is not a port; ports are p1 to p2",
            "a.test:11: write ip SOURCE > DESTINATION",
            "a.test:12: write 'counter: ttl-expired +1'",
            "a.test:13: unknown line 'go:'; write 'in p1: PACKET'",
        ];
        assert_eq!(mistakes.len(), expected.len(), "{mistakes:#?}");
        for (mistake, expected) in mistakes.iter().zip(expected) {
            assert!(mistake.starts_with(expected), "{mistake}: {expected}");
        }
    }

    #[test]
    fn a_case_uses_ports_that_the_fence_has() {
        let mistakes = parse("case: elsewhere\n    in p2: ip 1.1.1.1 > 2.2.2.2 proto 1\n").unwrap_err();
        assert!(mistakes[0].contains("a packet goes in at p2, where the fence has none"), "{mistakes:?}");
    }

    #[test]
    fn files_keep_their_lines_without_the_indentation() {
        let file = parse(
            "file pf.conf:\n    # Rules.\n    block\n      pass\n\ncase: one\
             \n    in p1: ip 1.1.1.1 > 2.2.2.2 proto 1\n",
        );
        assert_eq!(file.unwrap().setup.files, [("pf.conf".into(), "# Rules.\nblock\n  pass\n".into())]);
    }
}
