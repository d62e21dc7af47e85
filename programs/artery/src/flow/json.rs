//! Flows as lines of JSON. The first line describes the export, the last one has the number of flows. A file
//! without a first line, such as one that was filtered or written by hand, needs no last one.
use artery_flow::stream::{
    AnyKey, StreamFlow, is_valid_state, protocol_name, protocol_of, state_name, state_of,
};
use artery_flow::{Answer, FlowRecord, FlowState};
use artery_wire::IpProtocol;
use serde::Deserialize;
use std::borrow::Cow;
use std::io::Write as _;
use std::net::IpAddr;
use std::time::Duration;

/// What an export begins with.
pub(super) const FIRST_LINE: &str = "{\"format\":\"artery-flows\",\"version\":1}\n";
const FORMAT: &str = "artery-flows";
const VERSION: u64 = 1;
/// Longest idle time that makes sense, in seconds: what 32 bits of tenths of milliseconds hold.
pub(super) const LONGEST: f64 = 429_496.0;

/// What an export ends with.
pub(super) fn last_line(flows: u64) -> String {
    format!("{{\"flows\":{flows}}}\n")
}

/// Appends the line of a flow.
pub(super) fn write(flow: &StreamFlow, member: &str, worker: Option<usize>, into: &mut Vec<u8>) {
    let [(src, sport), (dst, dport)] = flow.key.endpoints();
    let (protocol, state) = (protocol_name(flow.key.protocol()), state_name(flow.state));
    let FlowRecord { packets, bytes, version, is_young, is_pinned, is_imported, epoch, .. } = flow;
    let ticks = flow.idle.as_micros() / 100;
    let worker = worker.map_or(String::new(), |worker| format!("\"worker\":{worker},"));
    // Writing into memory does not fail; names have no characters that JSON would write otherwise.
    let _ = writeln!(
        into,
        "{{{worker}\"protocol\":\"{protocol}\",\"src\":\"{src}\",\"sport\":{sport},\"dst\":\"{dst}\",\
         \"dport\":{dport},\
         \"member\":\"{member}\",\"state\":\"{state}\",\"idle\":{}.{:04},\"packets\":{packets},\
         \"bytes\":{bytes},\
         \"version\":{version},\"young\":{is_young},\"pinned\":{is_pinned},\
         \"imported\":{is_imported},\"epoch\":{epoch}}}",
        ticks / 10_000,
        ticks % 10_000
    );
}

/// What a line can say. Fields that are not known here are passed over.
#[derive(Deserialize)]
struct Fields<'a> {
    #[serde(borrow)]
    format: Option<Cow<'a, str>>,
    flows: Option<u64>,
    #[serde(borrow)]
    protocol: Option<Cow<'a, str>>,
    src: Option<IpAddr>,
    sport: Option<u16>,
    dst: Option<IpAddr>,
    dport: Option<u16>,
    #[serde(borrow)]
    member: Option<Cow<'a, str>>,
    #[serde(borrow)]
    state: Option<Cow<'a, str>>,
    idle: Option<f64>,
    packets: Option<u64>,
    bytes: Option<u64>,
    version: Option<u64>,
    young: Option<bool>,
    pinned: Option<bool>,
    imported: Option<bool>,
    epoch: Option<u64>,
}

/// A line of an export.
#[derive(Debug, PartialEq)]
pub(super) enum Line<'a> {
    /// The first line of an export.
    First,
    /// The last line of an export, with its number of flows.
    Last(u64),
    /// A flow, and the name of its member.
    Flow(StreamFlow, Cow<'a, str>),
}

pub(super) fn read(line: &[u8]) -> Result<Line<'_>, String> {
    let fields: Fields<'_> = serde_json::from_slice(line).map_err(|error| sense(&error))?;
    match &fields {
        Fields { format: Some(format), version, .. } => match (&**format, version) {
            (FORMAT, Some(VERSION)) => Ok(Line::First),
            (FORMAT, Some(other)) => Err(format!("this is of version {other}, and {VERSION} is known here")),
            _ => Err("this is not an export of flows".to_string()),
        },
        Fields { flows: Some(flows), src: None, .. } => Ok(Line::Last(*flows)),
        _ => flow(fields),
    }
}

/// The mistake in a line, without a line number, which would always be 1.
fn sense(error: &serde_json::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" at line ") {
        Some((what, _)) => format!("{what} (column {})", error.column()),
        None => text,
    }
}

