use super::icmp_ping_encap::EchoRequest;
use crate::basic::template::Template;
use crate::basic::timed_source::nonzero_interval;
use artery_common::ip_header;
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Field, Handler, HandlerError, Limit,
    Packet, Show, StartError, Time, Write, parse_value,
};
use artery_wire::{Icmp, IcmpType, IpProtocol, Ipv4};
use std::net::Ipv4Addr;
use std::ops::Range;
use std::time::Duration;

pub static CLASS: Class = Class {
    name: "ICMPPingSource",
    aliases: &["ICMPSendPings"],
    group: "ip",
    summary: "sends ICMP echo requests and tells of replies",
    manual: "
Sends an ICMP echo request from SRC to DST every INTERVAL, the first one after the first interval, and LIMIT
in all; with STOP it asks the router to stop one interval after the last. Where packets are pulled from it,
each pull makes requests, and INTERVAL does not matter. Sequence number and IP identification begin at 1 and
grow by one with each request; 0 is left out. Packets have an IP header, which is marked, a destination
annotation, and the time as their timestamp.

Replies go to the input, if there is one, as marked IP packets. Each is counted and dropped, as are all other
packets, which are not counted. The times until they came, by their timestamps as far as they have one, make
the statistics that `summary` prints in the manner of ping, as the element does when the run ends. With
VERBOSE each reply is printed as a line. With MIRROR a reply becomes the next request at once, with the same
data, whatever the LIMIT.",
    example: "s :: ICMPPingSource(10.0.0.1, 10.0.0.2, LIMIT 5) -> ICMPPingResponder -> s;",
    ports: "0-1/1",
    processing: "h/a",
    args: &[
        Arg::required("SRC", "IP address", "source address"),
        Arg::required("DST", "IP address", "destination address"),
        Arg::keyword("INTERVAL", "seconds", "1", "time from one request to the next"),
        Arg::keyword("IDENTIFIER", "0 to 65535", "0", "the echo's identifier"),
        Arg::keyword("DATA", "bytes", "\"\"", "what follows the ICMP header"),
        Arg::keyword("LIMIT", "packets", "-1", "requests to send in all; -1 for no limit"),
        Arg::keyword("ACTIVE", "bool", "true", "whether to send"),
        Arg::keyword("VERBOSE", "bool", "true", "whether to tell of each reply, and of all at the end"),
        Arg::keyword("STOP", "bool", "false", "whether to stop the router after LIMIT requests"),
        Arg::keyword("MIRROR", "bool", "false", "whether a reply becomes the next request"),
    ],
    handlers: &[
        Handler::read("active", "ACTIVE", &Show(|s: &mut PingSource| s.active))
            .and_write(&Write(PingSource::set_active)),
        Handler::field("src", "SRC", &Field(|s: &mut PingSource| &mut s.request.src)),
        Handler::field("dst", "DST", &Field(|s: &mut PingSource| &mut s.request.dst)),
        Handler::read("count", "requests sent", &Show(|s: &mut PingSource| s.count)),
        Handler::write("limit", "LIMIT", &Write(PingSource::set_limit)),
        Handler::write("interval", "INTERVAL", &Write(PingSource::set_interval)),
        Handler::write("reset_counts", "starts again from zero", &Write(PingSource::reset)).button(),
        Handler::read(
            "summary",
            "requests, replies and their times",
            &Show(|s: &mut PingSource| s.summary_text()),
        ),
        Handler::read(
            "rtt_min",
            "shortest time until a reply came",
            &Show(|s: &mut PingSource| format_seconds(s.replies.least)),
        ),
        Handler::read(
            "rtt_avg",
            "mean time until a reply came",
            &Show(|s: &mut PingSource| format_seconds(s.replies.mean())),
        ),
        Handler::read(
            "rtt_max",
            "longest time until a reply came",
            &Show(|s: &mut PingSource| format_seconds(s.replies.most)),
        ),
    ],
    build: |args| Ok(Box::new(PingSource::new(args)?)),
    finished: true,
    ..Class::DEFAULT
};

/// Bytes in front of the data: headers of IP and ICMP.
const HEADERS: usize = Ipv4::<&[u8]>::MIN_LEN + Icmp::<&[u8]>::LEN;

