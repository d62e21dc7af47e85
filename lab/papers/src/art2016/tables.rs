//! How many tables ART has at each level, and whether that is what the routes need.
//!
//! On the full feed of 2026 the numbers are known; it is recognised by a digest of its prefixes. Those of any
//! table follow from its prefixes.
use anyhow::ensure;
use artery_bench::fib::engine::Engine as _;
use artery_bench::fib::{ArtAlone, Family, Lookup};
use artery_lpm::{Address, ArtReader, Group, Prefix, Strides};
use std::collections::HashSet;

/// ART's tables at each level, for one list of strides.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Levels {
    pub(super) strides: &'static str,
    /// First bit and number of tables, level by level.
    pub(super) tables: Vec<(u8, usize)>,
    /// Bytes of heaps here, of 4-byte words.
    pub(super) bytes: u64,
    /// Bytes of heaps with 8-byte words, as in 2016.
    pub(super) bytes_2016: u64,
    /// What the numbers were compared with.
    pub(super) agrees_with: &'static str,
}

/// The strides of the experiment.
const STRIDES: [(&str, &[u8]); 3] =
    [("8/4x6", &[8, 4, 4, 4, 4, 4, 4]), ("8/8/8/8", &[8, 8, 8, 8]), ("16/8/8", &[16, 8, 8])];
/// IPv6 strides that are the default there.
const DEFAULT_OF_IPV6: &str = "4x32";

/// A feed whose tables are known.
struct Known {
    digest: u64,
    /// By strides, the number of tables at each level.
    tables: &'static [(&'static str, &'static [usize])],
}

/// The 901,899 IPv4 prefixes and the 160,147 IPv6 prefixes for which this
/// experiment's figures were published.
const KNOWN: [Known; 2] = [
    Known {
        digest: 0xccea_07d3_1c5b_41ce,
        tables: &[
            ("8/4x6", &[1, 215, 2928, 25_398, 140_640, 451, 595]),
            ("8/8/8/8", &[1, 215, 25_398, 451]),
            ("16/8/8", &[1, 25_398, 451]),
        ],
    },
    Known {
        digest: 0x6e79_cf88_e2ba_2638,
        tables: &[(
            DEFAULT_OF_IPV6,
            &[
                1, 1, 6, 10, 59, 610, 7224, 18_708, 10_906, 14_590, 19_078, 25_903, 104, 121, 125, 134, 82,
                83, 83, 83, 83, 83, 83, 83, 83, 83, 83, 83, 81, 81, 81, 76,
            ],
        )],
    },
];

/// FNV-1a of all prefixes in order: the bytes of the first address, then the length.
fn digest<A: Address>(routes: &[(Prefix<A>, Group)]) -> u64 {
    let bytes = routes.iter().flat_map(|&(prefix, _)| {
        let address = (0..A::BITS).step_by(8).map(move |bit| prefix.first().field(bit, 8) as u8);
        address.chain([prefix.len()])
    });
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

/// Counts ART's tables for all strides of the experiment, and sees to it that they are as many
/// as there should be.
pub(super) fn levels(routes: &[(Prefix<u32>, Group)]) -> anyhow::Result<Vec<Levels>> {
    let known = known(routes);
    STRIDES.iter().map(|(name, list)| counted(name, &Strides::new(list)?, routes, known)).collect()
}

/// The same for IPv6 with the strides that are the default there: 32 times 4.
pub(super) fn default_of_ipv6(routes: &[(Prefix<u128>, Group)]) -> anyhow::Result<Levels> {
    counted(DEFAULT_OF_IPV6, &Strides::<u128>::source(), routes, known(routes))
}

fn known<A: Address>(routes: &[(Prefix<A>, Group)]) -> Option<&'static Known> {
    let digest = digest(routes);
    KNOWN.iter().find(|known| known.digest == digest)
}

fn counted<A: Family>(
    name: &'static str,
    strides: &Strides<A>,
    routes: &[(Prefix<A>, Group)],
    known: Option<&Known>,
) -> anyhow::Result<Levels>
where
    ArtReader<A>: Lookup<A>,
{
    let art = ArtAlone::load(routes, strides.clone())?;
    let found = art.tables();
    let places = places(strides);
    let needed: Vec<usize> = places.iter().map(|&(offset, _)| needed(routes, offset)).collect();
    compare(name, &places, &found, &needed, "the prefixes need")?;
    let known = known.and_then(|known| known.tables.iter().find(|(strides, _)| *strides == name));
    if let Some((_, figures)) = known {
        compare(name, &places, &found, figures, "this feed is known to need")?;
    }
    let agrees_with =
        if known.is_some() { "the figures known of this feed" } else { "a count of the prefixes" };
    let words = |(&(_, stride), count): (&(u8, u8), &usize)| count * (2 << stride);
    let bytes_2016 = places.iter().zip(&needed).map(words).sum::<usize>() as u64 * 8;
    Ok(Levels { strides: name, tables: found, bytes: art.bytes(), bytes_2016, agrees_with })
}

/// First bit and stride of every level.
fn places<A: Address>(strides: &Strides<A>) -> Vec<(u8, u8)> {
    let place = |first: &mut u8, stride: u8| {
        let at = *first;
        *first += stride;
        Some((at, stride))
    };
    strides.iter().scan(0, place).collect()
}

