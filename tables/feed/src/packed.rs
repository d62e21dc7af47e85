//! Files that gzip packed, whatever is in them.
use flate2::bufread::MultiGzDecoder;
use std::fs::File;
use std::io::{self, BufReader, Read, Seek};
use std::path::Path;

/// Opens a gzip file to read its unpacked content. None if the file is not gzip, or not a regular file: bytes
/// read from a pipe to find out are gone. `open` opens the path, as [`File::open`] does.
pub fn open_packed<O: FnOnce(&Path) -> io::Result<File>>(
    file: &Path,
    open: O,
) -> io::Result<Option<impl Read + Send + use<O>>> {
    if !file.metadata()?.is_file() {
        return Ok(None);
    }
    let mut opened = open(file)?;
    let mut start = Vec::new();
    opened.by_ref().take(2).read_to_end(&mut start)?;
    opened.rewind()?;
    Ok((start == [0x1f, 0x8b]).then(|| MultiGzDecoder::new(BufReader::with_capacity(1 << 16, opened))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use flate2::{Compression, write::GzEncoder};
    use std::io::Write;

    #[test]
    fn only_what_gzip_packed_is_unpacked() {
        let folder = tempfile::tempdir().unwrap();
        let (packed, plain) = (folder.path().join("packed"), folder.path().join("plain"));
        let mut encoder = GzEncoder::new(File::create(&packed).unwrap(), Compression::fast());
        encoder.write_all(b"what is in it").unwrap();
        encoder.finish().unwrap();
        std::fs::write(&plain, b"x").unwrap();
        let open_packed = |file: &Path| open_packed(file, |file| File::open(file));
        let text = io::read_to_string(open_packed(&packed).unwrap().unwrap()).unwrap();
        assert_eq!(text, "what is in it");
        assert!(open_packed(&plain).unwrap().is_none());
        assert!(open_packed(folder.path()).unwrap().is_none());
        assert!(open_packed(&folder.path().join("absent")).is_err());
    }
}
