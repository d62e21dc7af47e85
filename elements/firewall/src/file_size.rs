//! The length of a file as an argument.
use artery_engine::ArgValue;
use artery_engine::names::Names;
use std::str::FromStr;

/// Bytes, as `1000000`, `64K`, `100M` or `1G`; 0 stands for no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FileSize(pub u64);

impl FromStr for FileSize {
    type Err = String;
    fn from_str(text: &str) -> Result<FileSize, String> {
        let (digits, shift) = match text.char_indices().next_back() {
            Some((at, 'k' | 'K')) => (&text[..at], 10),
            Some((at, 'm' | 'M')) => (&text[..at], 20),
            Some((at, 'g' | 'G')) => (&text[..at], 30),
            _ => (text, 0),
        };
        let bytes = digits.parse::<u64>().ok().and_then(|number| number.checked_mul(1 << shift));
        let wanted = || "a number of bytes, such as 1000000, 64K, 100M or 1G; 0 for no limit".to_string();
        bytes.map(FileSize).ok_or_else(wanted)
    }
}

impl ArgValue for FileSize {
    const EXAMPLE: &'static str = "100M";
    fn parse(text: &str, _: &Names) -> Result<FileSize, String> {
        text.parse()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_units() {
        let size = |text: &str| text.parse().map(|FileSize(bytes)| bytes);
        let found = ["0", "7", "64k", "100M", "1G"].map(|t| size(t).unwrap());
        assert_eq!(found, [0, 7, 65536, 100 << 20, 1 << 30]);
        for wrong in ["", "K", "-1", "1.5M", "1T", "99999999999999999999", "18446744073709551615G", "1é"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }
}
