//! An export in lines of JSON, read and checked to its end: blocks of whole lines, on as many threads
//! as there are processors.
use super::chunks::{self, Checked, Chunk};
use super::json::{self, Line};
use super::written;
use artery_flow::stream::{StreamFlow, StreamItem, write_item};
use std::collections::HashMap;
use std::io::{self, Read};
use std::sync::mpsc::{Receiver, Sender, channel, sync_channel};
use std::sync::{Mutex, PoisonError};
use std::thread;

/// Bytes of a block, or more if a line is longer.
const BLOCK: usize = 1 << 20;
/// The most threads that parse blocks.
const THREADS: usize = 8;

/// Why there is nothing to import.
#[derive(Debug)]
pub(super) enum Unread {
    /// It can't be read.
    Io(io::Error),
    /// It makes no sense.
    Wrong(String),
}

/// Reads lines from `begin`, which was read before, and then from `more`.
pub(super) fn read(begin: Vec<u8>, mut more: impl Read) -> Result<Checked<'static>, Unread> {
    let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS);
    let (blocks, to_do) = sync_channel::<(usize, Vec<u8>)>(threads);
    let (done, parts) = channel();
    let to_do = Mutex::new(to_do);
    let read = thread::scope(|scope| {
        for _ in 0..threads {
            let done = done.clone();
            scope.spawn(|| work(&to_do, done));
        }
        let mut lines = Blocks { line: begin, more: &mut more, has_ended: false };
        let mut count = 0;
        while let Some(block) = lines.next()? {
            // The threads live until there are no more blocks.
            let _ = blocks.send((count, block));
            count += 1;
        }
        drop(blocks);
        Ok(())
    });
    drop(done);
    read.map_err(Unread::Io)?;
    let mut parts: Vec<(usize, Part)> = parts.into_iter().collect();
    parts.sort_unstable_by_key(|(at, _)| *at);
    joined(parts.into_iter().map(|(_, part)| part)).map_err(Unread::Wrong)
}

/// Reads lines without threads.
#[cfg(any(test, feature = "fuzz"))]
pub(super) fn check(bytes: &[u8]) -> Result<Checked<'static>, String> {
    joined([part(bytes)].into_iter())
}

/// Reads blocks for as long as there are any.
fn work(blocks: &Mutex<Receiver<(usize, Vec<u8>)>>, done: Sender<(usize, Part)>) {
    loop {
        let next = blocks.lock().unwrap_or_else(PoisonError::into_inner).recv();
        let Ok((at, block)) = next else { return };
        // The receiver lives until all threads have ended.
        let _ = done.send((at, part(&block)));
    }
}

/// Splits the input into blocks of whole lines.
struct Blocks<R> {
    /// The part of the next block's first line that was read already.
    line: Vec<u8>,
    more: R,
    has_ended: bool,
}

impl<R: Read> Blocks<R> {
    fn next(&mut self) -> io::Result<Option<Vec<u8>>> {
        let mut block = std::mem::take(&mut self.line);
        let mut looked_at = 0;
        while !self.has_ended {
            if block.len() >= BLOCK {
                if let Some(end) = block[looked_at..].iter().rposition(|byte| *byte == b'\n') {
                    self.line.reserve_exact(2 * BLOCK);
                    self.line.extend_from_slice(&block[looked_at + end + 1..]);
                    block.truncate(looked_at + end + 1);
                    return Ok(Some(block));
                }
                looked_at = block.len();
            }
            let count = self.more.by_ref().take(BLOCK as u64).read_to_end(&mut block)?;
            self.has_ended = count < BLOCK;
        }
        Ok(Some(block).filter(|block| !block.is_empty()))
    }
}

/// What a block has. Lines and flows are counted from its first.
#[derive(Default)]
struct Part {
    chunks: Vec<Chunk<'static>>,
    counts: Vec<(String, u64)>,
    flows: u64,
    lines: usize,
    /// The first line that is not empty.
    first: Option<usize>,
    /// Whether that begins an export.
    begins: bool,
    /// Where an export ends, the flows before that, and how many there should be.
    end: Option<(usize, u64, u64)>,
    wrong: Option<Wrong>,
}

/// The mistake in a line, and how many flows come before it.
struct Wrong {
    line: usize,
    flows: u64,
    why: String,
}

