//! MD5 (RFC 1321), which turns the name of a key for `source-hash` into the key. Nothing secret rests on it.

/// How far each of four steps turns, by round.
const TURNS: [[u32; 4]; 4] = [[7, 12, 17, 22], [5, 9, 14, 20], [4, 11, 16, 23], [6, 10, 15, 21]];

/// The digest of some bytes, as four numbers whose hexadecimal digits are those of the digest.
pub(crate) fn digest(text: &[u8]) -> [u32; 4] {
    let mut padded = text.to_vec();
    padded.push(0x80);
    padded.resize(padded.len().next_multiple_of(64) + if padded.len() % 64 > 56 { 64 } else { 0 }, 0);
    let length = padded.len();
    padded[length - 8..].copy_from_slice(&(text.len() as u64 * 8).to_le_bytes());
    let mut state = [0x6745_2301, 0xefcd_ab89, 0x98ba_dcfe, 0x1032_5476];
    padded.chunks_exact(64).for_each(|block| add_block(&mut state, block));
    state.map(u32::swap_bytes)
}

fn add_block(state: &mut [u32; 4], block: &[u8]) {
    let mut words = [0u32; 16];
    for (word, bytes) in words.iter_mut().zip(block.chunks_exact(4)) {
        *word = bytes.iter().rev().fold(0, |word, byte| (word << 8) | u32::from(*byte));
    }
    let [mut a, mut b, mut c, mut d] = *state;
    for step in 0..64 {
        let (mixed, place) = match step / 16 {
            0 => ((b & c) | (!b & d), step),
            1 => ((d & b) | (!d & c), 5 * step + 1),
            2 => (b ^ c ^ d, 3 * step + 5),
            _ => (c ^ (b | !d), 7 * step),
        };
        let constant = ((step as f64 + 1.0).sin().abs() * 4_294_967_296.0) as u32;
        let sum = a.wrapping_add(mixed).wrapping_add(constant).wrapping_add(words[place % 16]);
        let turned = b.wrapping_add(sum.rotate_left(TURNS[step / 16][step % 4]));
        (a, d, c, b) = (d, c, b, turned);
    }
    for (word, more) in state.iter_mut().zip([a, b, c, d]) {
        *word = word.wrapping_add(more);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hex(text: &str) -> String {
        digest(text.as_bytes()).map(|word| format!("{word:08x}")).concat()
    }

    #[test]
    fn the_digests_of_the_standard_come_out() {
        assert_eq!(hex(""), "d41d8cd98f00b204e9800998ecf8427e");
        assert_eq!(hex("abc"), "900150983cd24fb0d6963f7d28e17f72");
        let digits = "12345678901234567890123456789012345678901234567890123456789012345678901234567890";
        assert_eq!(hex(digits), "57edf4a22be3c955ac49da2e2107b67a");
    }

    #[test]
    fn every_length_of_the_last_block_is_padded_right() {
        let seen: std::collections::HashSet<_> = (0..200).map(|n| digest(&vec![b'a'; n])).collect();
        assert_eq!(seen.len(), 200);
        assert_eq!(hex(&"a".repeat(56)), "3b0c8ac703f828b04c6c197006d17218");
    }
}
