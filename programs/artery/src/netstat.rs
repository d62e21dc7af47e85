//! `artery netstat`: the counters of a running router's ports, or its routes, in the layout of BSD's netstat.
use crate::control_socket::Client;
use crate::ip_router::RouterReach;
use crate::options::Reach;
use crate::options::values::wait;
use crate::output::{OutputReader, print_on, print_stdout};
use crate::route::bsd_table::{self, Family};
use anyhow::{Context as _, anyhow};
use artery_device::{Delays, TrafficCounts};
use clap::{ArgAction, Args};
use std::io::IsTerminal as _;
use std::time::Duration;
use std::time::Instant;

/// Rows on a screen; then the header is due again.
const ROWS: u64 = 21;

#[derive(Args)]
pub(crate) struct NetstatOptions {
    #[command(flatten)]
    pub(crate) reach: Reach,
    /// The port to show
    #[arg(short = 'I', value_name = "PORT")]
    pub(crate) interface: Option<String>,
    /// List all ports
    #[arg(short = 'i')]
    pub(crate) list: bool,
    /// Routes instead of ports
    #[arg(
        short = 'r',
        conflicts_with_all = ["interface", "list", "bytes", "human", "interval", "count", "wait"]
    )]
    pub(crate) routes: bool,
    /// Routes of this family only: inet or inet6
    #[arg(short = 'f', value_name = "FAMILY", requires = "routes", value_parser = ["inet", "inet6"])]
    pub(crate) family: Option<String>,
    /// Bytes instead of packets
    #[arg(short = 'b')]
    pub(crate) bytes: bool,
    /// Numbers with units
    #[arg(short = 'h')]
    pub(crate) human: bool,
    /// Accepted: numbers are never given names
    #[arg(short = 'n')]
    numeric: bool,
    /// Seconds from row to row
    #[arg(short = 'w', value_name = "WAIT", value_parser = wait)]
    interval: Option<Duration>,
    /// Rows, and then the end
    #[arg(short = 'c', value_name = "COUNT", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) count: Option<u64>,
    /// The same as -w WAIT
    #[arg(value_name = "WAIT", value_parser = wait, conflicts_with = "interval")]
    wait: Option<Duration>,
    /// Print help
    #[arg(long, action = ArgAction::Help)]
    help: Option<bool>,
}

impl NetstatOptions {
    /// The IPRouter whose routes are meant.
    pub(crate) fn router(&self) -> RouterReach {
        RouterReach::of(self.reach.clone())
    }

    /// How long from row to row; none for a list.
    pub(crate) fn wait(&self) -> Option<Duration> {
        self.interval.or(self.wait)
    }
}

/// Shows ports once, or one of them again and again.
pub(crate) fn command(options: &NetstatOptions) -> anyhow::Result<u8> {
    if options.routes {
        let families =
            options.family.as_deref().and_then(Family::named).map_or(Family::ALL.to_vec(), |one| vec![one]);
        return bsd_table::show(&options.router(), &families);
    }
    let mut client = Client::connect(&options.reach)?;
    let style = Style { bytes: options.bytes, human: options.human };
    let ports = ports(&mut client)?;
    let wanted = options.interface.as_deref();
    match options.wait() {
        Some(wait) if !options.list => {
            let name = match (wanted, ports.first()) {
                (Some(name), _) => name.to_string(),
                (None, Some(first)) => first.name.clone(),
                (None, None) => return Err(anyhow!("the router has no port")),
            };
            let watch = Watch::new(name, style, std::io::stdout().is_terminal());
            follow(&mut client, watch, ports, wait, options.count)
        }
        _ => {
            if let Some(name) = wanted {
                find(&ports, name)?;
            }
            let shown = ports.iter().filter(|port| wanted.is_none_or(|name| port.name == name));
            print_stdout(&style.list(shown)).map(|()| 0)
        }
    }
}

/// Prints a row each time that `wait` has passed.
fn follow(
    client: &mut Client,
    mut watch: Watch,
    mut now: Vec<Port>,
    wait: std::time::Duration,
    count: Option<u64>,
) -> anyhow::Result<u8> {
    let mut next = Instant::now();
    for row in 1.. {
        let reader = print_on(&watch.row(&now)?)?;
        if reader == OutputReader::Gone || count.is_some_and(|count| row >= count) {
            break;
        }
        // What reading took does not shift the rows that follow.
        next += wait;
        std::thread::sleep(next.saturating_duration_since(Instant::now()));
        now = ports(client)?;
    }
    Ok(0)
}

