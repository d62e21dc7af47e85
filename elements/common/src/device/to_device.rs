use super::method::{METHOD, read_method};
use super::port::{Sender, open_port};
use artery_device::{Method, PortSpec, Ports, TxSettings};
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, Element, Handler, HandlerError, Phase, Show, StartError,
    Write,
};
use std::any::Any;
use std::sync::Arc;

pub static CLASS: Class = Class {
    name: "ToDevice",
    aliases: &["KernelWriter"],
    group: "device",
    summary: "sends frames by a network interface",
    manual: "
Sends frames, which must begin with the link header, by an interface. It pulls them, usually from a Queue, and
sleeps while there are none or the interface can take no more. Frames can also be pushed to it; then what the
interface can't take is dropped, beyond a batch that waits. Frames are sent as they are: short ones are not
padded here, and those longer than the interface carries are dropped. When the interface vanishes, that is
said once, and frames are dropped until there is an interface DEVNAME again. The command line can give DEVNAME
another interface.

An interface has one owner: where another process of Artery sends by it, or takes frames from it (see
FromDevice), ToDevice does not start, and its error names that process. The loopback is everybody's.

METHOD says by which way, as in FromDevice. AUTO is AF_XDP where a FromDevice of the interface uses it. By
AF_XDP, packets are cut and their checksums made here; packet sockets take packets uncut.

Unlike in Click, an interface is written by one ToDevice: lead several ways into one Queue, or into a
scheduler such as RoundRobinSched before it.",
    example: "FromDevice(eth0) -> Queue -> ToDevice(eth1);",
    ports: "1/0",
    args: &[
        Arg::required("DEVNAME", "interface", "the interface"),
        Arg::keyword(
            "BURST",
            "packets",
            "",
            "most packets to pull in one run; the router's burst if not given",
        ),
        METHOD,
        Arg::keyword("DEBUG", "bool", "false", "accepted and without effect"),
    ],
    handlers: &[
        Handler::read("count", "packets sent", &Show(|t: &mut ToDevice| t.count)).sum(),
        Handler::write("reset_counts", "sets count to zero", &Write(ToDevice::reset_counts)).button(),
        Handler::read(
            "port",
            "packets, bytes and errors of the port",
            &Show(|t: &mut ToDevice| t.sender.half.format_counts()),
        ),
    ],
    phase: Phase::Privileged,
    build: |args| Ok(Box::new(ToDevice::new(args)?)),
    ..Class::PER_WORKER
};

struct ToDevice {
    device: String,
    queues: u16,
    method: Method,
    burst: Option<usize>,
    ports: Arc<Ports>,
    sender: Sender,
    count: u64,
}

impl ToDevice {
    fn new(args: &mut Args<'_>) -> Result<ToDevice, ArgError> {
        let device: String = args.read("DEVNAME")?;
        let burst: Option<usize> = args.read("BURST")?;
        if burst == Some(0) {
            return Err(ArgError::wrong("BURST must be at least 1"));
        }
        let (copy, copies) = args.copy_index();
        Ok(ToDevice {
            device: args.names().device_name(&device).to_string(),
            queues: copies as u16,
            method: read_method(args, "METHOD")?,
            burst,
            ports: args.resource(),
            sender: Sender::new(copy as u16, true),
            count: 0,
        })
    }

    fn reset_counts(&mut self, _: &str, _: &mut Context<'_>) -> Result<(), HandlerError> {
        self.count = 0;
        Ok(())
    }

    /// Pulls and sends one burst; returns whether there was something.
    fn pull_and_send(&mut self, cx: &mut Context<'_>) -> bool {
        let mut batch = cx.scratch_batch();
        let pulled = cx.pull(0, self.burst.unwrap_or(cx.burst()), &mut batch);
        if pulled > 0 {
            self.count += self.sender.send(&mut batch, cx);
        }
        cx.recycle_batch(batch);
        if !self.sender.is_stuck() && (pulled > 0 || !cx.upstream_idle(0)) {
            cx.schedule();
        }
        pulled > 0
    }
}

