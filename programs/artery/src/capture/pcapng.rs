//! Files of the format pcapng (draft-ietf-opsawg-pcapng): a section, its interfaces as they are met,
//! and frames with comments.
use anyhow::Context as _;
use artery_device::create_private;
use std::io::{self, BufWriter, Write};
use std::path::Path;

const SECTION: u32 = 0x0a0d_0d0a;
const INTERFACE: u32 = 1;
const ENHANCED_PACKET: u32 = 6;
const BYTE_ORDER: u32 = 0x1a2b_3c4d;
/// What frames begin with: an Ethernet header.
const ETHERNET: u16 = 1;

/// Options: the end of them, a comment, a program, an interface's name, and the unit of its times.
const END: u16 = 0;
const COMMENT: u16 = 1;
const PROGRAM: u16 = 4;
const NAME: u16 = 2;
const TIME_UNIT: u16 = 9;
/// Nanoseconds: ten to the minus ninth.
const NANOSECONDS: u8 = 9;

/// Writes a file, in this machine's byte order.
pub(super) struct Writer {
    name: String,
    sink: BufWriter<Box<dyn Write>>,
    interfaces: Vec<String>,
}

impl Writer {
    /// Creates a file, or empties it; `-` is standard output.
    pub(super) fn create(path: &Path) -> anyhow::Result<Writer> {
        let name = path.display().to_string();
        let sink: Box<dyn Write> = match name.as_str() {
            "-" => Box::new(io::stdout()),
            _ => Box::new(create_private(path).with_context(|| format!("can't write {name}"))?),
        };
        Writer::new(name, sink)
    }

    fn new(name: String, sink: Box<dyn Write>) -> anyhow::Result<Writer> {
        let mut writer = Writer { name, sink: BufWriter::new(sink), interfaces: Vec::new() };
        let mut body = BYTE_ORDER.to_ne_bytes().to_vec();
        // Version 1.0, and no section length (-1).
        body.extend([1u16.to_ne_bytes(), 0u16.to_ne_bytes()].concat());
        body.extend(u64::MAX.to_ne_bytes());
        option(&mut body, PROGRAM, concat!("artery ", env!("CARGO_PKG_VERSION")).as_bytes());
        option(&mut body, END, &[]);
        writer.block(SECTION, &body)?;
        // A program that reads along gets the header at once.
        writer.flush()?;
        Ok(writer)
    }

    /// Writes a frame that had `length` bytes, of which `bytes` are known, at a time in
    /// nanoseconds since the epoch.
    pub(super) fn write(
        &mut self,
        interface: &str,
        time: u64,
        length: u32,
        bytes: &[u8],
        comment: &str,
    ) -> anyhow::Result<()> {
        let interface = self.interface(interface)?;
        let mut body = Vec::with_capacity(bytes.len() + 64);
        for word in [interface, (time >> 32) as u32, time as u32, bytes.len() as u32, length] {
            body.extend(word.to_ne_bytes());
        }
        body.extend(bytes);
        pad(&mut body);
        option(&mut body, COMMENT, comment.as_bytes());
        option(&mut body, END, &[]);
        self.block(ENHANCED_PACKET, &body)
    }

    /// Hands over what was written so far.
    pub(super) fn flush(&mut self) -> anyhow::Result<()> {
        self.sink.flush().with_context(|| format!("can't write {}", self.name))
    }

    /// The number of an interface, which is described before its first frame.
    fn interface(&mut self, name: &str) -> anyhow::Result<u32> {
        if let Some(known) = self.interfaces.iter().position(|known| known == name) {
            return Ok(known as u32);
        }
        let mut body = [ETHERNET.to_ne_bytes(), 0u16.to_ne_bytes()].concat();
        // No bound on the length of frames.
        body.extend(0u32.to_ne_bytes());
        option(&mut body, NAME, name.as_bytes());
        option(&mut body, TIME_UNIT, &[NANOSECONDS]);
        option(&mut body, END, &[]);
        self.block(INTERFACE, &body)?;
        self.interfaces.push(name.to_string());
        Ok(self.interfaces.len() as u32 - 1)
    }

    /// Writes a block: its kind, its length, the body, and the length again.
    fn block(&mut self, kind: u32, body: &[u8]) -> anyhow::Result<()> {
        let length = (body.len() as u32 + 12).to_ne_bytes();
        let block = [&kind.to_ne_bytes(), &length, body, &length].concat();
        self.sink.write_all(&block).with_context(|| format!("can't write {}", self.name))
    }
}

/// Adds an option of at most 65,535 bytes.
fn option(body: &mut Vec<u8>, code: u16, value: &[u8]) {
    let value = &value[..value.len().min(usize::from(u16::MAX))];
    body.extend(code.to_ne_bytes());
    body.extend((value.len() as u16).to_ne_bytes());
    body.extend(value);
    pad(body);
}

/// Fills up to a multiple of four bytes; bodies begin at one.
fn pad(body: &mut Vec<u8>) {
    body.resize(body.len().next_multiple_of(4), 0);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The kinds and bodies of the blocks of a file.
    fn blocks(mut file: &[u8]) -> Vec<(u32, Vec<u8>)> {
        let word = |bytes: &[u8]| u32::from_ne_bytes(bytes[..4].try_into().unwrap());
        let mut blocks = Vec::new();
        while !file.is_empty() {
            let length = word(&file[4..]) as usize;
            assert_eq!((length % 4, word(&file[length - 4..]) as usize), (0, length));
            blocks.push((word(file), file[8..length - 4].to_vec()));
            file = &file[length..];
        }
        blocks
    }

    #[test]
    fn an_interface_is_described_before_its_first_frame() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("a");
        let mut writer = Writer::create(&path).unwrap();
        writer.write("eth0", 5 << 32 | 6, 99, &[1, 2, 3], "forwarded to eth1").unwrap();
        writer.write("eth1", 7, 3, &[4, 5, 6], "").unwrap();
        writer.write("eth0", 8, 3, &[7, 8, 9], "").unwrap();
        writer.flush().unwrap();
        let blocks = blocks(&std::fs::read(&path).unwrap());
        let kinds: Vec<u32> = blocks.iter().map(|(kind, _)| *kind).collect();
        assert_eq!(kinds, [SECTION, INTERFACE, ENHANCED_PACKET, INTERFACE, ENHANCED_PACKET, ENHANCED_PACKET]);
        let words: Vec<u32> =
            blocks[2].1.chunks(4).take(5).map(|b| u32::from_ne_bytes(b.try_into().unwrap())).collect();
        assert_eq!(words, [0, 5, 6, 3, 99]);
        assert_eq!(&blocks[2].1[20..24], [1, 2, 3, 0]);
        assert!(blocks[2].1.windows(17).any(|text| text == b"forwarded to eth1"));
        assert_eq!((blocks[4].1[0], blocks[5].1[0]), (1, 0), "frames name their interfaces");
    }

    #[test]
    fn a_folder_that_is_not_there_is_named() {
        let error = Writer::create(Path::new("/nowhere/a")).map(drop).unwrap_err();
        assert!(error.to_string().contains("/nowhere/a"));
    }
}
