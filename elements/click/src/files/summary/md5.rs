//! MD5 (RFC 1321), for digests of payloads: to compare packets, not for security.

/// The whole parts of 2^32 times the sines of 1 to 64, in radians.
#[rustfmt::skip]
const SINES: [u32; 64] = [
    0xd76aa478, 0xe8c7b756, 0x242070db, 0xc1bdceee, 0xf57c0faf, 0x4787c62a, 0xa8304613, 0xfd469501,
    0x698098d8, 0x8b44f7af, 0xffff5bb1, 0x895cd7be, 0x6b901122, 0xfd987193, 0xa679438e, 0x49b40821,
    0xf61e2562, 0xc040b340, 0x265e5a51, 0xe9b6c7aa, 0xd62f105d, 0x02441453, 0xd8a1e681, 0xe7d3fbc8,
    0x21e1cde6, 0xc33707d6, 0xf4d50d87, 0x455a14ed, 0xa9e3e905, 0xfcefa3f8, 0x676f02d9, 0x8d2a4c8a,
    0xfffa3942, 0x8771f681, 0x6d9d6122, 0xfde5380c, 0xa4beea44, 0x4bdecfa9, 0xf6bb4b60, 0xbebfbc70,
    0x289b7ec6, 0xeaa127fa, 0xd4ef3085, 0x04881d05, 0xd9d4d039, 0xe6db99e5, 0x1fa27cf8, 0xc4ac5665,
    0xf4292244, 0x432aff97, 0xab9423a7, 0xfc93a039, 0x655b59c3, 0x8f0ccc92, 0xffeff47d, 0x85845dd1,
    0x6fa87e4f, 0xfe2ce6e0, 0xa3014314, 0x4e0811a1, 0xf7537e82, 0xbd3af235, 0x2ad7d2bb, 0xeb86d391,
];

/// By how much is rotated in each of the four rounds.
const ROTATIONS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The digest of `bytes`.
pub(super) fn digest(bytes: &[u8]) -> [u8; 16] {
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    let (blocks, rest) = bytes.as_chunks::<64>();
    blocks.iter().for_each(|block| add_block(&mut state, block));
    let mut last = [0; 128];
    last[..rest.len()].copy_from_slice(rest);
    last[rest.len()] = 0x80;
    // The length in bits ends the last block.
    let end = if rest.len() < 56 { 64 } else { 128 };
    last[end - 8..end].copy_from_slice(&(bytes.len() as u64).wrapping_mul(8).to_le_bytes());
    last[..end].as_chunks::<64>().0.iter().for_each(|block| add_block(&mut state, block));
    let mut digest = [0; 16];
    for (bytes, word) in digest.as_chunks_mut::<4>().0.iter_mut().zip(state) {
        *bytes = word.to_le_bytes();
    }
    digest
}

/// Adds a block to the state (RFC 1321 section 3.4).
fn add_block(state: &mut [u32; 4], block: &[u8; 64]) {
    let words = block.as_chunks::<4>().0;
    let [mut a, mut b, mut c, mut d] = *state;
    for (step, sine) in SINES.iter().enumerate() {
        let (mixed, word) = match step / 16 {
            0 => (b & c | !b & d, step),
            1 => (b & d | c & !d, 5 * step + 1),
            2 => (b ^ c ^ d, 3 * step + 5),
            _ => (c ^ (b | !d), 7 * step),
        };
        let word = u32::from_le_bytes(words[word % 16]);
        let sum = a.wrapping_add(mixed).wrapping_add(word).wrapping_add(*sine);
        (a, d, c) = (d, c, b);
        b = b.wrapping_add(sum.rotate_left(ROTATIONS[step / 16][step % 4]));
    }
    for (old, new) in state.iter_mut().zip([a, b, c, d]) {
        *old = old.wrapping_add(new);
    }
}

/// A digest in hexadecimal digits.
pub(super) fn to_hex(digest: [u8; 16]) -> String {
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A digest in 22 letters, digits, `_` and `@`: six bits each, the lowest first.
pub(super) fn to_letters(digest: [u8; 16]) -> String {
    const LETTERS: &[u8; 64] = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_@";
    let number = u128::from_le_bytes(digest);
    let letter = |n: u32| char::from(LETTERS[(number >> (6 * n) & 63) as usize]);
    (0..22).map(letter).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn digests_are_those_of_the_rfc() {
        let digits = "1234567890".repeat(8);
        for (text, expected) in [
            ("", "d41d8cd98f00b204e9800998ecf8427e"),
            ("abc", "900150983cd24fb0d6963f7d28e17f72"),
            ("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b"),
            (
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789",
                "d174ab98d277d9f5a5611c2c9f419d9f",
            ),
            (digits.as_str(), "57edf4a22be3c955ac49da2e2107b67a"),
        ] {
            assert_eq!(to_hex(digest(text.as_bytes())), expected, "{text}");
        }
    }

    #[test]
    fn letters_have_six_bits_each_from_the_lowest_on() {
        let mut digest = [0; 16];
        digest[0] = 0b1100_0001;
        digest[15] = 0xff;
        assert_eq!(to_letters(digest), "bdaaaaaaaaaaaaaaaaaa@d");
    }
}
