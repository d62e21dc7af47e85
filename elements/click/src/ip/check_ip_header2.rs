use super::check_ip_header::{ARGS, CheckIpHeader, HANDLERS};
use artery_engine::Class;

pub static CLASS: Class = Class {
    name: "CheckIPHeader2",
    group: "ip",
    summary: "checks IPv4 headers save their checksum",
    manual: "
Does what CheckIPHeader does, but leaves the checksum unchecked unless `CHECKSUM true` is given.",
    example: "Idle -> Strip(14) -> CheckIPHeader2 -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: ARGS,
    handlers: HANDLERS,
    build: |args| {
        let checksum = args.is_given("CHECKSUM") && args.read("CHECKSUM")?;
        Ok(Box::new(CheckIpHeader::new(args, checksum)?))
    },
    ..Class::PER_WORKER
};

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use artery_wire::build::ip4;

    #[test]
    fn a_wrong_checksum_passes_unless_it_is_to_be_checked() {
        let mut bytes = ip4().udp(1, 2).bytes();
        bytes[10] ^= 1;
        for (config, output) in [("", 0), ("CHECKSUM true", 1)] {
            let mut bench = Bench::new(&CLASS, config);
            bench.push(0, &bytes);
            bench.expect(output, &bytes);
        }
    }
}
