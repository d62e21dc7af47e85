//! A single test: its parts, and their checks.
use super::names::{self, protocol_name};
use crate::pattern::expr::{Base, Expr, Relation, Test};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TestKind {
    Host,
    Net,
    Protocol,
    Port,
    TcpOption,
    Ether,
    Fragment,
    Unfragmented,
    EcnCapable,
    CongestionExperienced,
    Field(Field),
}

impl TestKind {
    pub(crate) const TOS: TestKind = TestKind::Field(Field { protocol: None, offset: 8, bits: 8 });
    pub(crate) const ICMP_TYPE: TestKind =
        TestKind::Field(Field { protocol: Some(names::ICMP), offset: 0, bits: 8 });
}

/// Bits of a header: IP's, or that of a transport protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    pub(crate) protocol: Option<u32>,
    /// Offset of the first bit in the header.
    pub(crate) offset: u16,
    pub(crate) bits: u8,
}

/// What was given as the value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Datum {
    /// A number, whatever it means.
    Number,
    /// A value of this kind.
    Of(TestKind),
}

/// Which of two addresses or ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Source,
    Destination,
    Both,
    Either,
}

/// The header that a test names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Header {
    Ip,
    Ether,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum ComparisonOrder {
    #[default]
    Equal,
    Greater,
    Less,
}

/// The bits that count, as given.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Mask {
    Number(u32),
    Address(u32),
    Ether([u8; 6]),
}

/// A test in the making.
#[derive(Clone, Debug, Default)]
pub(super) struct Primitive {
    pub(crate) kind: Option<TestKind>,
    pub(crate) datum: Option<Datum>,
    pub(crate) direction: Option<Direction>,
    pub(crate) protocol: Option<u32>,
    pub(crate) order: ComparisonOrder,
    pub(crate) negated: bool,
    pub(crate) value: u32,
    pub(crate) mask: u32,
    pub(crate) ether: [u8; 6],
    ether_mask: [u8; 6],
}

impl Primitive {
    pub(crate) fn set_kind(&mut self, kind: TestKind) -> Result<(), String> {
        if self.kind.is_some() {
            return Err("type specified twice".into());
        }
        self.kind = Some(kind);
        match kind {
            TestKind::Field(Field { protocol: Some(protocol), .. }) => self.set_protocol(protocol),
            _ => Ok(()),
        }
    }
    pub(crate) fn set_direction(&mut self, direction: Direction) -> Result<(), String> {
        if self.direction.replace(direction).is_some() {
            return Err("'src' or 'dst' specified twice".into());
        }
        Ok(())
    }
    pub(crate) fn set_protocol(&mut self, protocol: u32) -> Result<(), String> {
        if self.protocol.replace(protocol).is_some_and(|old| old != protocol) {
            return Err("transport protocol specified twice".into());
        }
        Ok(())
    }
    /// Whether the value is an Ethernet address.
    pub(crate) fn is_about_ether(&self) -> bool {
        self.datum == Some(Datum::Of(TestKind::Ether))
    }

    /// Fills in what was left out, from `previous` or by default, and checks that it all fits together.
    pub(crate) fn resolve_test(
        &mut self,
        previous: &Primitive,
        header: Option<Header>,
        mask: Option<Mask>,
    ) -> Result<(), String> {
        let mut kind = self.resolve_kind(previous)?;
        let header = header.unwrap_or(if self.is_about_ether() { Header::Ether } else { Header::Ip });
        if header == Header::Ether && kind == TestKind::Host {
            kind = TestKind::Ether;
        }
        self.kind = Some(kind);
        if header == Header::Ether && !matches!(kind, TestKind::Ether | TestKind::Host | TestKind::Net) {
            return self.test_error("ip only");
        }
        match kind {
            TestKind::Host | TestKind::Net => self.resolve_host(kind, header, mask),
            TestKind::Ether => self.resolve_ether(header, mask),
            TestKind::Protocol => self.resolve_protocol(mask),
            TestKind::Port => self.resolve_port(mask),
            TestKind::TcpOption => self.resolve_tcp_option(mask),
            TestKind::EcnCapable => self.resolve_ecn_capable(mask),
            TestKind::Fragment | TestKind::Unfragmented | TestKind::CongestionExperienced => {
                self.resolve_flag(kind, mask)
            }
            TestKind::Field(field) => self.resolve_field(field, mask),
        }
    }

