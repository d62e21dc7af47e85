use super::port::{Receiver, open_port};
use super::stable_address;
use artery_device::{HostRoute, PortSpec, Ports, TapSettings};
use artery_engine::{Arg, ArgError, Args, Class, Context, Element, Handler, Phase, Show, StartError};
use artery_wire::EtherAddr;
use std::any::Any;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

pub static CLASS: Class = Class {
    name: "FromHost",
    group: "device",
    summary: "receives what the host sends by a TAP device of the router",
    manual: "
Makes a TAP device, an interface of the host whose other end is the router, and sends the Ethernet frames that
the host sends by it. DST, DST6 and ADDRESS, which can be given several times, are the host's addresses on it,
each with the length of its network's prefix; ETHER is its Ethernet address, without which it has one that is
the same whenever a router on this machine makes the device. ToHost with the same DEVNAME sends frames to the
host. The host asks by ARP and Neighbor Discovery for whom it wants to reach there; an ARPResponder, or an
IPRouter, can answer for everybody. The device vanishes with the router, and its addresses and routes with it.
If it is deleted, the router makes it again.

ROUTE, which can be given several times, is `PREFIX GATEWAY`: a route of the host by the device. GATEWAY is
that of the default route. Where the host has another route for the same prefix it takes the one of the lower
metric; METRIC is higher than what hosts usually have, so that theirs go first.

With HOST_PORT the device stands for a port of an IPRouter: the kernel gives it no IPv6 addresses of its
own, and HostPorts gives it those of the port.

On several workers the device has a queue for each, and the host deals its flows to them.",
    example: "
FromHost(fake0, 192.0.2.1/24) -> c :: Classifier(12/0806, 12/0800);
c[0] -> ARPResponder(0.0.0.0/0 02:00:00:00:00:01) -> ToHost(fake0);
c[1] -> Discard;",
    ports: "0/1",
    processing: "h/h",
    args: &[
        Arg::required("DEVNAME", "interface", "the device to make"),
        Arg::optional("DST", "IP prefix", "", "the host's address on it, with its network's length"),
        Arg::optional("GATEWAY", "IP address", "", "where the host's default route leads"),
        Arg::optional("HEADROOM", "bytes", "28", "accepted; there always is more"),
        Arg::keyword("ETHER", "Ethernet address", "", "the host's Ethernet address on it"),
        Arg::keyword("DST6", "IPv6 prefix", "", "the host's IPv6 address on it"),
        Arg::keyword("ADDRESS", "prefix", "", "a further address of either family; any number of them"),
        Arg::keyword("ROUTE", "prefix, IP address", "", "a route of the host by it; any number of them"),
        Arg::keyword("METRIC", "integer", "4096", "metric of such routes"),
        Arg::keyword("MTU", "bytes", "", "longest packet; 1500 if not given"),
        Arg::keyword(
            "HOST_PORT",
            "bool",
            "false",
            "whether it stands for a port of a router, as HostPorts keeps it",
        ),
    ],
    handlers: &[
        Handler::read("dev_name", "the device", &Show(|f: &mut FromHost| f.device_name())),
        Handler::read("count", "packets received", &Show(|f: &mut FromHost| f.count)).sum(),
    ],
    phase: Phase::Privileged,
    build: |args| Ok(Box::new(FromHost::new(args)?)),
    ..Class::PER_WORKER
};

struct FromHost {
    tap: TapSettings,
    ports: Arc<Ports>,
    receiver: Receiver,
    count: u64,
}

impl FromHost {
    fn new(args: &mut Args<'_>) -> Result<FromHost, ArgError> {
        let name: String = args.read("DEVNAME")?;
        let mut tap = TapSettings::new(args.names().device_name(&name));
        for arg in ["DST", "DST6"] {
            let text: Option<String> = args.read(arg)?;
            tap.addresses.extend(text.map(|text| parse_address(arg, &text)).transpose()?);
        }
        for text in args.rest("ADDRESS") {
            tap.addresses.push(parse_address("ADDRESS", text)?);
        }
        let metric = args.read("METRIC")?;
        let gateway: Option<Ipv4Addr> = args.read("GATEWAY")?;
        let default = |gateway: Ipv4Addr| HostRoute {
            to: (Ipv4Addr::UNSPECIFIED.into(), 0),
            gateway: gateway.into(),
            metric,
        };
        tap.routes.extend(gateway.map(default));
        for text in args.rest("ROUTE") {
            tap.routes.push(parse_route(text, metric)?);
        }
        let ether = args.read::<Option<EtherAddr>>("ETHER")?;
        tap.mac = Some(ether.map_or_else(|| stable_address::of_interface(&tap.name), |ether| ether.0));
        tap.mtu = args.read("MTU")?;
        tap.is_host_port = args.read("HOST_PORT")?;
        let (copy, copies) = args.copy_index();
        tap.queues = copies as u16;
        Ok(FromHost { tap, ports: args.resource(), receiver: Receiver::new(copy as u16), count: 0 })
    }

    fn device_name(&self) -> String {
        self.receiver.half.port().map_or(&*self.tap.name, |port| port.name()).to_string()
    }
}

/// An address of the argument's family with its prefix length or mask.
fn parse_address(arg: &'static str, text: &str) -> Result<(IpAddr, u8), ArgError> {
    let wrong = || {
        let example = if arg == "DST6" { "2001:db8::1/64" } else { "192.0.2.1/24" };
        let (value, fault) = (text.to_string(), "parse error".to_string());
        ArgError::Invalid { arg, value, fault, wants: format!("an address such as {example}") }
    };
    let (ip, length) = with_length(text).ok_or_else(wrong)?;
    let is_wanted = match arg {
        "DST" => ip.is_ipv4(),
        "DST6" => ip.is_ipv6(),
        _ => true,
    };
    is_wanted.then_some((ip, length)).ok_or_else(wrong)
}

