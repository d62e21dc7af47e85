//! `artery flow import`: all of an export is checked before the first flow goes to the router.
use super::balancer::{Balancer, sum};
use super::json::{self, Line};
use crate::load::system_message;
use crate::voice::{Voice, print};
use anyhow::{anyhow, bail};
use artery_elements::flows::{Item, Reader, StreamFlow, write_header, write_item};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use std::collections::{BTreeMap, HashMap, HashSet};
use std::io::Read as _;
use std::path::Path;

/// Flows that go to the router at a time: packets wait for no more than these.
const CHUNK: u64 = 512;
/// Most members that an export can name.
const MOST_MEMBERS: usize = 1 << 16;

/// Has the router take the flows of an export over.
pub(super) fn import(balancer: &mut Balancer, file: Option<&Path>) -> anyhow::Result<u8> {
    let file = file.filter(|path| path.as_os_str() != "-");
    let name = file.map_or("standard input".to_string(), |path| path.display().to_string());
    let bytes = match file {
        Some(path) => std::fs::read(path),
        None => {
            let mut bytes = Vec::new();
            std::io::stdin().lock().read_to_end(&mut bytes).map(|_| bytes)
        }
    };
    let bytes = bytes.map_err(|error| anyhow!("can't read {name}: {}", system_message(&error)))?;
    let is_binary = bytes.first() == Some(&artery_elements::flows::MAGIC[0]);
    let read = if is_binary { Ok(bytes) } else { binary(&bytes) };
    let stream = read.map_err(|wrong| anyhow!("{name}: {wrong}; nothing was imported"))?;
    let flows = check(&stream).map_err(|wrong| anyhow!("{name}: {wrong}; nothing was imported"))?;
    warn_of_strangers(balancer, &flows)?;
    let before = balancer.ask_workers("exchange", "")?;
    send(balancer, &stream)?;
    let after = balancer.ask_workers("exchange", "")?;
    let total: u64 = flows.values().sum();
    print(&report(total, &before, &after)).map(|()| 0)
}

/// The binary form of lines of JSON.
fn binary(text: &[u8]) -> Result<Vec<u8>, String> {
    let (mut stream, mut names) = (Vec::with_capacity(text.len() / 4), HashMap::<String, u16>::new());
    write_header(&mut stream);
    let (mut count, mut has_first, mut has_last) = (0_u64, false, false);
    for (at, line) in text.split(|byte| *byte == b'\n').enumerate() {
        if line.trim_ascii().is_empty() {
            continue;
        }
        let wrong = |wrong: String| format!("record {}, on line {}: {wrong}", count + 1, at + 1);
        match json::read(line).map_err(wrong)? {
            _ if has_last => return Err(wrong("it comes after the end of the export".to_string())),
            Line::First if has_first || count > 0 => {
                return Err(wrong("an export begins within another".to_string()));
            }
            Line::First => has_first = true,
            Line::Last(said) if said == count => has_last = true,
            Line::Last(said) => {
                return Err(wrong(format!("{count} flows came, and {said} are said to have come")));
            }
            Line::Flow(flow, name) => {
                let number = number(&mut names, &name, &mut stream)
                    .ok_or_else(|| wrong("too many members".to_string()))?;
                write_item(&Item::Flow(with_member(flow, number)), &mut stream);
                count += 1;
            }
        }
    }
    if !has_last && (has_first || count == 0) {
        return Err(format!("record {}: the export is cut off here", count + 1));
    }
    write_item(&Item::End(count), &mut stream);
    Ok(stream)
}

/// The number of a member in a stream, which names it first.
fn number(names: &mut HashMap<String, u16>, name: &str, stream: &mut Vec<u8>) -> Option<u16> {
    if let Some(number) = names.get(name) {
        return Some(*number);
    }
    let number = u16::try_from(names.len()).ok().filter(|_| names.len() < MOST_MEMBERS)?;
    names.insert(name.to_string(), number);
    write_item(&Item::Member(number, name), stream);
    Some(number)
}

fn with_member(mut flow: StreamFlow, number: u16) -> StreamFlow {
    flow.answer.action = number.into();
    flow
}

/// Checks a whole stream; gives the number of flows for each name.
fn check(stream: &[u8]) -> Result<BTreeMap<&str, u64>, String> {
    let mut reader = Reader::new(stream).map_err(|wrong| wrong.to_string())?;
    let (mut names, mut counts, mut flows) = (HashMap::new(), Vec::<u64>::new(), BTreeMap::new());
    let mut record = 1_u64;
    loop {
        match reader.item().map_err(|wrong| format!("record {record}: {wrong}"))? {
            None => break,
            Some(Item::End(_)) => {}
            Some(Item::Member(number, name)) => {
                let at = *flows.entry(name).or_insert_with(|| {
                    counts.push(0);
                    counts.len() - 1
                });
                names.insert(number, at);
            }
            Some(Item::Flow(flow)) => {
                record += 1;
                let named = names.get(&(flow.answer.action as u16)).and_then(|at| counts.get_mut(*at));
                named.into_iter().for_each(|count| *count += 1);
            }
        }
    }
    Ok(flows.into_iter().map(|(name, at)| (name, counts[at])).collect())
}