struct PingSource {
    request: EchoRequest,
    data: Template,
    interval: Duration,
    limit: Limit,
    active: bool,
    verbose: bool,
    stop: bool,
    mirror: bool,
    count: u64,
    /// When the next request is due; none while the timer is off.
    next: Option<Time>,
    /// When the request of each sequence number was sent, and whether it was answered; empty if
    /// replies are not received.
    sent: Vec<(Time, bool)>,
    replies: ReplyStats,
}

/// Statistics of replies; times in microseconds.
#[derive(Default)]
struct ReplyStats {
    received: u64,
    duplicates: u64,
    /// Replies with a known round-trip time.
    timed: u64,
    least: u64,
    most: u64,
    sum: u64,
    sum_of_squares: u128,
}

impl ReplyStats {
    fn add_sample(&mut self, micros: u64) {
        self.least = if self.timed == 0 { micros } else { self.least.min(micros) };
        self.most = self.most.max(micros);
        self.sum = self.sum.saturating_add(micros);
        self.sum_of_squares = self.sum_of_squares.saturating_add(u128::from(micros).pow(2));
        self.timed += 1;
    }
    fn mean(&self) -> u64 {
        self.sum / self.timed.max(1)
    }
    fn deviation(&self) -> u64 {
        let mean_of_squares = self.sum_of_squares / u128::from(self.timed.max(1));
        mean_of_squares.saturating_sub(u128::from(self.mean()).pow(2)).isqrt() as u64
    }
}

/// A time as Click prints one of whole microseconds.
fn format_seconds(micros: u64) -> String {
    match micros {
        1..1000 => format!("{micros}us"),
        _ => {
            let text = format!("{}.{:06}", micros / 1_000_000, micros % 1_000_000);
            format!("{}s", text.trim_end_matches('0').trim_end_matches('.'))
        }
    }
}
/// A time in milliseconds with three decimals.
fn format_millis(micros: u64) -> String {
    format!("{}.{:03}", micros / 1000, micros % 1000)
}

/// A reply to one of our requests.
struct Reply {
    src: Ipv4Addr,
    ttl: u8,
    sequence: u16,
    /// Where its data lies, from the IP header on.
    data: Range<usize>,
}

impl PingSource {
    fn new(args: &mut Args<'_>) -> Result<PingSource, ArgError> {
        let request = EchoRequest {
            src: args.read("SRC")?,
            dst: args.read("DST")?,
            ttl: 200,
            identifier: args.read("IDENTIFIER")?,
        };
        let interval = nonzero_interval(args.read("INTERVAL")?);
        let asked = if args.inputs() > 0 { 1 << 16 } else { 0 };
        Ok(PingSource {
            request,
            data: Template::new(args.read("DATA")?, None, HEADERS).map_err(ArgError::Wrong)?,
            interval: interval.ok_or_else(|| ArgError::wrong("INTERVAL must be more than zero"))?,
            limit: args.read("LIMIT")?,
            active: args.read("ACTIVE")?,
            verbose: args.read("VERBOSE")?,
            stop: args.read("STOP")?,
            mirror: args.read("MIRROR")?,
            count: 0,
            next: None,
            sent: vec![(Time::ZERO, false); asked],
            replies: ReplyStats::default(),
        })
    }

    fn set_active(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.active = parse_value(text)?;
        let now = cx.now();
        if !self.active {
            self.next = None;
        } else if self.next.is_none() {
            self.send_from(now, cx);
        }
        Ok(())
    }
    fn set_interval(&mut self, text: &str, _: &mut Context<'_>) -> Result<(), HandlerError> {
        let time = parse_value(text).ok().and_then(nonzero_interval);
        self.interval = time.ok_or_else(|| HandlerError::refused("bad interval"))?;
        Ok(())
    }
    fn set_limit(&mut self, text: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.limit = parse_value(text).map_err(|_| HandlerError::refused("'limit' should be integer"))?;
        self.resume_sending(cx);
        Ok(())
    }
    fn reset(&mut self, _: &str, cx: &mut Context<'_>) -> Result<(), HandlerError> {
        self.count = 0;
        self.sent.fill((Time::ZERO, false));
        self.replies = ReplyStats::default();
        self.resume_sending(cx);
        Ok(())
    }
    /// Starts the timer, if it is off and there are more requests to send.
    fn resume_sending(&mut self, cx: &mut Context<'_>) {
        if self.active && self.next.is_none() && self.requests_left() > 0 {
            let first = cx.now() + self.interval;
            self.send_from(first, cx);
        }
    }
    fn send_from(&mut self, time: Time, cx: &mut Context<'_>) {
        if !cx.output_is_pull(0) {
            self.next = Some(time);
            cx.wake_at(time);
        }
    }
    /// How many requests may still be sent.
    fn requests_left(&self) -> u64 {
        self.limit.0.map_or(u64::MAX, |limit| limit.saturating_sub(self.count))
    }

