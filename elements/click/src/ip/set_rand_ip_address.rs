use super::address::Interface;
use artery_common::chance;
use artery_engine::{Arg, ArgError, Args, Class, Context, Limit, Packet, Simple};
use artery_wire::Ipv4Prefix;
use artery_wire::Random;
use std::net::Ipv4Addr;

pub static CLASS: Class = Class {
    name: "SetRandIPAddress",
    group: "ip",
    summary: "sets the destination annotation to a random address",
    manual: "
Sets the destination annotation of each packet to a random address of `PREFIX`. With `LIMIT`, at most that
many different addresses are drawn, once, and each packet gets one of them.",
    example: "Idle -> SetRandIPAddress(10.0.0.0/8, 1000) -> Discard;",
    args: &[
        Arg::required("PREFIX", "prefix", "the addresses to choose from"),
        Arg::optional("LIMIT", "count", "-1", "how many different addresses at most; -1 for no limit"),
    ],
    build: |args| Ok(Box::new(SetRandIpAddress::new(args)?)),
    ..Class::PER_WORKER
};

/// A larger number is more likely a typing error than a useful sample.
const MOST: u64 = 1 << 24;

struct SetRandIpAddress {
    random: Random,
    prefix: Ipv4Prefix,
    /// What to choose from; empty when all of the prefix will do.
    drawn: Vec<Ipv4Addr>,
}

impl SetRandIpAddress {
    fn new(args: &Args<'_>) -> Result<SetRandIpAddress, ArgError> {
        let prefix = args.read::<Interface>("PREFIX")?.prefix;
        let limit = args.read::<Limit>("LIMIT")?.0.unwrap_or(0);
        if limit > MOST {
            return Err(ArgError::wrong(format!("LIMIT too large; max {MOST}")));
        }
        let mut random = chance::new_random(args);
        let drawn = (0..limit).map(|_| random_address(&mut random, prefix)).collect();
        Ok(SetRandIpAddress { random, prefix, drawn })
    }
}

#[inline]
fn random_address(random: &mut Random, prefix: Ipv4Prefix) -> Ipv4Addr {
    let host = random.next_u32() & !prefix.mask().to_bits();
    Ipv4Addr::from_bits(prefix.addr().to_bits() | host)
}

impl Simple for SetRandIpAddress {
    fn process(&mut self, mut packet: Packet, _cx: &mut Context<'_>) -> Option<Packet> {
        let address = match self.drawn.len() as u64 {
            0 => random_address(&mut self.random, self.prefix),
            n => self.drawn[((u64::from(self.random.next_u32()) * n) >> 32) as usize],
        };
        packet.set_dst_ip(address);
        Some(packet)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use std::collections::HashSet;

    fn draw(config: &str, n: usize) -> HashSet<Ipv4Addr> {
        let mut bench = Bench::new(&CLASS, config);
        (0..n).for_each(|_| bench.push(0, b"x"));
        bench.drain_sent(0).iter().map(Packet::dst_ip).collect()
    }

    #[test]
    fn addresses_are_of_the_prefix_and_vary() {
        let drawn = draw("10.1.0.0/16", 100);
        let prefix: Ipv4Prefix = "10.1.0.0/16".parse().unwrap();
        assert!(drawn.iter().all(|address| prefix.contains(*address)), "{drawn:?}");
        assert!(drawn.len() > 50);
        assert_eq!(draw("10.1.2.3/32", 5), HashSet::from([Ipv4Addr::new(10, 1, 2, 3)]));
    }

    #[test]
    fn no_more_addresses_than_the_limit_are_drawn() {
        assert!(draw("10.0.0.0/8, 3", 200).len() <= 3);
        assert!(draw("10.0.0.0/8, LIMIT 0", 50).len() > 3);
    }
}