/// Reads a block, as far as it makes sense.
fn part(block: &[u8]) -> Part {
    let (mut part, mut members, mut rest) = (Part::default(), Members::default(), block);
    while !rest.is_empty() {
        let read = match written::flow(rest) {
            Some((flow, name, behind)) => {
                rest = behind;
                part.flow(flow, name, &mut members)
            }
            None => {
                let end = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
                let line = &rest[..end];
                rest = rest.get(end + 1..).unwrap_or(&[]);
                part.line(line, &mut members)
            }
        };
        if let Err(why) = read {
            part.wrong = Some(Wrong { line: part.lines, flows: part.flows, why });
            break;
        }
        part.lines += 1;
    }
    members.close(&mut part.chunks);
    part.counts = members.numbers.into_iter().map(|(name, member)| (name, member.flows)).collect();
    part
}

const BEHIND: &str = "it comes after the end of the export";
const WITHIN: &str = "an export begins within another";

impl Part {
    /// Takes a line of any kind.
    fn line(&mut self, line: &[u8], members: &mut Members) -> Result<(), String> {
        if line.trim_ascii().is_empty() {
            return Ok(());
        }
        if self.end.is_some() {
            return Err(BEHIND.to_string());
        }
        let is_first = self.first.is_none();
        self.first.get_or_insert(self.lines);
        match json::read(line)? {
            Line::Flow(flow, name) => return self.flow(flow, &name, members),
            Line::First if !is_first => return Err(WITHIN.to_string()),
            Line::First => self.begins = true,
            Line::Last(said) => self.end = Some((self.lines, self.flows, said)),
        }
        Ok(())
    }

    #[inline]
    fn flow(&mut self, flow: StreamFlow, name: &str, members: &mut Members) -> Result<(), String> {
        if self.end.is_some() {
            return Err(BEHIND.to_string());
        }
        members.add(flow, name, &mut self.chunks).ok_or("too many members")?;
        self.first.get_or_insert(self.lines);
        self.flows += 1;
        Ok(())
    }
}

/// The members of a block, and its chunk under way.
#[derive(Default)]
struct Members {
    numbers: HashMap<String, InBlock>,
    items: Vec<u8>,
    flows: u64,
    chunk: usize,
}

struct InBlock {
    number: u16,
    flows: u64,
    /// The last chunk in which the member was written.
    chunk: usize,
}

impl Members {
    #[inline]
    fn add(&mut self, mut flow: StreamFlow, name: &str, chunks: &mut Vec<Chunk<'static>>) -> Option<()> {
        if !self.numbers.contains_key(name) {
            let number = u16::try_from(self.numbers.len()).ok()?;
            self.numbers.insert(name.to_string(), InBlock { number, flows: 0, chunk: usize::MAX });
        }
        let member = self.numbers.get_mut(name)?;
        if std::mem::replace(&mut member.chunk, self.chunk) != self.chunk {
            write_item(&StreamItem::Member(member.number, name), &mut self.items);
        }
        member.flows += 1;
        flow.answer.action = member.number.into();
        write_item(&StreamItem::Flow(flow), &mut self.items);
        self.flows += 1;
        if self.flows == chunks::FLOWS {
            self.close(chunks);
        }
        Some(())
    }

    fn close(&mut self, chunks: &mut Vec<Chunk<'static>>) {
        if self.flows > 0 {
            let room = Vec::with_capacity(self.items.len());
            chunks.push(Chunk::of(std::mem::replace(&mut self.items, room), std::mem::take(&mut self.flows)));
            self.chunk += 1;
        }
    }
}

