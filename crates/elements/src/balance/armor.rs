//! Bytes as text (RFC 4648, section 4), for handlers, whose values are text.

const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
const NONE: u8 = 255;
/// What each letter means.
const VALUES: [u8; 256] = {
    let mut values = [NONE; 256];
    let mut n = 0;
    while n < 64 {
        values[LETTERS[n] as usize] = n as u8;
        n += 1;
    }
    values
};

/// The text of bytes.
pub fn armored(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for three in bytes.chunks(3) {
        let at = |n: usize| u32::from(three.get(n).copied().unwrap_or(0));
        let bits = at(0) << 16 | at(1) << 8 | at(2);
        for n in 0..4 {
            let letter = LETTERS[(bits >> (18 - 6 * n)) as usize % 64];
            text.push(if n <= three.len() { letter.into() } else { '=' });
        }
    }
    text
}

/// The bytes of a text; none if it is no such text.
pub fn unarmored(text: &str) -> Option<Vec<u8>> {
    let (fours, []) = text.trim().as_bytes().as_chunks::<4>() else { return None };
    let mut bytes = Vec::with_capacity(fours.len() * 3);
    for (n, four) in fours.iter().enumerate() {
        let missing =
            if n + 1 == fours.len() { four.iter().rev().take_while(|b| **b == b'=').count() } else { 0 };
        if missing > 2 {
            return None;
        }
        let mut bits = 0;
        for letter in &four[..4 - missing] {
            let value = VALUES[usize::from(*letter)];
            if value == NONE {
                return None;
            }
            bits = bits << 6 | u32::from(value);
        }
        let [_, three @ ..] = (bits << (6 * missing)).to_be_bytes();
        bytes.extend_from_slice(&three[..3 - missing]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_examples_of_the_rfc_hold() {
        for (bytes, text) in [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("foobar", "Zm9vYmFy"),
        ] {
            assert_eq!((armored(bytes.as_bytes()).as_str(), unarmored(text)), (text, Some(bytes.into())));
        }
        for text in ["Z", "Zg=", "Zg==Zg==", "Z===", "====", "Zm9*", "Zé="] {
            assert_eq!(unarmored(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_come_back(bytes: Vec<u8>) {
            prop_assert_eq!(unarmored(&armored(&bytes)), Some(bytes));
        }
    }
}