    fn resolve_kind(&mut self, previous: &Primitive) -> Result<TestKind, String> {
        if let Some(kind) = self.kind {
            return Ok(kind);
        }
        if self.datum == Some(Datum::Number) {
            let kind = previous
                .kind
                .filter(|k| matches!(k, TestKind::Field(_) | TestKind::Protocol | TestKind::Port));
            self.datum = Some(Datum::Of(kind.ok_or("specify header field or 'port'")?));
        }
        match self.datum {
            Some(Datum::Of(kind)) => {
                if matches!(
                    kind,
                    TestKind::Host | TestKind::Net | TestKind::TcpOption | TestKind::Ether | TestKind::Port
                ) {
                    self.direction = self.direction.or(previous.direction);
                }
                if kind == TestKind::Port {
                    self.protocol = self.protocol.or(previous.protocol);
                }
                if let TestKind::Field(field) = kind {
                    self.protocol = self.protocol.or(field.protocol);
                }
                Ok(kind)
            }
            _ if self.protocol.is_some() => Ok(TestKind::Protocol),
            _ => Err("partial directive".into()),
        }
    }

    fn resolve_host(&mut self, kind: TestKind, header: Header, mask: Option<Mask>) -> Result<(), String> {
        if header != Header::Ip || self.datum != Some(Datum::Of(kind)) {
            return self.test_error("address missing");
        }
        if self.order != ComparisonOrder::Equal {
            return self.test_error("operator not supported");
        }
        match mask {
            Some(Mask::Number(mask) | Mask::Address(mask)) => self.mask = mask,
            Some(Mask::Ether(_)) => return self.test_error("bad mask"),
            None if kind == TestKind::Host => self.mask = u32::MAX,
            None => {}
        }
        self.kind = Some(TestKind::Host);
        Ok(())
    }

    fn resolve_ether(&mut self, header: Header, mask: Option<Mask>) -> Result<(), String> {
        if header != Header::Ether || !self.is_about_ether() {
            return self.test_error("address missing");
        }
        if self.order != ComparisonOrder::Equal {
            return self.test_error("operator not supported");
        }
        self.ether_mask = match mask {
            None => [0xff; 6],
            Some(Mask::Ether(mask)) => mask,
            Some(_) => return self.test_error("bad mask"),
        };
        Ok(())
    }

    fn resolve_protocol(&mut self, mask: Option<Mask>) -> Result<(), String> {
        match self.datum {
            Some(Datum::Number | Datum::Of(TestKind::Protocol)) => {
                if self.protocol.is_some_and(|protocol| protocol != self.value) {
                    return self.test_error("specified twice");
                }
            }
            Some(_) => return self.test_error("value missing"),
            None => match self.protocol {
                Some(protocol) => self.value = protocol,
                None => return self.test_error("value missing"),
            },
        }
        self.protocol = None;
        if self.is_named_group() {
            if self.order != ComparisonOrder::Equal || mask.is_some() {
                return Err(format!("'{}': operator or mask not supported", protocol_name(Some(self.value))));
            }
            self.mask = 0xff;
        } else {
            self.resolve_number(0xff, mask)?;
        }
        if self.order == ComparisonOrder::Equal && self.mask == 0xff && !self.negated {
            self.protocol = Some(self.value);
        }
        Ok(())
    }

    /// Whether the protocol is a name for several. Their numbers are beyond those of protocols.
    fn is_named_group(&self) -> bool {
        self.datum != Some(Datum::Number) && (names::TCP_OR_UDP..=names::PAYLOAD).contains(&self.value)
    }

    fn resolve_port(&mut self, mask: Option<Mask>) -> Result<(), String> {
        if !matches!(self.datum, Some(Datum::Number | Datum::Of(TestKind::Port))) {
            return self.test_error("value missing");
        }
        let protocol = *self.protocol.get_or_insert(names::TCP_OR_UDP);
        if ![names::TCP, names::UDP, names::TCP_OR_UDP, names::DCCP].contains(&protocol) {
            return Err(format!("'port': bad protocol {protocol}"));
        }
        self.resolve_number(0xffff, mask)
    }

    fn resolve_tcp_option(&mut self, mask: Option<Mask>) -> Result<(), String> {
        if !matches!(self.datum, Some(Datum::Number | Datum::Of(TestKind::TcpOption))) {
            return self.test_error("value missing");
        }
        let protocol = *self.protocol.get_or_insert(names::TCP);
        if protocol != names::TCP {
            return Err(format!("'tcp opt': bad protocol {protocol}"));
        }
        if self.order != ComparisonOrder::Equal || self.negated || mask.is_some() {
            return self.test_error("operator or mask not supported");
        }
        if self.value > 255 {
            return Err(format!("'tcp opt': value {} out of range", self.value));
        }
        self.mask = self.value;
        Ok(())
    }