/// All blocks together, unless they make no sense; the first reason counts.
fn joined(parts: impl Iterator<Item = Part>) -> Result<Checked<'static>, String> {
    let (mut all, mut flows, mut lines) = (Checked::default(), 0, 0);
    let (mut is_begun, mut has_any, mut has_ended) = (false, false, false);
    for part in parts {
        let wrong = |line: usize, before: u64, why: &str| {
            Err(format!("record {}, on line {}: {why}", flows + before + 1, lines + line + 1))
        };
        let at_fault = part.wrong.as_ref();
        match part.first {
            Some(line) if has_ended => return wrong(line, 0, BEHIND),
            Some(line) if part.begins && has_any => return wrong(line, 0, WITHIN),
            _ => {}
        }
        if let Some((line, before, said)) = part.end.filter(|(_, before, said)| flows + before != *said) {
            let why = format!("{} flows came, and {said} are said to have come", flows + before);
            return wrong(line, before, &why);
        }
        if let Some(Wrong { line, flows, why }) = at_fault {
            return wrong(*line, *flows, why);
        }
        (is_begun, has_any) = (is_begun || part.begins, has_any || part.first.is_some());
        has_ended |= part.end.is_some();
        (flows, lines) = (flows + part.flows, lines + part.lines);
        all.chunks.extend(part.chunks);
        part.counts.into_iter().for_each(|(name, count)| *all.flows.entry(name).or_default() += count);
    }
    match !has_ended && (is_begun || flows == 0) {
        true => Err(format!("record {}: the export is cut off here", flows + 1)),
        false => Ok(all),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(port: u16) -> String {
        let rest = "\"dst\":\"192.0.2.1\",\"dport\":80,\"member\":\"a\"}";
        format!("{{\"protocol\":\"tcp\",\"src\":\"198.51.100.7\",\"sport\":{port},{rest}\n")
    }

    /// The flows of a text, or the mistake; the same whether all of it or each line is a block of its own.
    fn outcome(text: &str) -> Result<u64, String> {
        let each = || text.split_inclusive('\n').map(|line| part(line.as_bytes()));
        let all = joined([part(text.as_bytes())].into_iter());
        let all = all.map(|all| all.flows.get("a").copied().unwrap_or(0));
        assert_eq!(joined(each()).map(|all| all.flows.get("a").copied().unwrap_or(0)), all, "{text}");
        let read = read(text.as_bytes()[..1.min(text.len())].to_vec(), &text.as_bytes()[1.min(text.len())..]);
        let read = read.map(|all| all.flows.get("a").copied().unwrap_or(0));
        let found = read.map_err(|wrong| format!("{wrong:?}"));
        assert_eq!(found, all.clone().map_err(|why| format!("{:?}", Unread::Wrong(why))));
        all
    }

    #[test]
    fn lines_are_an_export_with_or_without_a_beginning_and_an_end_but_not_with_one_alone() {
        let flows = line(1) + &line(2);
        let (first, last) = (json::FIRST_LINE, json::last_line(2));
        for text in
            [flows.clone(), format!("{first}{flows}{last}"), format!("\n{first}\r\n\n{flows} {last}\n\n")]
        {
            assert_eq!(outcome(&text), Ok(2));
        }
        assert_eq!(outcome(&format!("{first}{}", json::last_line(0))), Ok(0));
        for (text, expected) in [
            (String::new(), "record 1: the export is cut off here"),
            (format!("{first}{flows}"), "record 3: the export is cut off here"),
            (format!("{first}{flows}{}", json::last_line(3)), "record 3, on line 4: 2 flows came, and 3"),
            (format!("{first}{first}"), "record 1, on line 2: an export begins within"),
            (format!("{flows}{first}"), "record 3, on line 3: an export begins within"),
            (format!("{flows}{last}{flows}"), "record 3, on line 4: it comes after the end"),
            (format!("{flows}{last}\n{last}"), "record 3, on line 5: it comes after the end"),
            (format!("{flows}{}{flows}", json::last_line(1)), "record 3, on line 3: 2 flows came, and 1"),
            (format!("{flows}{}", line(0)), "record 3, on line 3: port 0"),
            (format!("{flows}\n\n{{\n{}", line(0)), "record 3, on line 5: EOF"),
            (format!("{flows}\n{}{}", line(3), line(0)), "record 4, on line 5: port 0"),
        ] {
            let wrong = outcome(&text).unwrap_err();
            assert!(wrong.starts_with(expected), "{wrong}");
        }
    }

    #[test]
    fn blocks_are_whole_lines_and_together_what_was_read() {
        let long = "x".repeat(3 * BLOCK) + "\n";
        for text in
            [long.clone() + "a\n" + &long + "b", "ab\n".repeat(BLOCK), "\n".repeat(BLOCK), String::new()]
        {
            let mut blocks = Blocks { line: Vec::new(), more: text.as_bytes(), has_ended: false };
            let (mut all, mut count) = (Vec::new(), 0);
            while let Some(block) = blocks.next().unwrap() {
                assert!(all.last().is_none_or(|byte| *byte == b'\n') && !block.is_empty());
                all.extend(block);
                count += 1;
            }
            assert!(all == text.as_bytes() && count <= text.len().div_ceil(BLOCK));
        }
    }

    #[test]
    fn many_flows_of_many_members_go_in_chunks_that_name_their_own() {
        let texts = (0..3000_u16).map(|n| line(n + 1).replace("\"a\"", &format!("\"web{}\"", n % 700)));
        let read = read(Vec::new(), texts.collect::<String>().as_bytes()).unwrap();
        assert_eq!(read.flows.len(), 700);
        let mut counts = std::collections::BTreeMap::<String, u64>::new();
        for chunk in &read.chunks {
            let alone = chunks::tests::stream(chunk);
            let alone = chunks::check(&alone).unwrap();
            assert!(alone.flows.values().sum::<u64>() <= chunks::FLOWS);
            alone.flows.into_iter().for_each(|(name, count)| *counts.entry(name).or_default() += count);
        }
        assert_eq!(counts, read.flows);
    }
}
