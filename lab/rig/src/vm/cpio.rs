//! An archive as the kernel unpacks it into its first root file system (format "newc").

/// The name of the entry that ends an archive.
const TRAILER: &str = "TRAILER!!!";
const DIRECTORY: u32 = 0o040_755;
const PROGRAM: u32 = 0o100_755;

/// An archive that grows.
#[derive(Default)]
pub(super) struct Cpio {
    bytes: Vec<u8>,
    entries: u32,
}

impl Cpio {
    /// Adds a directory; those above it must be there already.
    pub(super) fn directory(&mut self, name: &str) {
        self.entry(name, DIRECTORY, &[]);
    }

    /// Adds a file that can be run.
    pub(super) fn program(&mut self, name: &str, content: &[u8]) {
        self.entry(name, PROGRAM, content);
    }

    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry(TRAILER, 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let size = u32::try_from(content.len()).expect("no file here has 4 GB");
        let name_size = name.len() as u32 + 1;
        // inode, mode, uid, gid, links, mtime, size, device (2), special device (2), length
        // of the name, checksum.
        let fields = [self.entries, mode, 0, 0, 1, 0, size, 0, 0, 0, 0, name_size, 0];
        self.bytes.extend(b"070701");
        fields.iter().for_each(|field| self.bytes.extend(format!("{field:08x}").bytes()));
        self.bytes.extend(name.bytes().chain([0]));
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_contents_begin_at_multiples_of_four() {
        let mut archive = Cpio::default();
        archive.directory("bin");
        archive.program("bin/sh", b"12345");
        let bytes = archive.finish();
        let text = String::from_utf8(bytes).unwrap();
        let starts: Vec<usize> = text.match_indices("070701").map(|(at, _)| at).collect();
        assert_eq!(starts.len(), 3);
        assert!(starts.iter().all(|at| at % 4 == 0));
        assert_eq!(text.find("12345").unwrap() % 4, 0);
        assert!(text.len().is_multiple_of(4));
        let header = &text[starts[1]..];
        assert_eq!(u32::from_str_radix(&header[14..22], 16).unwrap(), 0o100_755);
        assert_eq!(u32::from_str_radix(&header[54..62], 16).unwrap(), 5);
        assert_eq!(&header[110..117], "bin/sh\0");
    }
}