/// Refuses numbers of tables that are not as they should be at every level.
fn compare(
    name: &str,
    places: &[(u8, u8)],
    found: &[(u8, usize)],
    wanted: &[usize],
    who: &str,
) -> anyhow::Result<()> {
    for (&(offset, _), wanted) in places.iter().zip(wanted) {
        let found = found.iter().find(|(at, _)| *at == offset).map_or(0, |(_, count)| *count);
        ensure!(found == *wanted, "ART {name} has {found} tables at bit {offset}, {who} {wanted}");
    }
    Ok(())
}

/// A table is under every prefix that ends at a level's bit and has a longer one below; the
/// first is always there.
fn needed<A: Address>(routes: &[(Prefix<A>, Group)], offset: u8) -> usize {
    let longer = routes.iter().filter(|(prefix, _)| prefix.len() > offset);
    let under: HashSet<A> = longer.map(|(prefix, _)| prefix.first().network(offset)).collect();
    under.len().max(usize::from(offset == 0))
}

#[cfg(test)]
mod tests {
    use super::super::scenario::Table;
    use super::*;

    fn routes(texts: &[&str]) -> Vec<(Prefix<u32>, Group)> {
        texts.iter().map(|text| (text.parse().unwrap(), 1)).collect()
    }

    #[test]
    fn tables_are_counted_and_agree_with_the_prefixes() {
        let levels = levels(&Table::as_run().routes).unwrap();
        let of = |n: usize| levels[n].tables.iter().map(|(_, count)| count).sum::<usize>();
        assert_eq!(levels[2].tables, [(0, 1), (16, 1), (24, 2)]);
        assert!(of(0) > of(2));
        assert_eq!(levels[2].bytes_2016, (2 << 16) * 8 + 3 * 512 * 8);
        assert_eq!(levels[2].agrees_with, "a count of the prefixes");
    }

    #[test]
    fn a_table_is_needed_under_each_boundary_with_something_longer_below() {
        let routes = routes(&["10.0.0.0/8", "10.1.0.0/16", "10.1.1.0/24", "11.0.0.0/9", "12.0.0.0/8"]);
        assert_eq!([0, 8, 16, 24].map(|offset| needed(&routes, offset)), [1, 2, 1, 0]);
        assert_eq!(needed::<u32>(&[], 0), 1);
    }

    #[test]
    fn other_numbers_than_those_known_are_an_error_that_says_level_wanted_and_found() {
        let routes = routes(&["10.0.0.0/8", "10.1.0.0/16"]);
        let known = Known { digest: digest(&routes), tables: &[("16/8/8", &[1, 5, 0])] };
        let counted =
            |known: &Known| counted("16/8/8", &Strides::new(&[16, 8, 8]).unwrap(), &routes, Some(known));
        let error = counted(&known).unwrap_err().to_string();
        assert_eq!(error, "ART 16/8/8 has 0 tables at bit 16, this feed is known to need 5");
        let right = Known { tables: &[("16/8/8", &[1, 0, 0])], ..known };
        assert_eq!(counted(&right).unwrap().agrees_with, "the figures known of this feed");
    }

    #[test]
    fn a_level_that_is_not_told_of_has_no_tables() {
        let places = [(0, 16), (16, 8)];
        let error = compare("16/8/8", &places, &[(0, 1)], &[1, 2], "the prefixes need").unwrap_err();
        assert!(error.to_string().contains("has 0 tables at bit 16, the prefixes need 2"), "{error}");
    }

    #[test]
    fn a_digest_depends_on_every_address_and_length_and_on_no_group() {
        let two = routes(&["10.0.0.0/8", "10.1.0.0/16"]);
        let other_groups: Vec<_> = two.iter().map(|route| (route.0, 7)).collect();
        assert_eq!(digest(&two), digest(&other_groups));
        for other in [["10.0.0.0/9", "10.1.0.0/16"], ["10.0.0.0/8", "10.2.0.0/16"]] {
            assert_ne!(digest(&two), digest(&routes(&other)));
        }
        // FNV-1a of nothing, and of 0a 00 00 00 08, by its definition.
        assert_eq!(digest::<u32>(&[]), 0xcbf2_9ce4_8422_2325);
        assert_eq!(digest(&two[..1]), 0x6391_2782_0a46_0395);
    }

    #[test]
    fn the_known_tables_have_the_bytes_that_are_told_of_them() {
        let strides_of = |name: &str| -> Vec<u8> {
            let found = STRIDES.iter().find(|(strides, _)| *strides == name);
            found.map_or(vec![4; 32], |(_, list)| list.to_vec())
        };
        let megabytes = KNOWN.iter().flat_map(|known| known.tables).map(|(name, counts)| {
            let strides = strides_of(name);
            assert_eq!(strides.len(), counts.len(), "{name}");
            let bytes: usize =
                strides.iter().zip(*counts).map(|(stride, count)| count * (2 << stride) * 8).sum();
            format!("{name} {:.1}", bytes as f64 / 1e6)
        });
        let wanted = ["8/4x6 43.6", "8/8/8/8 106.8", "16/8/8 106.9", "4x32 25.3"];
        assert_eq!(megabytes.collect::<Vec<_>>(), wanted);
    }
}
