//! What an element changed in a packet.
use super::look::{CHECKSUM, Field, IP_CHECKSUM, fields, is_v6, next_hop};
use super::records::Snapshot;

/// The differences, one short text each, without those that follow from another one.
pub(super) fn changes(before: &Snapshot, after: &Snapshot) -> Vec<String> {
    let shift = shift(before, after);
    let mut texts = Vec::new();
    texts.extend(length(before, after, shift));
    let named = texts.len();
    texts.extend(headers(&fields(before), &fields(after)));
    if texts.len() == named {
        texts.extend(bytes(before, after, shift));
    }
    texts.extend(network(before, after, shift));
    let numbers =
        [("paint", before.paint.into(), after.paint.into()), ("in-port", before.in_port, after.in_port)];
    let differ = numbers.into_iter().filter(|(_, before, after): &(_, u16, u16)| before != after);
    let (old, new) = (next_hop(before, is_v6(after)), next_hop(after, is_v6(after)));
    texts.extend((old != new).then(|| format!("dst annotation {old} -> {new}")));
    texts.extend(differ.map(|(name, before, after)| format!("{name} {before} -> {after}")));
    texts
}

/// How many bytes were prepended to the packet, or negatively were removed; the best
/// guess from both snapshots.
fn shift(before: &Snapshot, after: &Snapshot) -> Option<i64> {
    let grown = after.length as i64 - before.length as i64;
    let moved = before.network.zip(after.network).map(|(before, after)| after - before);
    let possible = [Some(0), Some(grown), moved].into_iter().flatten();
    possible.filter(|shift| fits(before, after, *shift)).min_by_key(|shift| unlike(before, after, *shift))
}

/// Whether something of both is left to compare.
fn fits(before: &Snapshot, after: &Snapshot, shift: i64) -> bool {
    !pairs(before, after, shift).is_empty()
}

/// Bytes that differ when the packets are laid side by side, of a hundred that both have.
fn unlike(before: &Snapshot, after: &Snapshot, shift: i64) -> usize {
    let pairs = pairs(before, after, shift);
    pairs.iter().filter(|(_, a, b)| a != b).count() * 100 / pairs.len()
}

/// Bytes that both have, with the place in the later one.
fn pairs(before: &Snapshot, after: &Snapshot, shift: i64) -> Vec<(usize, u8, u8)> {
    let (behind, ahead) = (usize::try_from(-shift).unwrap_or(0), usize::try_from(shift).unwrap_or(0));
    let (old, new) = (before.data.get(behind..).unwrap_or(&[]), after.data.get(ahead..).unwrap_or(&[]));
    old.iter().zip(new).enumerate().map(|(at, (old, new))| (at + ahead, *old, *new)).collect()
}

fn length(before: &Snapshot, after: &Snapshot, shift: Option<i64>) -> Option<String> {
    let grown = after.length as i64 - before.length as i64;
    let front = shift.unwrap_or(0);
    if (grown, front) == (0, 0) {
        return None;
    }
    let ends = [(front, "at the front"), (grown - front, "at the end")];
    let ends: Vec<String> =
        ends.iter().filter(|(n, _)| *n != 0).map(|(n, place)| format!("{n:+} {place}")).collect();
    Some(format!("length {} -> {} ({})", before.length, after.length, ends.join(", ")))
}

/// Fields that both have with other values.
fn headers(before: &[Field], after: &[Field]) -> Vec<String> {
    let value = |name: &str| before.iter().find(|(known, _)| *known == name).map(|(_, value)| value);
    let differ = after.iter().filter_map(|(name, new)| Some((*name, value(name)?, new)));
    let differ: Vec<_> = differ.filter(|(_, old, new)| *old != *new).collect();
    let is_checksum = |name: &str| name == IP_CHECKSUM || name == CHECKSUM;
    let all_are_checksums = differ.iter().all(|(name, _, _)| is_checksum(name));
    let told = differ.iter().filter(|(name, _, _)| all_are_checksums || !is_checksum(name));
    told.map(|(name, old, new)| format!("{name} {old} -> {new}")).collect()
}