/// A router's report of one of its ports.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Port {
    pub(crate) name: String,
    mtu: String,
    address: String,
    pub(crate) received: TrafficCounts,
    pub(crate) sent: TrafficCounts,
    /// How long received frames had waited; empty where the router does not report it.
    pub(crate) delays: Delays,
    /// `up`, `down` or `absent`; empty where the router does not say.
    pub(crate) state: String,
    /// The interface's current name; empty while there is none, or where the router does not report it.
    pub(crate) interface: String,
}

impl Port {
    /// The name, followed by an asterisk if the interface is down or gone, as on BSD.
    pub(crate) fn marked_name(&self) -> String {
        let is_down = ["down", "absent"].contains(&self.state.as_str());
        format!("{}{}", self.name, if is_down { "*" } else { "" })
    }
}

/// The ports of a running router.
pub(crate) fn ports(client: &mut Client) -> anyhow::Result<Vec<Port>> {
    parse(&client.read("ports")?).context("the router's list of ports makes no sense")
}

/// Reads a list of ports by the names of its columns. There may be more columns than are known here.
pub(crate) fn parse(text: &str) -> Option<Vec<Port>> {
    let mut lines = text.lines();
    let columns: Vec<&str> = lines.next()?.split('\t').collect();
    let port = |line: &str| {
        let values: Vec<&str> = line.split('\t').collect();
        let value = |name: &str| values.get(columns.iter().position(|column| *column == name)?).copied();
        let number = |name: &str| value(name)?.parse().ok();
        let traffic = |way: &str| {
            Some(TrafficCounts {
                packets: number(&format!("{way}_packets"))?,
                bytes: number(&format!("{way}_bytes"))?,
                errors: number(&format!("{way}_errors"))?,
            })
        };
        Some(Port {
            name: value("port")?.to_string(),
            mtu: value("mtu")?.to_string(),
            address: value("address")?.to_string(),
            received: traffic("in")?,
            sent: traffic("out")?,
            delays: value("in_delays").and_then(counts).map_or(Delays::default(), |counts| Delays {
                counts,
                sum: number("in_delay_us").unwrap_or(0),
            }),
            state: value("state").unwrap_or_default().to_string(),
            interface: value("interface").filter(|name| *name != "-").unwrap_or_default().to_string(),
        })
    };
    lines.map(port).collect()
}

/// Numbers with commas between, as many as there are bounds and one more.
fn counts<const N: usize>(text: &str) -> Option<[u64; N]> {
    let counts: Option<Vec<u64>> = text.split(',').map(|count| count.parse().ok()).collect();
    counts?.try_into().ok()
}

fn find<'a>(ports: &'a [Port], name: &str) -> anyhow::Result<&'a Port> {
    ports.iter().find(|port| port.name == name).ok_or_else(|| {
        let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
        match names.is_empty() {
            true => anyhow!("{name}: no such port; the router has none"),
            false => anyhow!("{name}: no such port; there are {}", names.join(", ")),
        }
    })
}

/// Received and sent traffic of a port, or the sum of all ports.
type Both = (TrafficCounts, TrafficCounts);

/// One port, row by row.
struct Watch {
    name: String,
    style: Style,
    on_terminal: bool,
    rows: u64,
    /// What the row before showed the sums of: the port, all ports.
    before: (Both, Both),
}

impl Watch {
    fn new(name: String, style: Style, on_terminal: bool) -> Watch {
        Watch { name, style, on_terminal, rows: 0, before: Default::default() }
    }

    /// The next row, with the header before it where that is due.
    fn row(&mut self, ports: &[Port]) -> anyhow::Result<String> {
        let port = find(ports, &self.name)?;
        let add = |sum: Both, port: &Port| (sum.0 + port.received, sum.1 + port.sent);
        let now = ((port.received, port.sent), ports.iter().fold(Both::default(), add));
        let before = std::mem::replace(&mut self.before, now);
        let (own, total) = (grown(now.0, before.0), grown(now.1, before.1));
        let is_due = self.rows == 0 || self.on_terminal && self.rows.is_multiple_of(ROWS);
        self.rows += 1;
        let header = if is_due { self.style.header(&self.name) } else { String::new() };
        Ok(format!("{header}{}  {}\n", self.style.half(own), self.style.half(total)))
    }
}