impl Element for ToDevice {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        self.count += self.sender.send(batch, cx);
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        if self.sender.is_busy() {
            self.count += self.sender.flush_pending(cx);
        }
        let is_free = !self.sender.is_stuck() && !self.sender.is_waiting();
        is_free && cx.input_is_pull(0) && self.pull_and_send(cx)
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        let transmit = Some(TxSettings { queues: self.queues, method: self.method, ..TxSettings::default() });
        let name = self.device.clone();
        let port = open_port(&self.ports, PortSpec::Interface { name, receive: None, transmit }, cx)?;
        self.sender.start(port, cx)
    }

    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<ToDevice>() {
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
    use artery_device::{MemoryPort, RxQueue as _, memory_pair};
    use artery_engine::{Bench, DropReason, Pool, Resources};
    use std::time::Duration;

    fn setup(pull: bool, capacity: usize) -> (Bench, MemoryPort) {
        let resources: Arc<Resources> = Arc::default();
        let (here, there) = memory_pair(capacity);
        resources.get::<Ports>().insert("m", here);
        let setup = Bench::setup(&CLASS, "m").resources(resources);
        (if pull { setup.pull() } else { setup }.build().unwrap(), there)
    }

    fn received(port: &mut MemoryPort) -> Vec<Vec<u8>> {
        let mut batch = Batch::default();
        port.rx.receive(Pool::new(64, 1).unwrap(), 256, &mut batch).unwrap();
        batch.iter().map(|packet| packet.data().to_vec()).collect()
    }

    #[test]
    fn pulls_and_sends_in_order() {
        let (mut bench, mut port) = setup(true, 8);
        bench.offer(0, b"one");
        bench.offer(0, b"two");
        bench.run_once();
        assert_eq!(received(&mut port), [b"one", b"two"]);
        assert_eq!(bench.read("count", "").as_deref(), Ok("2"));
    }

    #[test]
    fn what_the_device_can_not_take_waits_and_is_not_lost() {
        let (mut bench, mut port) = setup(true, 1);
        for packet in [b"1", b"2", b"3"] {
            bench.offer(0, packet);
        }
        bench.run_once();
        assert_eq!(received(&mut port), [b"1"]);
        bench.advance_time(Duration::from_millis(1));
        assert_eq!(received(&mut port), [b"2"]);
        bench.advance_time(Duration::from_millis(1));
        assert_eq!(received(&mut port), [b"3"]);
        assert_eq!(bench.drops().total(), 0);
    }

    #[test]
    fn packets_of_a_monitored_port_are_not_sent() {
        for pull in [false, true] {
            let (mut bench, mut port) = setup(pull, 8);
            bench.set_monitor(7, "l4");
            let packets = [7, 8, 0].map(|number| {
                let mut packet = bench.packet([number]);
                packet.set_in_port(number.into());
                packet
            });
            if pull {
                packets.into_iter().for_each(|packet| bench.offer_packet(0, packet));
                bench.run_once();
            } else {
                bench.push_packets(0, packets);
            }
            assert_eq!(received(&mut port), [[8], [0]]);
            bench.expect_dropped(DropReason::Monitored, 1);
            let counts = "in_packets 0\nin_bytes 0\nin_errors 0\nout_packets 2\nout_bytes 2\nout_errors 0\n";
            assert_eq!(bench.read("port", "").as_deref(), Ok(counts));
        }
    }

    #[test]
    fn pushed_packets_beyond_a_batch_are_dropped() {
        let (mut bench, mut port) = setup(false, 1);
        for n in 0..70u8 {
            bench.push(0, [n]);
        }
        bench.expect_dropped(DropReason::QueueFull, 5);
        assert!(bench.read("port", "").unwrap().ends_with("out_errors 5\n"));
        for n in 0..65u8 {
            assert_eq!(received(&mut port), [[n]]);
            bench.advance_time(Duration::from_millis(1));
        }
        assert_eq!(bench.read("count", "").as_deref(), Ok("65"));
    }

    #[test]
    fn what_waits_for_one_device_does_not_leave_by_another() {
        let resources: Arc<Resources> = Arc::default();
        let (here, mut m) = memory_pair(1);
        resources.get::<Ports>().insert("m", here);
        let (here, mut n) = memory_pair(8);
        resources.get::<Ports>().insert("n", here);
        let mut old = Bench::setup(&CLASS, "m").resources(resources.clone()).build().unwrap();
        for packet in [b"1", b"2", b"3"] {
            old.push(0, packet);
        }
        let mut new = Bench::setup(&CLASS, "n").resources(resources).as_replacement().build().unwrap();
        new.take_state(&mut old);
        new.push(0, b"4");
        assert_eq!(received(&mut m), [b"1"]);
        old.stop_without_successor();
        assert_eq!((received(&mut m), received(&mut n)), (vec![b"2".to_vec()], vec![b"4".to_vec()]));
        old.expect_dropped(DropReason::Replaced, 1);
    }

    #[test]
    fn a_queue_that_comes_late_has_counted_for_another() {
        let resources: Arc<Resources> = Arc::default();
        let (here, mut m) = memory_pair(8);
        resources.get::<Ports>().insert("m", here);
        let mut old = Bench::setup(&CLASS, "m").resources(resources.clone()).build().unwrap();
        (0..5).for_each(|_| old.push(0, b"old"));
        let mut new = Bench::setup(&CLASS, "m").resources(resources).as_replacement().build().unwrap();
        drop(old);
        new.advance_time(Duration::from_millis(50));
        new.push(0, b"new");
        assert_eq!(received(&mut m).len(), 6);
        assert_eq!(new.read("count", "").as_deref(), Ok("1"));
    }

    #[test]
    fn a_port_with_one_queue_does_not_serve_several_workers() {
        let resources: Arc<Resources> = Arc::default();
        resources.get::<Ports>().insert("m", memory_pair(8).0);
        let copy = |worker| Bench::setup(&CLASS, "m").resources(resources.clone()).as_copy(worker, 2).build();
        let _first = copy(0).unwrap();
        let refusal = copy(1).err().unwrap()[0].to_string();
        assert_eq!(refusal, "m has 1 queue, too few for a copy of this element on every worker");
    }

    #[test]
    fn bad_configurations_are_refused() {
        assert_eq!(Bench::config_error(&CLASS, ""), "DEVNAME: required argument missing");
        assert!(Bench::config_error(&CLASS, "nosuch0").starts_with("nosuch0: no such interface"));
        assert_eq!(Bench::config_error(&CLASS, "m, BURST 0"), "BURST must be at least 1");
    }
}
