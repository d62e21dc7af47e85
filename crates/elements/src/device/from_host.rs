use super::port::{Receiver, open};
use artery_device::{PortSpec, Ports, TapSettings};
use artery_engine::{Arg, ArgError, Args, Batch, Class, Context, Element, Handler, Phase, Read, StartError};
use artery_wire::EtherAddr;
use std::any::Any;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

pub static CLASS: Class = Class {
    name: "FromHost",
    group: "device",
    summary: "receives what the host sends by a TAP device of the router",
    manual: "
Makes a TAP device, an interface of the host whose other end is the router, and sends the Ethernet frames that the host
sends by it. DST, an address with prefix length, and DST6 are the host's addresses on it; ETHER is its Ethernet address.
ToHost with the same DEVNAME sends frames to the host. The host asks by ARP for whom it wants to reach there; an
ARPResponder can answer for everybody. The device vanishes with the router.

A default route by the device is set with `ip route add default via GATEWAY`; the argument GATEWAY is refused.",
    example: "
FromHost(fake0, 192.0.2.1/24) -> c :: Classifier(12/0806, 12/0800);
c[0] -> ARPResponder(0.0.0.0/0 02:00:00:00:00:01) -> ToHost(fake0);
c[1] -> Discard;",
    ports: "0/1",
    processing: "h/h",
    args: &[
        Arg::required("DEVNAME", "interface", "the device to make"),
        Arg::optional("DST", "IP prefix", "", "the host's address on it, with its network's length"),
        Arg::optional("GATEWAY", "IP address", "", "refused: set the route with `ip route`"),
        Arg::optional("HEADROOM", "bytes", "28", "accepted; there always is more"),
        Arg::keyword("ETHER", "Ethernet address", "", "the host's Ethernet address on it"),
        Arg::keyword("DST6", "IPv6 prefix", "", "the host's IPv6 address on it"),
        Arg::keyword("MTU", "bytes", "", "longest packet; 1500 if not given"),
    ],
    handlers: &[
        Handler::read("dev_name", "the device", &Read(|f: &mut FromHost, _, _| Ok(f.name()))),
        Handler::read("count", "packets received", &Read(|f: &mut FromHost, _, _| Ok(f.count.to_string()))),
    ],
    phase: Phase::Privileged,
    build: |args| Ok(Box::new(FromHost::new(args)?)),
    ..Class::DEFAULT
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
        if let Some(gateway) = args.read::<Option<Ipv4Addr>>("GATEWAY")? {
            let remedy = format!("leave it out and run 'ip route add default via {gateway}'");
            return Err(ArgError::wrong(format!("GATEWAY is not supported; {remedy}")));
        }
        let mut tap = TapSettings::new(args.names().device(&name));
        for arg in ["DST", "DST6"] {
            let text: Option<String> = args.read(arg)?;
            tap.addresses.extend(text.map(|text| address(arg, &text)).transpose()?);
        }
        tap.mac = args.read::<Option<EtherAddr>>("ETHER")?.map(|ether| ether.0);
        tap.mtu = args.read("MTU")?;
        Ok(FromHost { tap, ports: args.resource(), receiver: Receiver::new(0), count: 0 })
    }

    fn name(&self) -> String {
        self.receiver.half.port().map_or(&*self.tap.name, |port| port.name()).to_string()
    }
}

/// An address of the argument's family with its prefix length or mask.
fn address(arg: &'static str, text: &str) -> Result<(IpAddr, u8), ArgError> {
    let wrong = || {
        let example = if arg == "DST" { "192.0.2.1/24" } else { "2001:db8::1/64" };
        let (value, fault) = (text.to_string(), "parse error".to_string());
        ArgError::Invalid { arg, value, fault, wants: format!("an address such as {example}") }
    };
    let (ip, length) = text.split_once('/').ok_or_else(wrong)?;
    let ip: IpAddr = ip.parse().map_err(|_| wrong())?;
    let (is_wanted, longest) = if ip.is_ipv4() { (arg == "DST", 32) } else { (arg == "DST6", 128) };
    let mask = |mask: Ipv4Addr| mask.to_bits().leading_ones() as u8;
    let length = length.parse().ok().or_else(|| length.parse().ok().map(mask));
    let length = length.filter(|length| is_wanted && *length <= longest).ok_or_else(wrong)?;
    Ok((ip, length))
}

impl Element for FromHost {
    fn push(&mut self, _input: usize, _batch: &mut Batch, _cx: &mut Context<'_>) {}

    fn run(&mut self, cx: &mut Context<'_>) -> bool {
        let mut batch = cx.spare();
        self.receiver.receive(cx.burst(), &mut batch, cx);
        let received = batch.len();
        self.count += received as u64;
        cx.send_all(0, &mut batch);
        cx.give_spare(batch);
        received > 0
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        let port = open(&self.ports, PortSpec::Tap(self.tap.clone()), cx)?;
        self.receiver.start(port, cx)
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<FromHost>() {
            self.receiver.adopt(&mut old.receiver, cx);
            self.count = old.count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_device::{TxQueue as _, memory_pair};
    use artery_engine::{Bench, Pool, Resources};

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
        let net = |text| address("DST", text).unwrap().1;
        assert_eq!((net("1.2.3.4/24"), net("1.2.3.4/255.255.0.0")), (24, 16));
        assert_eq!(address("DST6", "2001:db8::1/64").unwrap().1, 64);
        for (arg, text) in
            [("DST", "1.2.3.4"), ("DST", "::1/64"), ("DST6", "1.2.3.4/8"), ("DST", "1.2.3.4/33")]
        {
            assert_eq!(address(arg, text).unwrap_err().to_string(), format!("{arg}: parse error"));
        }
    }

    #[test]
    fn a_gateway_is_refused_with_the_remedy() {
        let refusal = Bench::refuses(&CLASS, "fake0, 192.0.2.1/24, 192.0.2.9");
        assert!(refusal.contains("ip route add default via 192.0.2.9"), "{refusal}");
    }
}