/// The increase since `before`; all of `now`, where a port was closed or opened again in between.
fn grown(now: Both, before: Both) -> Both {
    let grown = |now: u64, before: u64| now.checked_sub(before).unwrap_or(now);
    let of = |now: TrafficCounts, before: TrafficCounts| TrafficCounts {
        packets: grown(now.packets, before.packets),
        bytes: grown(now.bytes, before.bytes),
        errors: grown(now.errors, before.errors),
    };
    (of(now.0, before.0), of(now.1, before.1))
}

/// Which counters are shown, and in which form.
#[derive(Clone, Copy)]
struct Style {
    bytes: bool,
    human: bool,
}

impl Style {
    /// Both header lines of a port that is watched.
    fn header(self, name: &str) -> String {
        let (name, total) = (self.banner(name), self.banner("total"));
        let columns = match self.bytes {
            true => format!("{:>10} {:>8} {:>10} {:>5}", "bytes", "", "bytes", ""),
            false => format!("{:>8} {:>5} {:>8} {:>5} {:>5}", "packets", "errs", "packets", "errs", "colls"),
        };
        format!("{name}  {total}\n{columns}  {columns}\n")
    }

    /// `NAME in … NAME out`, as wide as a row. Names that are longer than BSD's take of
    /// the blanks behind them.
    fn banner(self, name: &str) -> String {
        let (wide, width, end) = if self.bytes { (7, 20, 16) } else { (5, 14, 21) };
        // In columns: the name to the right of `wide`, then ` in `, blanks up to where
        // the second name begins.
        let within = format!("{:<width$}", format!("{name:>wide$} in "));
        let out = format!("{name:>0$} out ", if self.bytes { 6 } else { 5 });
        format!("{within}{out:<end$}")
    }

    /// What one port, or all, received and sent.
    fn half(self, (received, sent): Both) -> String {
        let packets =
            |n| if self.human { scaled(n, 1000, ["", "K", "M", "G", "T", "P", "E"]) } else { n.to_string() };
        match self.bytes {
            true => {
                format!("{:>10} {:>8} {:>10} {:>5}", self.size(received.bytes), "", self.size(sent.bytes), "")
            }
            false => format!(
                "{:>8} {:>5} {:>8} {:>5} {:>5}",
                packets(received.packets),
                received.errors,
                packets(sent.packets),
                sent.errors,
                0
            ),
        }
    }

    fn size(self, bytes: u64) -> String {
        if self.human { scaled(bytes, 1024, ["B", "K", "M", "G", "T", "P", "E"]) } else { bytes.to_string() }
    }

    /// All ports, one a line.
    fn list<'a>(self, ports: impl Iterator<Item = &'a Port>) -> String {
        let line = |name: &str, mtu: &str, network: &str, address: &str, counts: &str| {
            format!("{name:<7} {mtu:<5} {network:<11} {address:<17} {counts}\n")
        };
        let titles = match self.bytes {
            true => format!("{:>10} {:>10}", "Ibytes", "Obytes"),
            false => format!("{:>8} {:>5} {:>8} {:>5} {:>5}", "Ipkts", "Ifail", "Opkts", "Ofail", "Colls"),
        };
        let mut text = line("Name", "Mtu", "Network", "Address", &titles);
        for port in ports {
            let counts = match self.bytes {
                true => format!("{:>10} {:>10}", self.size(port.received.bytes), self.size(port.sent.bytes)),
                false => self.half((port.received, port.sent)),
            };
            let address = if port.address == "-" { "" } else { &port.address };
            text += &line(&port.marked_name(), &port.mtu, "<Link>", address, &counts);
        }
        text
    }
}