/// `ADDRESS/LENGTH`, or for IPv4 `ADDRESS/MASK`.
fn with_length(text: &str) -> Option<(IpAddr, u8)> {
    let (ip, length) = text.split_once('/')?;
    let ip: IpAddr = ip.parse().ok()?;
    let longest = if ip.is_ipv4() { 32 } else { 128 };
    let mask = |mask: Ipv4Addr| mask.to_bits().leading_ones() as u8;
    let length = length.parse().ok().or_else(|| length.parse().ok().filter(|_| ip.is_ipv4()).map(mask));
    length.filter(|length| *length <= longest).map(|length| (ip, length))
}

/// Parses a route, written `PREFIX GATEWAY`.
fn parse_route(text: &str, metric: u32) -> Result<HostRoute, ArgError> {
    let mut words = text.split_whitespace();
    let prefix = words.next().and_then(with_length);
    let gateway = words.next().and_then(|word| word.parse::<IpAddr>().ok());
    match (prefix, gateway, words.next()) {
        (Some(to), Some(gateway), None) if to.0.is_ipv4() == gateway.is_ipv4() => {
            Ok(HostRoute { to, gateway, metric })
        }
        _ => Err(ArgError::Invalid {
            arg: "ROUTE",
            value: text.to_string(),
            fault: "parse error".into(),
            wants: "a prefix and a gateway of its family, such as 0.0.0.0/0 192.0.2.254".into(),
        }),
    }
}

impl Element for FromHost {
    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        let mut batch = cx.scratch_batch();
        self.receiver.receive(cx.burst(), &mut batch, cx);
        let received = batch.len();
        self.count += received as u64;
        cx.send_all(0, &mut batch);
        cx.recycle_batch(batch);
        received > 0
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        let port = open_port(&self.ports, PortSpec::Tap(self.tap.clone()), cx)?;
        self.receiver.start(port, cx)
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<FromHost>() {
            self.receiver.adopt_held(&mut old.receiver, cx);
            self.count = old.count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_device::{TxQueue as _, memory_pair};
    use artery_engine::{Batch, Bench, Pool, Resources};

    #[test]
    fn what_the_host_sends_is_sent_on() {
        let resources: Arc<Resources> = Arc::default();
        let (here, mut host) = memory_pair(8);
        resources.get::<Ports>().insert("fake0", here);
        let setup = Bench::setup(&CLASS, "fake0, 192.0.2.1/24, ETHER 02:00:00:00:00:01");
        let mut bench = setup.resources(resources).build().unwrap();
        let mut batch = Batch::default();
        batch.push(Pool::new(8, 1).unwrap().packet_from(b"frame").unwrap());
        host.tx.transmit(&mut batch).unwrap();
        bench.run_once();
        bench.expect(0, b"frame");
        assert_eq!(bench.read("count", "").as_deref(), Ok("1"));
        assert_eq!(bench.read("dev_name", "").as_deref(), Ok("fake0"));
    }

    #[test]
    fn addresses_have_a_length_or_a_mask() {
        let net = |text| parse_address("DST", text).unwrap().1;
        assert_eq!((net("1.2.3.4/24"), net("1.2.3.4/255.255.0.0")), (24, 16));
        assert_eq!(parse_address("DST6", "2001:db8::1/64").unwrap().1, 64);
        for (arg, text) in
            [("DST", "1.2.3.4"), ("DST", "::1/64"), ("DST6", "1.2.3.4/8"), ("DST", "1.2.3.4/33")]
        {
            assert_eq!(parse_address(arg, text).unwrap_err().to_string(), format!("{arg}: parse error"));
        }
    }

    #[test]
    fn several_addresses_and_routes_of_both_families_are_taken() {
        let bench = |config: &str| {
            let resources: Arc<Resources> = Arc::default();
            resources.get::<Ports>().insert("fake0", memory_pair(8).0);
            Bench::setup(&CLASS, config).resources(resources).build()
        };
        let config = "fake0, 192.0.2.1/24, 192.0.2.254, DST6 2001:db8::1/64, ADDRESS 10.0.0.1/8, \
                      ADDRESS 2001:db8:1::1/64, ROUTE ::/0 2001:db8::9, ROUTE 10.9.0.0/16 10.0.0.9, METRIC 7";
        assert!(bench(config).is_ok());
        let route = |text| parse_route(text, 7).unwrap();
        let to_all =
            HostRoute { to: ("::".parse().unwrap(), 0), gateway: "fe80::9".parse().unwrap(), metric: 7 };
        assert_eq!(route("::/0 fe80::9"), to_all);
        let bad =
            ["10.9.0.0/16", "10.9.0.0/16 ::1", "10.9.0.0/33 10.0.0.9", "10.9.0.0 10.0.0.9", "::/0 ::1 x"];
        for wrong in bad {
            let refusal = Bench::config_error(&CLASS, &format!("fake0, ROUTE {wrong}"));
            assert!(refusal.starts_with("ROUTE: parse error"), "{refusal}");
        }
        assert!(Bench::config_error(&CLASS, "fake0, ADDRESS 10.0.0.1").starts_with("ADDRESS: parse error"));
    }
}
