use super::linear_ip_lookup::{ARGS, LOOKUP, LinearIpLookup, TABLE};
use artery_engine::Class;

pub static CLASS: Class = Class {
    name: "StaticIPLookup",
    group: "ip",
    summary: "routes by destination, with a small table that never changes",
    manual: "Does what LinearIPLookup does, but its routes cannot be changed while it runs. IPLookup is for \
        more than tens of routes.",
    example: "Idle -> GetIPAddress(16) -> rt :: StaticIPLookup(18.26.4.24/32 0, 0/0 18.26.4.1 1);
rt[0] -> Discard;
rt[1] -> Discard;",
    ports: "1/-",
    processing: "h/h",
    args: ARGS,
    handlers: &[TABLE, LOOKUP],
    build: |args| Ok(Box::new(LinearIpLookup::new(args)?)),
    ..Class::PER_WORKER
};

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn packets_are_routed_and_routes_stay() {
        let mut bench = Bench::setup(&CLASS, "10/8 1, 0/0 1.1.1.1 0").outputs(2).build().unwrap();
        bench.push_with(0, "x", |packet| packet.set_dst_ip([10, 0, 0, 1].into()));
        bench.expect(1, "x");
        assert_eq!(bench.read("lookup", "9.9.9.9").unwrap(), "0 1.1.1.1");
        assert!(bench.write("add", "11/8 1").is_err());
    }
}