/// A number with at most three digits that count, and its unit.
fn scaled(number: u64, base: u64, units: [&str; 7]) -> String {
    let mut scale = 1;
    for unit in units {
        let whole = number / scale;
        if whole < base {
            let tenths = (u128::from(number % scale) * 10 + u128::from(scale) / 2) / u128::from(scale);
            let (whole, tenths) = if tenths == 10 { (whole + 1, 0) } else { (whole, tenths) };
            return match scale == 1 || whole >= 100 {
                true => format!("{}{unit}", whole + u64::from(tenths >= 5)),
                false => format!("{whole}.{tenths}{unit}"),
            };
        }
        // The last unit holds more than there is room for.
        scale = scale.saturating_mul(base);
    }
    number.to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "\
port\tmtu\taddress\tmonitor\tin_packets\tin_bytes\tin_errors\tout_packets\tout_bytes\tout_errors
em0\t1500\t02:00:00:00:00:01\toff\t17013\t1020780\t3\t17010\t1020600\t1
enp0s31f6\t9000\t02:00:00:00:00:02\tl2\t4108\t4206592\t0\t4107\t600\t0
";

    fn plain() -> Style {
        Style { bytes: false, human: false }
    }
    fn later() -> Vec<Port> {
        let mut ports = parse(LIST).unwrap();
        ports[0].received = TrafficCounts { packets: 17113, bytes: 1026780, errors: 5 };
        ports[1].sent.packets += 7;
        ports
    }

    #[test]
    fn a_watched_port_is_laid_out_as_on_bsd() {
        let mut watch = Watch::new("em0".to_string(), plain(), false);
        let first = watch.row(&parse(LIST).unwrap()).unwrap();
        let expected = concat!(
            "  em0 in        em0 out              total in      total out            \n",
            " packets  errs  packets  errs colls   packets  errs  packets  errs colls\n",
            "   17013     3    17010     1     0     21121     3    21117     1     0\n",
        );
        assert_eq!(first, expected);
        let second = watch.row(&later()).unwrap();
        assert_eq!(second, "     100     2        0     0     0       100     2        7     0     0\n");
    }

    #[test]
    fn delays_are_read_where_the_router_tells_them() {
        assert_eq!(parse(LIST).unwrap()[0].delays, Delays::default());
        let list = "port\tmtu\taddress\tin_packets\tin_bytes\tin_errors\tout_packets\tout_bytes\tout_errors\t\
                    in_delays\tin_delay_us\nem0\t-\t-\t1\t60\t0\t0\t0\t0\t";
        let told = format!("{list}0,1,2,0,0,0,0,0,0,0,0,0,0,3\t400\n");
        let delays = parse(&told).unwrap()[0].delays;
        assert_eq!((delays.total(), delays.counts[13], delays.sum), (6, 3, 400));
        for wrong in ["", "1,2", "x,1,2,0,0,0,0,0,0,0,0,0,0,3"] {
            assert_eq!(parse(&format!("{list}{wrong}\t400\n")).unwrap()[0].delays, Delays::default());
        }
    }

    #[test]
    fn bytes_and_units_keep_the_columns() {
        let bytes = Style { bytes: true, ..plain() };
        let row = Watch::new("em0".to_string(), bytes, false).row(&parse(LIST).unwrap()).unwrap();
        let expected = concat!(
            "    em0 in             em0 out          total in           total out      \n",
            "     bytes               bytes             bytes               bytes      \n",
            "   1020780             1020600           5227372             1021200      \n",
        );
        assert_eq!(row, expected);
        let human = Style { bytes: true, human: true };
        let row = Watch::new("em0".to_string(), human, false).row(&parse(LIST).unwrap()).unwrap();
        let found = row.lines().last();
        assert_eq!(found, Some("      997K                997K              5.0M                997K      "));
        let human = Style { human: true, ..plain() };
        let row = Watch::new("em0".to_string(), human, false).row(&parse(LIST).unwrap()).unwrap();
        assert!(
            row.ends_with("   17.0K     3    17.0K     1     0     21.1K     3    21.1K     1     0\n"),
            "{row}"
        );
    }

    #[test]
    fn long_names_take_of_the_blanks_and_shift_nothing() {
        for style in [plain(), Style { bytes: true, ..plain() }] {
            let long = style.header("enp0s31f6");
            assert_eq!(long.lines().next().unwrap().len(), style.header("em0").lines().next().unwrap().len());
            assert!(long.starts_with("enp0s31f6 in "), "{long}");
        }
    }

    #[test]
    fn the_header_is_repeated_after_21_rows_on_a_terminal_only() {
        let ports = parse(LIST).unwrap();
        for (on_terminal, headers) in [(true, 3), (false, 1)] {
            let mut watch = Watch::new("em0".to_string(), plain(), on_terminal);
            let rows: String = (0..43).map(|_| watch.row(&ports).unwrap()).collect();
            assert_eq!(rows.matches("colls   packets").count(), headers);
            assert_eq!(rows.lines().count(), 43 + 2 * headers);
            if on_terminal {
                assert!(rows.lines().nth(23).unwrap().contains("em0 in"), "{rows}");
            }
        }
    }

    #[test]
    fn ports_are_listed_as_on_bsd() {
        let ports = parse(LIST).unwrap();
        let expected = "\
Name    Mtu   Network     Address              Ipkts Ifail    Opkts Ofail Colls
em0     1500  <Link>      02:00:00:00:00:01    17013     3    17010     1     0
enp0s31f6 9000  <Link>      02:00:00:00:00:02     4108     0     4107     0     0
";
        assert_eq!(plain().list(ports.iter()), expected);
        let bytes = Style { bytes: true, human: true }.list(ports[..1].iter());
        let found = bytes.lines().last();
        assert_eq!(found, Some("em0     1500  <Link>      02:00:00:00:00:01       997K       997K"));
    }

    #[test]
    fn ports_that_are_down_or_gone_are_marked() {
        let told = LIST.replace("out_errors\n", "out_errors\tstate\tinterface\n");
        let told = told.replace("17010\t1020600\t1\n", "17010\t1020600\t1\tabsent\t-\n");
        let ports = parse(&told.replace("600\t0\n", "600\t0\tup\twan0\n")).unwrap();
        assert_eq!([&ports[0].interface, &ports[1].interface], ["", "wan0"]);
        let list = plain().list(ports.iter());
        let names: Vec<_> = list.lines().skip(1).map(|line| line.split(' ').next().unwrap()).collect();
        assert_eq!(names, ["em0*", "enp0s31f6"]);
    }

    #[test]
    fn rows_add_up_to_the_totals() {
        let mut watch = Watch::new("em0".to_string(), plain(), false);
        let rows = [watch.row(&parse(LIST).unwrap()).unwrap(), watch.row(&later()).unwrap()];
        let column = |row: &String, n: usize| -> u64 {
            row.lines().last().unwrap().split_whitespace().nth(n).unwrap().parse().unwrap()
        };
        assert_eq!(rows.iter().map(|row| column(row, 0)).sum::<u64>(), later()[0].received.packets);
        assert_eq!(rows.iter().map(|row| column(row, 7)).sum::<u64>(), 17010 + 4107 + 7);
    }

    #[test]
    fn counters_that_began_anew_are_shown_as_they_are() {
        let mut watch = Watch::new("em0".to_string(), plain(), false);
        watch.row(&later()).unwrap();
        let anew = vec![Port {
            name: "em0".into(),
            received: TrafficCounts { packets: 5, bytes: 300, errors: 0 },
            ..Port::default()
        }];
        assert_eq!(watch.row(&anew).unwrap().split_whitespace().next(), Some("5"));
    }

    #[test]
    fn a_port_that_is_not_there_is_answered_with_those_that_are() {
        let ports = parse(LIST).unwrap();
        let error = |ports: &[Port]| find(ports, "em1").unwrap_err().to_string();
        assert_eq!(error(&ports), "em1: no such port; there are em0, enp0s31f6");
        assert_eq!(error(&[]), "em1: no such port; the router has none");
    }

    #[test]
    fn lists_that_make_no_sense_are_refused() {
        for wrong in
            ["", "port\nem0\n", "port\tmtu\n\n", &LIST.replace("17013", "many"), &LIST.replace("\t1\n", "\n")]
        {
            assert_eq!(parse(wrong), None, "{wrong:?}");
        }
        assert_eq!(parse(LIST.lines().next().unwrap()), Some(vec![]));
    }

    #[test]
    fn numbers_have_three_digits_that_count() {
        let size = |n| Style { bytes: true, human: true }.size(n);
        let cases = [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.0K"),
            (1536, "1.5K"),
            (10_240, "10.0K"),
            (123_456, "121K"),
            (u64::MAX, "16.0E"),
        ];
        for (number, text) in cases {
            assert_eq!(size(number), text);
        }
    }
}
