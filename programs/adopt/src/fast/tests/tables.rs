//! Random routes.
use super::*;

/// Random routes, and the FIBs of them.
pub(super) struct Table {
    pub(super) arrays4: SharedArrays,
    pub(super) arrays6: SharedArrays,
    pub(super) ipv4: Fib4Fast,
    pub(super) ipv6: Fib6,
    pub(super) routes4: Vec<Prefix<u32>>,
    pub(super) routes6: Vec<Prefix<u128>>,
}

impl Table {
    pub(super) fn new(domain: &Arc<Domain>, random: &mut Random, most: usize, seed: u64) -> Table {
        let mut art4 = Art::<u32>::new(domain, Strides::fast(), &Pages).unwrap();
        let mut routes4 = Vec::new();
        for _ in 0..5000 {
            let len = random.of(&[8, 12, 16, 19, 20, 22, 24, 24, 25, 27, 28, 30, 32, 32]);
            // Many in few /16s, so that their lists are long.
            let address = (random.next() as u32 & random.of(&[0x0001_ffff, 0x000f_ffff, 0x00ff_ffff]))
                | (10 + random.below(3) as u32) << 24;
            let prefix = Prefix::of(address, len);
            let groups = random.of(&[GROUPS - 1, 12, 12, 12]);
            art4.insert(prefix, 1 + random.below(groups) as u32).unwrap();
            routes4.push(prefix);
        }
        let mut art6 = Art::<u128>::new(domain, Strides::fast(), &Pages).unwrap();
        let mut routes6 = Vec::new();
        for _ in 0..5000 {
            let len = random.of(&[20, 29, 32, 32, 36, 40, 44, 48, 48, 48, 56, 64, 64, 96, 127, 128]);
            let deep = u128::from(random.next()) << 64 | u128::from(random.next());
            let mask = random.of(&[0, 0xffff, u128::MAX >> 48, u128::MAX >> 24]);
            let address = 0x2001_0db8_u128 << 96 | (deep & mask) << random.of(&[0, 60, 72]) >> 8;
            let prefix = Prefix::of(address, len);
            art6.insert(prefix, 1 + random.below(39) as u32).unwrap();
            routes6.push(prefix);
        }
        if seed.is_multiple_of(2) {
            art4.insert(Prefix::ALL, 5).unwrap();
            art6.insert(Prefix::ALL, 6).unwrap();
        }
        let (arrays4, arrays6) = (SharedArrays::with_maps_of(most), SharedArrays::with_maps_of(most));
        let options = Fib4Options { wide: false, list_lines: LIST_LINES, ..Fib4Options::default() };
        let ipv4 = Fib4Fast::build(domain, &art4, &arrays4, options).unwrap();
        let ipv6 = Fib6::build(domain, &art6, &arrays6, Some(FIB6_BYTES)).unwrap();
        Table { arrays4, arrays6, ipv4, ipv6, routes4, routes6 }
    }

    pub(super) fn fibs(&self) -> Fibs<'_> {
        Fibs {
            ipv4: &self.arrays4,
            list_bytes: 64 * LIST_LINES as u32,
            ipv6: &self.arrays6,
            fib6_bytes: FIB6_BYTES as u32,
        }
    }
}
