//! Bytes as hexadecimal digits.

/// Two lower-case digits for each byte.
pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The bytes of such digits, in either case, with or without colons. The error says what is wrong.
pub fn from_hex(text: &str) -> Result<Vec<u8>, &'static str> {
    let digits: Option<Vec<u8>> =
        text.chars().filter(|c| *c != ':').map(|c| c.to_digit(16).map(|digit| digit as u8)).collect();
    let digits = digits
        .ok_or("only hexadecimal digits, such as 02000000000102…; spaces and colons may be between them")?;
    match digits.len() % 2 {
        0 => Ok(digits.chunks_exact(2).map(|pair| pair[0] << 4 | pair[1]).collect()),
        _ => Err("an odd number of digits; each byte has two"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digits_are_read_as_they_are_written() {
        assert_eq!(from_hex(&to_hex(&[0, 0xab, 255])), Ok(vec![0, 0xab, 255]));
        assert_eq!(from_hex("02:AB:ff"), Ok(vec![2, 0xab, 255]));
        assert!(from_hex("+f").is_err() && from_hex("abc").is_err() && from_hex("é0").is_err());
    }
}