/// Reports that bytes differ that belong to no known header.
fn bytes(before: &Snapshot, after: &Snapshot, shift: Option<i64>) -> Option<String> {
    let pairs = pairs(before, after, shift?);
    let mut differ = pairs.iter().filter(|(_, old, new)| old != new);
    let (first, count) = (differ.next()?.0, 1 + differ.count());
    let s = if count == 1 { "" } else { "s" };
    Some(format!("{count} byte{s} changed, from byte {first} on"))
}

/// Where the network header is, unless it merely moved with the bytes.
fn network(before: &Snapshot, after: &Snapshot, shift: Option<i64>) -> Option<String> {
    let moved = before.network.map(|at| at + shift.unwrap_or(0));
    match after.network {
        now if now == moved => None,
        Some(now) => Some(format!("network header at byte {now}")),
        None => Some("network header not known".to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_wire::build::ip4;

    fn shot(data: &[u8], network: Option<i64>) -> Snapshot {
        Snapshot {
            length: data.len(),
            in_port: 1,
            network,
            paint: 0,
            dst: [0; 16],
            data: data[..data.len().min(128)].to_vec(),
        }
    }
    fn ip(ttl: u8) -> Vec<u8> {
        ip4().src("10.0.0.1").dst("10.0.0.2").ttl(ttl).udp(1234, 53).payload([7; 200]).bytes()
    }
    fn frame(dst: u8, packet: &[u8]) -> Vec<u8> {
        [&[2, 0, 0, 0, 0, dst, 2, 0, 0, 0, 0, 1, 8, 0], packet].concat()
    }

    #[test]
    fn fields_are_named_and_checksums_go_without_saying() {
        assert_eq!(changes(&shot(&ip(64), Some(0)), &shot(&ip(63), Some(0))), ["ttl 64 -> 63"]);
        let mut wrong = ip(64);
        wrong[10] ^= 1;
        let only = changes(&shot(&ip(64), None), &shot(&wrong, None));
        assert!(only.len() == 1 && only[0].starts_with("ip checksum 0x"), "{only:?}");
        let rewritten = changes(&shot(&frame(2, &ip(64)), Some(14)), &shot(&frame(9, &ip(64)), Some(14)));
        assert_eq!(rewritten, ["ether dst 02:00:00:00:00:02 -> 02:00:00:00:00:09"]);
        assert!(changes(&shot(&ip(1), None), &shot(&ip(1), None)).is_empty());
    }

    #[test]
    fn lengths_say_at_which_end() {
        let (whole, packet) = (frame(2, &ip(64)), ip(64));
        let stripped = "length 242 -> 228 (-14 at the front)";
        assert_eq!(changes(&shot(&whole, Some(14)), &shot(&packet, Some(0))), [stripped]);
        assert_eq!(changes(&shot(&whole, None), &shot(&packet, None)), [stripped]);
        let found = changes(&shot(&packet, None), &shot(&whole, None));
        assert_eq!(found, ["length 228 -> 242 (+14 at the front)"]);
        let trimmed = changes(&shot(&whole, Some(14)), &shot(&whole[..100], Some(14)));
        assert_eq!(trimmed, ["length 242 -> 100 (-142 at the end)"]);
        let both = changes(&shot(&whole, Some(14)), &shot(&packet[..200], Some(0)));
        assert_eq!(both, ["length 242 -> 200 (-14 at the front, -28 at the end)"]);
    }

    #[test]
    fn marks_and_bytes_that_no_header_has_are_told() {
        let (plain, mut other) = (shot(&[1; 20], None), shot(&[1, 1, 9, 9, 1], None));
        other.length = 20;
        assert_eq!(changes(&plain, &other), ["2 bytes changed, from byte 2 on"]);
        let mut painted = shot(&ip(64), Some(0));
        (painted.paint, painted.in_port) = (3, 2);
        painted.dst[..4].copy_from_slice(&[10, 0, 0, 9]);
        let told = changes(&shot(&ip(64), None), &painted);
        assert_eq!(
            told,
            [
                "network header at byte 0",
                "dst annotation 0.0.0.0 -> 10.0.0.9",
                "paint 0 -> 3",
                "in-port 1 -> 2"
            ]
        );
    }
}