fn flow(fields: Fields<'_>) -> Result<Line<'_>, String> {
    let missing = |name: &str| format!("'{name}' is missing");
    let protocol = fields.protocol.ok_or_else(|| missing("protocol"))?;
    let protocol =
        protocol_of(&protocol).ok_or_else(|| format!("protocol '{protocol}' is not tcp, udp or sctp"))?;
    let src = (fields.src.ok_or_else(|| missing("src"))?, fields.sport.ok_or_else(|| missing("sport"))?);
    let dst = (fields.dst.ok_or_else(|| missing("dst"))?, fields.dport.ok_or_else(|| missing("dport"))?);
    let member = fields.member.ok_or_else(|| missing("member"))?;
    if !artery_flow::balance::Member::is_name(&member) {
        return Err(format!("'{member}' is not a name of a member"));
    }
    let idle = fields.idle.unwrap_or(0.0);
    if !(0.0..=LONGEST).contains(&idle) {
        return Err(format!("idle {idle} is not a time from 0 to {LONGEST} seconds"));
    }
    let (version, epoch) = (fields.version.unwrap_or(0), fields.epoch.unwrap_or(0));
    let flow = FlowRecord {
        key: AnyKey::new([src, dst], protocol).map_err(|wrong| wrong.to_string())?,
        answer: Answer::default(),
        state: state(fields.state.as_deref(), protocol)?,
        idle: Duration::from_secs_f64(idle),
        packets: fields.packets.unwrap_or(0),
        bytes: fields.bytes.unwrap_or(0),
        version: version.try_into().map_err(|_| format!("version {version} is not from 0 to 65535"))?,
        is_young: fields.young.unwrap_or(false),
        is_pinned: fields.pinned.unwrap_or(false),
        is_imported: fields.imported.unwrap_or(false),
        epoch: epoch.try_into().map_err(|_| format!("epoch {epoch} is not from 0 to 65535"))?,
    };
    Ok(Line::Flow(flow, member))
}

/// The state of a flow; without a name it is in use.
fn state(name: Option<&str>, protocol: IpProtocol) -> Result<FlowState, String> {
    let Some(name) = name else {
        return Ok(match protocol {
            IpProtocol::TCP => FlowState::Established,
            IpProtocol::UDP => FlowState::UdpStream,
            _ => FlowState::Other,
        });
    };
    let known = state_of(name).filter(|state| is_valid_state(*state, protocol));
    known.ok_or_else(|| format!("'{name}' is not a state of {}", protocol_name(protocol)))
}

#[cfg(test)]
mod tests {
    use super::*;

    const FLOW: &str =
        r#"{"protocol":"tcp","src":"198.51.100.7","sport":9,"dst":"192.0.2.1","dport":80,"member":"a""#;

    #[test]
    fn what_is_written_is_read_again_and_unknown_fields_are_passed_over() {
        let text = format!(
            "{FLOW},\"state\":\"fin\",\"idle\":1.5003,\"packets\":7,\"bytes\":700,\"version\":65535,\
             \"young\":false,\"pinned\":true,\"imported\":true,\"epoch\":3}}"
        );
        let Ok(Line::Flow(flow, name)) = read(text.as_bytes()) else { panic!("{text}") };
        let mut line = Vec::new();
        write(&flow, &name, None, &mut line);
        assert_eq!(String::from_utf8(line).unwrap(), text.clone() + "\n");
        let more = text.replace("\"src\"", "\"new\":[{}],\"worker\":1,\"src\"");
        assert_eq!(read(more.as_bytes()), Ok(Line::Flow(flow, name)));
        assert_eq!(read(FIRST_LINE.trim_end().as_bytes()), Ok(Line::First));
        assert_eq!(read(last_line(7).trim_end().as_bytes()), Ok(Line::Last(7)));
    }

    #[test]
    fn each_kind_of_nonsense_is_told() {
        for (line, expected) in [
            ("{}".to_string(), "'protocol' is missing"),
            ("[]".to_string(), "invalid length"),
            ("".to_string(), "EOF"),
            (FLOW.to_string(), "EOF while parsing an object (column"),
            (format!("{FLOW},\"member\":\"b\"}}"), "duplicate field `member`"),
            (format!("{FLOW}}}").replace(":9,", ":70000,"), "invalid value: integer `70000`"),
            (format!("{FLOW}}}").replace(":9,", ":0,"), "port 0"),
            (format!("{FLOW}}}").replace(":9,", ":-1,"), "invalid value: integer `-1`"),
            (format!("{FLOW}}}").replace("tcp", "icmp"), "protocol 'icmp' is not"),
            (format!("{FLOW}}}").replace("198.51.100.7", "host"), "invalid IP address syntax"),
            (format!("{FLOW}}}").replace("198.51.100.7", "2001:db8::1"), "there are no flows from"),
            (format!("{FLOW}}}").replace("198.51.100.7", "192.0.2.1"), "there are no flows from"),
            (format!("{FLOW}}}").replace("\"a\"", "\"a b\""), "'a b' is not a name"),
            (format!("{FLOW},\"idle\":-1}}"), "idle -1 is not a time"),
            (format!("{FLOW},\"idle\":1e300}}"), "idle 1"),
            (format!("{FLOW},\"version\":65536}}"), "version 65536 is not"),
            (format!("{FLOW},\"state\":\"udp-stream\"}}"), "'udp-stream' is not a state of tcp"),
            (format!("{FLOW},\"packets\":1.5}}"), "invalid type: floating point"),
            (format!("{FLOW}}}}}"), "trailing characters"),
            ("{\"format\":\"other\",\"version\":1}".to_string(), "this is not an export"),
            ("{\"format\":\"artery-flows\",\"version\":2}".to_string(), "this is of version 2"),
        ] {
            let wrong = read(line.as_bytes()).unwrap_err();
            assert!(wrong.starts_with(expected), "{line}: {wrong}");
        }
    }
}