/// Tells of members that are unknown to the router.
fn warn_of_strangers(balancer: &mut Balancer, flows: &BTreeMap<&str, u64>) -> anyhow::Result<()> {
    let members = balancer.ask("members", "")?;
    let known: HashSet<&str> = members.lines().filter_map(|line| line.split(' ').next()).collect();
    for (name, count) in flows.iter().filter(|(name, count)| **count > 0 && !known.contains(**name)) {
        Voice::artery()
            .warning(&format!("this router has no member '{name}': its {count} flows are left out"));
    }
    Ok(())
}

/// Sends a stream that was checked, in small streams of its flows.
fn send(balancer: &mut Balancer, stream: &[u8]) -> anyhow::Result<()> {
    let mut names = HashMap::new();
    let (mut chunk, mut named, mut count) = (Vec::new(), HashSet::new(), 0);
    let mut reader = Reader::new(stream)?;
    while let Some(item) = reader.item()? {
        match item {
            Item::Member(number, name) => {
                // What the number meant until now went before.
                if names.insert(number, name).is_some_and(|old| old != name) {
                    named.remove(&number);
                }
            }
            Item::Flow(flow) => {
                if chunk.is_empty() {
                    write_header(&mut chunk);
                }
                let number = flow.answer.action as u16;
                if named.insert(number) {
                    let Some(name) = names.get(&number) else { bail!("a member without name was checked") };
                    write_item(&Item::Member(number, name), &mut chunk);
                }
                write_item(&Item::Flow(flow), &mut chunk);
                count += 1;
            }
            Item::End(_) => {}
        }
        if count == CHUNK || matches!(item, Item::End(_)) && count > 0 {
            write_item(&Item::End(count), &mut chunk);
            balancer.tell("import_flows", &BASE64_STANDARD.encode(&chunk))?;
            (chunk, named, count) = (Vec::new(), HashSet::new(), 0);
        }
    }
    Ok(())
}

/// What became of the flows, for people.
fn report(total: u64, before: &[serde_json::Value], after: &[serde_json::Value]) -> String {
    let mut text = format!("{total} flows read\n");
    for (n, worker) in after.iter().enumerate() {
        let of = |key: &str| {
            let start = before.get(n).map_or(0, |before| sum(std::slice::from_ref(before), key));
            sum(std::slice::from_ref(worker), key).saturating_sub(start)
        };
        text += &format!(
            "worker {}: {} new, {} newer, {} known before, {} without room, {} of members and {} of services not here\n",
            worker["worker"],
            of("new"),
            of("newer"),
            of("known"),
            of("no_room"),
            of("no_member"),
            of("no_service"),
        );
    }
    if after.len() > 1 {
        text += "each worker has all of them: which will see a flow's packets is not known\n";
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(port: u16) -> String {
        let rest = "\"dst\":\"192.0.2.1\",\"dport\":80,\"member\":\"a\"}";
        format!("{{\"protocol\":\"tcp\",\"src\":\"198.51.100.7\",\"sport\":{port},{rest}\n")
    }

    #[test]
    fn lines_are_an_export_with_or_without_a_beginning_and_an_end_but_not_with_one_alone() {
        let flows = line(1) + &line(2);
        for text in [flows.clone(), json::FIRST_LINE.to_string() + &flows + &json::last_line(2)] {
            assert_eq!(check(&binary(text.as_bytes()).unwrap()).unwrap()["a"], 2);
        }
        let first = json::FIRST_LINE;
        for (text, expected) in [
            (String::new(), "record 1: the export is cut off here"),
            (format!("{first}{flows}"), "record 3: the export is cut off here"),
            (format!("{first}{flows}{}", json::last_line(3)), "record 3, on line 4: 2 flows came, and 3"),
            (format!("{first}{first}"), "record 1, on line 2: an export begins within"),
            (format!("{flows}{}{flows}", json::last_line(2)), "record 3, on line 4: it comes after the end"),
            (format!("{flows}{}", line(0)), "record 3, on line 3: port 0"),
        ] {
            let wrong = binary(text.as_bytes()).unwrap_err();
            assert!(wrong.starts_with(expected), "{wrong}");
        }
    }
}
