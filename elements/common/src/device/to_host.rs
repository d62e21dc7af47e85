use super::port::{Hidden, Sender};
use artery_device::Ports;
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Handler, HandlerError, Phase, Show,
    StartError, Write,
};
use std::any::Any;
use std::sync::Arc;

pub static CLASS: Class = Class {
    name: "ToHost",
    aliases: &["ToLinux"],
    group: "device",
    summary: "gives frames to the host's own network stack",
    manual: "
With DEVNAME, sends Ethernet frames to the host by the TAP device that a FromHost with the same DEVNAME makes.
The host takes those whose Ethernet destination is the device's, and those that are broadcast, and answers by
the device.

Without DEVNAME, frames end here and are counted as handed to the host. That is all there is to do where
FromDevice leaves the host its view of the interface, as it does by default: the host has seen the
frame already, has taken it if it was meant for it, and a second copy would be processed twice. So
`FromDevice(eth0) -> … -> ToHost` works as it did when the router lived in the kernel and the host saw only
what ToHost gave it: pings of the host's address and ARP are answered by the host. What is forwarded reaches
the host too, which drops it, provided it does not forward itself (`sysctl net.ipv4.ip_forward=0`).

Where SNIFFER false hides an interface's frames from the host, ToHost needs a DEVNAME: give the host's address
to the device of a FromHost instead of to the interface, and the interface's Ethernet address as well, as in
the example; what the host sends there leaves by the interface.",
    example: "
FromDevice(eth0, SNIFFER false) -> ToHost(host0);
FromHost(host0, 192.0.2.1/24, ETHER 02:00:00:00:00:01) -> Queue -> ToDevice(eth0);",
    ports: "1/0",
    processing: "h/h",
    args: &[Arg::optional("DEVNAME", "interface", "", "the device of a FromHost")],
    handlers: &[
        Handler::read("count", "packets given to the host", &Show(|t: &mut ToHost| t.count)).sum(),
        Handler::write("reset_counts", "sets count to zero", &Write(ToHost::reset_counts)).button(),
    ],
    // After the FromHost that makes the device.
    phase: Phase::Last,
    build: |args| Ok(Box::new(ToHost::new(args)?)),
    ..Class::PER_WORKER
};

struct ToHost {
    device: Option<String>,
    ports: Arc<Ports>,
    hidden: Arc<Hidden>,
    sender: Sender,
    count: u64,
}

impl ToHost {
    fn new(args: &mut Args<'_>) -> Result<ToHost, ArgError> {
        let device: Option<String> = args.read("DEVNAME")?;
        Ok(ToHost {
            device: device.map(|device| args.names().device_name(&device).to_string()),
            ports: args.resource(),
            hidden: args.resource(),
            // The FromHost watches the device's file.
            sender: Sender::new(args.copy_index().0 as u16, false),
            count: 0,
        })
    }

    fn reset_counts(&mut self, _: &str, _: &mut Context<'_>) -> Result<(), HandlerError> {
        self.count = 0;
        Ok(())
    }
}

impl Element for ToHost {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        if self.device.is_some() {
            self.count += self.sender.send(batch, cx);
        } else {
            self.count += batch.len() as u64;
            cx.discard_all(batch, DropReason::Discarded);
        }
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        let waits = self.sender.is_busy();
        if waits {
            self.count += self.sender.flush_pending(cx);
        }
        waits
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        let Some(device) = &self.device else {
            return match self.hidden.first_hidden() {
                None => Ok(()),
                Some(hidden) => Err(StartError::new(format!(
                    "the host does not see the frames of {hidden}, or not all, because of its SNIFFER, and \
                     there is no device to give them to it by"
                ))
                .with_help(format!(
                    "write ToHost(host0) and FromHost(host0, ADDRESS/LENGTH, ETHER MAC) -> Queue -> \
                     ToDevice({hidden}), or leave SNIFFER out"
                ))),
            };
        };
        let port = self.ports.find(device).ok_or_else(|| {
            let why = format!("ToHost requires an initialized FromHost with the same DEVNAME, '{device}'");
            let help = format!("add FromHost({device}, ADDRESS/LENGTH), which makes the device");
            StartError::new(why).with_help(help)
        })?;
        self.sender.start(port, cx)
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<ToHost>() {
            self.sender.adopt_held(&mut old.sender, cx);
            self.count = old.count;
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.sender.stop(cx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_device::{RxQueue as _, memory_pair};
    use artery_engine::{Bench, Pool, Resources};

    #[test]
    fn frames_go_to_the_device() {
        let resources: Arc<Resources> = Arc::default();
        let (here, mut host) = memory_pair(8);
        resources.get::<Ports>().insert("host0", here);
        let mut bench = Bench::setup(&CLASS, "host0").resources(resources).build().unwrap();
        bench.push(0, b"frame");
        let mut batch = Batch::default();
        assert_eq!(host.rx.receive(Pool::new(8, 1).unwrap(), 8, &mut batch), Ok(1));
        assert_eq!(bench.read("count", "").as_deref(), Ok("1"));
    }

    #[test]
    fn without_a_device_frames_end_and_are_counted() {
        let mut bench = Bench::new(&CLASS, "");
        bench.push(0, b"frame");
        assert_eq!(bench.read("count", "").as_deref(), Ok("1"));
        bench.expect_dropped(DropReason::Discarded, 1);
        bench.write("reset_counts", "").unwrap();
        assert_eq!(bench.read("count", "").as_deref(), Ok("0"));
    }

    #[test]
    fn without_a_device_hidden_frames_could_not_reach_the_host() {
        let resources: Arc<Resources> = Arc::default();
        let hiding = resources.get::<Hidden>().hide_interface("eth0");
        let build = || Bench::setup(&CLASS, "").resources(resources.clone()).build();
        assert!(build().err().unwrap()[0].to_string().contains("the frames of eth0"));
        drop(hiding);
        assert!(build().is_ok());
    }

    #[test]
    fn a_device_that_nobody_made_is_refused() {
        let refusal = Bench::config_error(&CLASS, "host0");
        assert!(refusal.starts_with("ToHost requires an initialized FromHost"), "{refusal}");
    }
}