    /// Adds up to `n` requests to a batch.
    fn make_requests(&mut self, n: usize, into: &mut Batch, cx: &mut Context<'_>) {
        let (now, mut data) = (cx.now(), cx.scratch_batch());
        self.data.make_packets(n, now, &mut data, cx);
        into.extend(data.drain().filter_map(|packet| self.number_request(packet, now, cx)));
        cx.recycle_batch(data);
    }
    /// Makes the next request from data.
    fn number_request(&mut self, mut packet: Packet, now: Time, cx: &mut Context<'_>) -> Option<Packet> {
        let sequence = (self.count % u64::from(u16::MAX)) as u16 + 1;
        if let Err(reason) = self.request.prepend_headers(&mut packet, sequence) {
            cx.discard(packet, reason);
            return None;
        }
        packet.set_timestamp(now);
        if let Some(sent) = self.sent.get_mut(usize::from(sequence)) {
            *sent = (now, false);
        }
        self.count += 1;
        Some(packet)
    }

    fn receive_reply(&mut self, packet: Packet, cx: &mut Context<'_>) {
        let Some(reply) = self.parse_reply(&packet) else { return cx.discard(packet, DropReason::NotForUs) };
        self.count_reply(&reply, packet.timestamp(), cx);
        if self.mirror {
            self.send_back(packet, &reply, cx);
        } else {
            cx.discard(packet, DropReason::Consumed);
        }
    }
    fn parse_reply(&self, packet: &Packet) -> Option<Reply> {
        let ip =
            ip_header::ip(packet).ok().filter(|ip| ip.protocol() == IpProtocol::ICMP && !ip.is_fragment())?;
        let bytes = ip_header::bytes(packet);
        let end = usize::from(ip.total_length()).min(bytes.len());
        let icmp = Icmp::new(bytes.get(ip.header_len()..end)?).ok()?;
        let is_ours = icmp.icmp_type() == IcmpType::ECHO_REPLY && icmp.echo_id() == self.request.identifier;
        let data = ip.header_len() + Icmp::<&[u8]>::LEN..end;
        is_ours.then(|| Reply { src: ip.src(), ttl: ip.ttl(), sequence: icmp.echo_seq(), data })
    }
    /// Counts a reply to a request that was sent.
    fn count_reply(&mut self, reply: &Reply, time: Time, cx: &mut Context<'_>) {
        let sent = self.sent.get_mut(usize::from(reply.sequence)).filter(|(sent, _)| *sent != Time::ZERO);
        let Some((sent, answered)) = sent else { return };
        self.replies.duplicates += u64::from(*answered);
        *answered = true;
        self.replies.received += 1;
        // Without a timestamp the time of arrival is unknown.
        let micros = (time != Time::ZERO).then(|| time.since(*sent).as_micros() as u64);
        micros.inspect(|micros| self.replies.add_sample(*micros));
        if self.verbose {
            let Reply { src, ttl, sequence, data } = reply;
            let length = data.len();
            let time = micros.map(|micros| format!(" time={} ms", format_millis(micros))).unwrap_or_default();
            let line = format!("{length} bytes from {src}: icmp_seq={sequence} ttl={ttl}{time}");
            cx.print_message(&format!("{} :: ICMPPingSource: {line}", cx.name()));
        }
    }
    /// Makes the next request from a reply.
    fn send_back(&mut self, mut packet: Packet, reply: &Reply, cx: &mut Context<'_>) {
        let front = packet.network_offset().unwrap_or(0);
        let (start, end) = (front + reply.data.start as isize, front + reply.data.end as isize);
        packet.truncate(end.max(0) as usize);
        // The data of a valid reply begins within the packet.
        if usize::try_from(start).is_ok_and(|start| packet.strip(start).is_err()) {
            return cx.discard(packet, DropReason::Malformed);
        }
        packet.clear_metadata();
        let now = cx.now();
        if let Some(packet) = self.number_request(packet, now, cx) {
            cx.send(0, packet);
        }
    }