    fn resolve_ecn_capable(&mut self, mask: Option<Mask>) -> Result<(), String> {
        match self.datum {
            // Without a value: any but "not capable".
            None => (self.value, self.negated) = (0, true),
            Some(Datum::Number) => {}
            Some(_) => return self.test_error("value missing"),
        }
        self.resolve_number(3, mask)?;
        self.kind = Some(TestKind::TOS);
        Ok(())
    }

    fn resolve_flag(&mut self, kind: TestKind, mask: Option<Mask>) -> Result<(), String> {
        if self.datum.is_some() || mask.is_some() {
            return self.test_error("value not supported");
        }
        match kind {
            TestKind::CongestionExperienced => {
                (self.value, self.mask) = (3, 3);
                self.kind = Some(TestKind::TOS);
            }
            TestKind::Unfragmented => {
                self.negated = true;
                self.kind = Some(TestKind::Fragment);
            }
            _ => {}
        }
        Ok(())
    }

    fn resolve_field(&mut self, field: Field, mask: Option<Mask>) -> Result<(), String> {
        if self.datum != Some(Datum::Number) && self.datum != Some(Datum::Of(TestKind::Field(field))) {
            return self.test_error("value missing");
        }
        self.resolve_number(u32::MAX >> (32 - u32::from(field.bits)), mask)
    }

    /// Checks value and mask of a field whose bits are `full`, and reduces all relations to two.
    fn resolve_number(&mut self, full: u32, mask: Option<Mask>) -> Result<(), String> {
        let mask = match mask {
            None => full,
            Some(Mask::Number(mask)) => mask,
            Some(_) => return self.test_error("bad mask"),
        };
        if mask & full != mask {
            return self.test_error(&format!("mask out of range, bound 0x{full:X}"));
        }
        self.mask = mask;
        let always = match self.order {
            ComparisonOrder::Equal if self.value > full => {
                return self.test_error(&format!("out of range, bound {full}"));
            }
            ComparisonOrder::Equal => return Ok(()),
            ComparisonOrder::Less if self.value == 0 => Some(self.negated),
            ComparisonOrder::Less if self.value > mask => Some(!self.negated),
            ComparisonOrder::Greater if self.value >= mask => Some(self.negated),
            _ => None,
        };
        if let Some(always) = always {
            (self.order, self.value, self.mask, self.negated) = (ComparisonOrder::Equal, 0, 0, !always);
        } else if self.order == ComparisonOrder::Less {
            // "Less than n" is "not greater than n - 1".
            (self.order, self.value, self.negated) =
                (ComparisonOrder::Greater, self.value - 1, !self.negated);
        }
        Ok(())
    }

    fn test_error<T>(&self, what: &str) -> Result<T, String> {
        let kind = self.kind.map_or_else(|| "<none>".into(), |kind| kind.to_pattern_text(self.direction));
        Err(format!("'{kind}': {what}"))
    }
}

impl TestKind {
    /// As patterns spell it.
    pub(crate) fn to_pattern_text(self, direction: Option<Direction>) -> String {
        let direction = match direction {
            None => "",
            Some(Direction::Source) => "src ",
            Some(Direction::Destination) => "dst ",
            Some(Direction::Either) => "src or dst ",
            Some(Direction::Both) => "src and dst ",
        };
        let name = match self {
            TestKind::Host => "ip host",
            TestKind::Net => "ip net",
            TestKind::Protocol => "proto",
            TestKind::Port => "port",
            TestKind::TcpOption => "tcp opt",
            TestKind::Ether => "ether host",
            TestKind::Fragment => "ip frag",
            TestKind::Unfragmented => "ip unfrag",
            TestKind::EcnCapable => "ip ect",
            TestKind::CongestionExperienced => "ip ce",
            TestKind::Field(field) => return format!("{direction}{}", field.to_pattern_text()),
        };
        format!("{direction}{name}")
    }
}

impl Field {
    fn to_pattern_text(self) -> String {
        let name = match (self.protocol, self.offset, self.bits) {
            (None, 16, 16) => "ip len",
            (None, 32, 16) => "ip id",
            (None, 0, 4) => "ip vers",
            (None, 4, 4) => "ip hl",
            (None, 8, 8) => "ip tos",
            (None, 8, 6) => "ip dscp",
            (None, 64, 8) => "ip ttl",
            (Some(names::TCP), 112, 16) => "tcp win",
            (Some(names::ICMP), 0, 8) => "icmp type",
            (None, ..) => "ip[...]",
            (protocol, ..) => return format!("{}[...]", protocol_name(protocol)),
        };
        name.to_string()
    }
}

/// The offset of the word with the IP protocol, and the shift of the protocol in it.
const PROTOCOL: (u16, u32) = (8, 16);
/// The offset of the word with flags and fragment offset.
const FRAGMENT: u16 = 4;

/// The expressions of a completed test.
impl Primitive {
    pub(crate) fn to_expr(&self) -> Expr {
        let mut parts: Vec<Expr> = self.protocol.map(is_protocol).into_iter().collect();
        if matches!(
            self.kind,
            Some(TestKind::Port | TestKind::TcpOption | TestKind::Field(Field { protocol: Some(_), .. }))
        ) {
            // Later fragments have no transport header.
            parts.push(Test::equal(Base::Network, FRAGMENT, 0, 0x1fff).into());
        }
        parts.push(self.own_expr());
        Expr::And(parts)
    }

    fn own_expr(&self) -> Expr {
        let expr = match self.kind {
            Some(TestKind::Host) => self.combine_sides([
                self.compare_word(Base::Network, 12, 0),
                self.compare_word(Base::Network, 16, 0),
            ]),
            Some(TestKind::Port) => self.combine_sides([
                self.compare_word(Base::Transport, 0, 16),
                self.compare_word(Base::Transport, 0, 0),
            ]),
            Some(TestKind::Ether) => self.combine_sides(self.ether_sides()),
            Some(TestKind::Protocol) if self.value >= names::TCP_OR_UDP => is_protocol(self.value),
            Some(TestKind::Protocol) => self.compare_word(Base::Network, PROTOCOL.0, PROTOCOL.1),
            Some(TestKind::TcpOption) => self.compare_word(Base::Transport, 12, 16),
            Some(TestKind::Fragment) => {
                let whole = Expr::from(Test::equal(Base::Network, FRAGMENT, 0, 0x3fff));
                return if self.negated { whole } else { whole.refuted() };
            }
            Some(TestKind::Field(field)) => {
                let base = if field.protocol.is_some() { Base::Transport } else { Base::Network };
                let shift = 32 - (u32::from(field.offset) % 32 + u32::from(field.bits));
                self.compare_word(base, (field.offset / 8) & !3, shift)
            }
            _ => unreachable!("a settled test is of no other kind"),
        };
        if self.negated { expr.refuted() } else { expr }
    }

    fn compare_word(&self, base: Base, offset: u16, shift: u32) -> Expr {
        let relation =
            if self.order == ComparisonOrder::Greater { Relation::Greater } else { Relation::Equal };
        let value = if relation == Relation::Equal { self.value & self.mask } else { self.value };
        let test =
            Test { base, offset, mask: self.mask << shift, value: value << shift, relation, short: false };
        test.into()
    }

    fn combine_sides(&self, [source, destination]: [Expr; 2]) -> Expr {
        match self.direction {
            Some(Direction::Source) => source,
            Some(Direction::Destination) => destination,
            Some(Direction::Both) => Expr::And(vec![source, destination]),
            Some(Direction::Either) | None => Expr::Or(vec![source, destination]),
        }
    }

    /// Source and destination of a link header, each over two words.
    fn ether_sides(&self) -> [Expr; 2] {
        let bits = |from: [u8; 6]| from.iter().fold(0, |bits: u64, byte| (bits << 8) | u64::from(*byte));
        let (value, mask) = (bits(self.ether), bits(self.ether_mask));
        let word = |offset, right: u32, left: u32| {
            let cut = |bits: u64| (bits >> right << left) as u32;
            Expr::from(Test::equal(Base::Mac, offset, cut(value), cut(mask)))
        };
        let source = vec![word(4, 32, 0), word(8, 0, 0)];
        let destination = vec![word(0, 16, 0), word(4, 0, 16)];
        [Expr::And(source), Expr::And(destination)]
    }
}

fn is_protocol(protocol: u32) -> Expr {
    let is = |protocol: u32| {
        let (offset, shift) = PROTOCOL;
        Expr::from(Test::equal(Base::Network, offset, protocol << shift, 0xff << shift))
    };
    match protocol {
        names::TCP_OR_UDP => Expr::Or(vec![is(names::TCP), is(names::UDP)]),
        names::TRANSPORT.. => Expr::Const(true),
        number => is(number),
    }
}