    fn summary_text(&self) -> String {
        let ReplyStats { received, duplicates, timed, least, most, .. } = self.replies;
        let (sent, answered) = (self.count, received - duplicates);
        let mut text = format!("{sent} packets transmitted, {answered} received");
        if duplicates > 0 {
            text += &format!(", +{duplicates} duplicates");
        }
        if let Some(lost) = (sent.saturating_sub(answered) * 100).checked_div(sent) {
            text += &format!(", {lost}% packet loss");
        }
        text += "\n";
        if timed > 0 {
            let times = [least, self.replies.mean(), most, self.replies.deviation()].map(format_millis);
            text += &format!("rtt min/avg/max/mdev = {} ms\n", times.join("/"));
        }
        text
    }
}

impl Element for PingSource {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        batch.drain().for_each(|packet| self.receive_reply(packet, cx));
    }

    fn pull(&mut self, _output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        if !self.active {
            return;
        }
        let n = max.min(usize::try_from(self.requests_left()).unwrap_or(max));
        self.make_requests(n, into, cx);
        if n == 0 && std::mem::take(&mut self.stop) {
            cx.request_stop();
        }
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        if cx.output_is_pull(0) && self.mirror {
            return Err(StartError::new("MIRROR invalid on pull element")
                .with_help("put a Queue between the element and what pulls, so that it pushes"));
        }
        self.resume_sending(cx);
        Ok(())
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        let Some(due) = self.next.filter(|next| *next <= cx.now()) else { return false };
        self.next = None;
        if self.requests_left() == 0 {
            if self.stop {
                cx.request_stop();
            }
            return false;
        }
        let mut batch = cx.scratch_batch();
        self.make_requests(1, &mut batch, cx);
        cx.send_all(0, &mut batch);
        cx.recycle_batch(batch);
        self.send_from(due + self.interval, cx);
        true
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        if self.verbose && !self.sent.is_empty() {
            for line in self.summary_text().lines() {
                cx.print_message(&format!("{} :: ICMPPingSource: {line}", cx.name()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::survives_anything;
    use artery_engine::Bench;
    use artery_wire::build::{Ip4, icmp_echo, ip4};

    const CONFIG: &str = "1.0.0.1, 2.0.0.2, IDENTIFIER 7, DATA abc";

    fn bench(more: &str) -> Bench {
        Bench::setup(&CLASS, &format!("{CONFIG}{more}")).inputs(1).build().unwrap()
    }
    fn request(sequence: u16) -> Vec<u8> {
        icmp_echo("1.0.0.1", "2.0.0.2", 7, sequence).id(sequence).ttl(200).payload(b"abc").bytes()
    }
    fn reply(sequence: u16) -> Ip4 {
        ip4().src("2.0.0.2").dst("1.0.0.1").ttl(60).icmp_echo_reply(7, sequence).payload(b"abc")
    }
    /// Delivers a reply after so many microseconds.
    fn answer(bench: &mut Bench, sequence: u16, micros: u64) {
        bench.advance_time(Duration::from_micros(micros));
        let mut packet = bench.packet(reply(sequence).bytes());
        packet.set_network_header(0);
        packet.set_timestamp(bench.now());
        bench.push_packets(0, [packet]);
    }

    #[test]
    fn a_request_is_sent_every_interval() {
        let mut bench = bench(", LIMIT 2, STOP true, INTERVAL 0.5");
        bench.expect_nothing_more();
        bench.advance_time(Duration::from_secs(1));
        let first = bench.expect(0, request(1));
        assert_eq!((first.network_offset(), first.dst_ip().octets()), (Some(0), [2, 0, 0, 2]));
        assert_eq!(bench.expect(0, request(2)).timestamp(), bench.now());
        assert!(!bench.stop_requested());
        bench.advance_time(Duration::from_secs(1));
        bench.expect_nothing_more();
        assert!(bench.stop_requested());
        assert_eq!(bench.read("count", "").unwrap(), "2");
    }

    #[test]
    fn replies_are_told_and_counted() {
        let mut bench = bench("");
        bench.advance_time(Duration::from_secs(2));
        answer(&mut bench, 2, 1500);
        assert_eq!(
            bench.stderr_text().trim_end().rsplit_once(" :: ").unwrap().1,
            "ICMPPingSource: 3 bytes from 2.0.0.2: icmp_seq=2 ttl=60 time=1.500 ms"
        );
        answer(&mut bench, 2, 1000);
        bench.expect_dropped(DropReason::Consumed, 2);
        assert_eq!(
            bench.read("summary", "").unwrap(),
            "2 packets transmitted, 1 received, +1 duplicates, 50% packet loss\n\
             rtt min/avg/max/mdev = 1.500/2.000/2.500/0.500 ms\n"
        );
        let times = ["rtt_min", "rtt_avg", "rtt_max"].map(|name| bench.read(name, "").unwrap());
        assert_eq!(times, ["0.0015s", "0.002s", "0.0025s"]);
        bench.write("reset_counts", "").unwrap();
        assert_eq!(bench.read("summary", "").unwrap(), "0 packets transmitted, 0 received\n");
    }

    #[test]
    fn a_reply_without_timestamp_counts_and_its_time_does_not() {
        let mut bench = bench("");
        bench.advance_time(Duration::from_secs(2));
        bench.push_with(0, reply(1).bytes(), |packet| packet.set_network_header(0));
        assert!(bench.stderr_text().ends_with("3 bytes from 2.0.0.2: icmp_seq=1 ttl=60\n"));
        let sent = "2 packets transmitted, 1 received, 50% packet loss\n";
        assert_eq!(bench.read("summary", "").unwrap(), sent);
        answer(&mut bench, 2, 1500);
        let times = ["rtt_min", "rtt_avg", "rtt_max"].map(|name| bench.read(name, "").unwrap());
        assert_eq!(times, ["0.0015s"; 3]);
    }

    #[test]
    fn what_is_no_reply_to_a_request_is_dropped_and_not_counted() {
        let mut bench = bench("");
        bench.push(0, reply(9).bytes());
        bench.push(0, request(1));
        bench.push(0, ip4().udp(1, 2).bytes());
        bench.expect_dropped(DropReason::NotForUs, 2);
        assert_eq!(bench.read("summary", "").unwrap(), "0 packets transmitted, 0 received\n");
        assert_eq!(bench.stderr_text(), "");
    }

    #[test]
    fn with_mirror_a_reply_becomes_the_next_request() {
        let mut bench = bench(", MIRROR true, VERBOSE false");
        bench.advance_time(Duration::from_secs(1));
        bench.expect(0, request(1));
        let mut packet = bench.packet([&[0; 14][..], &reply(1).bytes(), b"padding"].concat());
        packet.set_headers(14, 20);
        bench.push_packets(0, [packet]);
        bench.expect(0, request(2));
        assert_eq!((bench.read("count", "").unwrap(), bench.stderr_text()), ("2".into(), String::new()));
    }

    #[test]
    fn whoever_pulls_gets_as_many_as_there_may_be() {
        let mut bench =
            Bench::setup(&CLASS, &format!("{CONFIG}, LIMIT 3, STOP true")).pull().build().unwrap();
        let packets = bench.pull(0, 2);
        assert_eq!(packets.iter().map(|packet| packet.data()).collect::<Vec<_>>(), [request(1), request(2)]);
        assert_eq!((bench.pull(0, 8).len(), bench.stop_requested()), (1, false));
        assert_eq!((bench.pull(0, 8).len(), bench.stop_requested()), (0, true));
        let mirror = Bench::setup(&CLASS, &format!("{CONFIG}, MIRROR true")).pull().build().err().unwrap();
        assert_eq!(mirror[0].to_string(), "MIRROR invalid on pull element");
    }

    #[test]
    fn it_rests_while_it_is_not_active() {
        let mut bench = bench(", ACTIVE false");
        bench.advance_time(Duration::from_secs(3));
        bench.expect_nothing_more();
        bench.write("active", "true").unwrap();
        bench.run();
        bench.advance_time(Duration::ZERO);
        bench.expect(0, request(1));
        bench.write("active", "false").unwrap();
        bench.advance_time(Duration::from_secs(3));
        bench.expect_nothing_more();
    }

    #[test]
    fn refuses_an_interval_of_zero() {
        let found = Bench::config_error(&CLASS, "1.0.0.1, 2.0.0.2, INTERVAL 0");
        assert_eq!(found, "INTERVAL must be more than zero");
        assert!(bench("").write("interval", "0").is_err());
    }

    #[test]
    fn any_bytes_are_survived() {
        survives_anything(&CLASS, &format!("{CONFIG}, MIRROR true"), 1);
    }
}
