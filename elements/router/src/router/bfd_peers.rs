//! The sessions of a BFD element: their configuration, the session that a packet belongs to, and the states
//! that routes use. The copies of the element share them.
use super::route_text::{parse_ip, port_of};
use artery_engine::names::Names;
use artery_engine::{ArgValue as _, DropReason};
use artery_forward::shared::SharedRouter;
use artery_l3::PortId;
use artery_l3::bfd::{Session, SessionSettings};
use artery_l3::router::{PortView, Tables};
use artery_lpm::Prefix;
use artery_wire::{BfdControl, BfdState};
use std::net::IpAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The first of the source ports that sessions may have, and how many there are (RFC 5881 section 4).
const FIRST_SOURCE_PORT: u16 = 49_152;
const SOURCE_PORTS: u32 = 16_384;

/// The error about an invalid text.
type ParseError = String;

/// A neighbor and the session with it.
pub(super) struct Peer {
    pub(super) port: PortId,
    pub(super) address: IpAddr,
    /// The UDP source port of its packets, all its life.
    source_port: u16,
    pub(super) session: Session,
    /// The state, and whether the path is down, as last published to routes and events.
    published: (BfdState, bool),
}

/// A control packet to be sent.
pub(super) struct Outgoing {
    pub(super) port: PortId,
    pub(super) to: IpAddr,
    pub(super) source_port: u16,
    pub(super) control: BfdControl,
}

/// What the copies of an element share.
pub(super) struct Peers {
    list: Mutex<Vec<Peer>>,
    /// Whether a copy has restored the sessions of the replaced element.
    pub(super) is_successor: AtomicBool,
}

impl Peers {
    /// The sessions that texts describe, in the format that [`parse_session`] parses. `random` gives
    /// discriminators that can't be guessed.
    pub(super) fn new<'t>(
        texts: impl IntoIterator<Item = &'t String>,
        tables: &Tables,
        names: &Names,
        mut random: impl FnMut() -> u64,
    ) -> Result<Peers, (String, ParseError)> {
        let mut list: Vec<Peer> = Vec::new();
        for text in texts {
            let wrong = |why| (text.clone(), why);
            let (port, address, settings) = parse_session(text, tables, names).map_err(wrong)?;
            if list.iter().any(|peer| (peer.port, peer.address) == (port, address)) {
                return Err(wrong(format!(
                    "there is a session with {address} already; give each neighbor one"
                )));
            }
            list.push(Peer::new(port, address, settings, &list, &mut random));
        }
        Ok(Peers { list: Mutex::new(list), is_successor: AtomicBool::new(false) })
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, Vec<Peer>> {
        // Sessions are whole between any two of their statements that can panic.
        self.list.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Peer {
    fn new(
        port: PortId,
        address: IpAddr,
        settings: SessionSettings,
        others: &[Peer],
        random: &mut impl FnMut() -> u64,
    ) -> Peer {
        let is_free = |number: &u32| {
            let source_port = source_port(*number);
            let has =
                |peer: &Peer| peer.session.discriminator() == *number || peer.source_port == source_port;
            // With more sessions than source ports, some share one (RFC 5881 section 4).
            *number != 0 && (others.len() >= SOURCE_PORTS as usize || !others.iter().any(has))
        };
        let numbers = std::iter::repeat_with(|| random() as u32);
        let discriminator = numbers.into_iter().find(is_free).unwrap_or(1);
        Peer {
            port,
            address,
            source_port: source_port(discriminator),
            session: Session::new(discriminator, settings, random(), Duration::ZERO),
            published: (BfdState::Down, false),
        }
    }

    /// Restores the session of the peer that this one replaces.
    pub(super) fn restore_session(&mut self, old: Peer) {
        let settings = self.session.view().settings;
        (self.session, self.source_port) = (old.session, old.source_port);
        self.session.set_settings(settings);
        // The new tables don't have the state of the path yet.
        self.published = (self.session.state(), false);
    }

    /// Advances the session, and adds the packets to send.
    pub(super) fn poll(&mut self, now: Duration, outgoing: &mut Vec<Outgoing>) {
        while let Some(control) = self.session.poll_transmit(now) {
            let Peer { port, address, source_port, .. } = *self;
            outgoing.push(Outgoing { port, to: address, source_port, control });
        }
    }

    /// Publishes a changed state to routes, and as an event.
    pub(super) fn publish_state(&mut self, router: &SharedRouter, now: Duration) {
        let (state, is_path_down) = (self.session.state(), self.session.is_path_down());
        let was = std::mem::replace(&mut self.published, (state, is_path_down));
        if was == self.published {
            return;
        }
        let mut tables = router.lock_tables();
        if was.1 != is_path_down {
            tables.set_path_down(self.port, self.address, is_path_down);
        }
        let news = (was.0 != state).then_some((state, self.session.diagnostic()));
        router.record_bfd_event(now, &tables, (self.port, self.address), news);
    }
}

fn source_port(discriminator: u32) -> u16 {
    FIRST_SOURCE_PORT + (discriminator % SOURCE_PORTS) as u16
}

/// The session that a packet belongs to (RFC 5880 section 6.8.6, RFC 5881 section 3): by the discriminator
/// that the neighbor learned, and before that by port and address.
pub(super) fn find_peer<'p>(
    peers: &'p mut [Peer],
    port: PortId,
    from: IpAddr,
    control: &BfdControl,
) -> Result<&'p mut Peer, DropReason> {
    let number = control.your_discriminator;
    let is_it = |peer: &&mut Peer| match number {
        0 => peer.address == from,
        number => peer.session.discriminator() == number,
    };
    peers.iter_mut().filter(|peer| peer.port == port).find(is_it).ok_or(DropReason::NoBfdSession)
}

/// The address of a port that packets to a neighbor are sent from.
pub(super) fn local_address(port: &PortView, peer: IpAddr) -> Option<IpAddr> {
    match peer {
        IpAddr::V6(peer) if peer.is_unicast_link_local() => Some(IpAddr::V6(port.link_local.into())),
        IpAddr::V4(peer) => {
            let near = |own: &&(u32, u8)| Prefix::of(own.0, own.1).contains(peer.to_bits());
            let own = port.v4.iter().filter(near).max_by_key(|own| own.1).or_else(|| port.v4.first());
            own.map(|own| IpAddr::V4(own.0.into()))
        }
        IpAddr::V6(peer) => {
            let near = |own: &&(u128, u8)| Prefix::of(own.0, own.1).contains(peer.to_bits());
            let own = port.v6.iter().filter(near).max_by_key(|own| own.1).or_else(|| port.v6.first());
            own.map(|own| IpAddr::V6(own.0.into()))
        }
    }
}

/// `GATEWAY[%PORT] [INTERVAL TIME] [MULTIPLIER NUMBER]`.
fn parse_session(
    text: &str,
    tables: &Tables,
    names: &Names,
) -> Result<(PortId, IpAddr, SessionSettings), ParseError> {
    let mut words = text.split_whitespace();
    let (port, address) =
        parse_gateway(words.next().ok_or("a session begins with the address of a gateway")?, tables)?;
    let SessionSettings { mut interval, mut multiplier } = SessionSettings::default();
    while let Some(word) = words.next() {
        let value = words.next().ok_or_else(|| format!("{word} needs a value"))?;
        match word {
            "INTERVAL" => {
                interval = Duration::parse(value, names)
                    .map_err(|wants| format!("INTERVAL {value}: write {wants}"))?;
            }
            "MULTIPLIER" => {
                let wrong = |_| format!("MULTIPLIER {value}: write a number from 1 to 255");
                multiplier = value.parse().map_err(wrong)?;
            }
            _ => return Err(format!("'{word}' is neither INTERVAL nor MULTIPLIER")),
        }
    }
    let settings = SessionSettings::new(interval, multiplier).map_err(|error| error.to_string())?;
    Ok((port, address, settings))
}

/// Parses a gateway, written `GATEWAY[%PORT]`.
pub(super) fn parse_gateway(word: &str, tables: &Tables) -> Result<(PortId, IpAddr), ParseError> {
    let (address, port) = match word.split_once('%') {
        Some((address, port)) => (parse_ip(address)?, Some(port_of(tables, port)?)),
        None => (parse_ip(word)?, None),
    };
    let port = tables.port_of_gateway(address, port).map_err(|error| error.to_string())?;
    Ok((port, address))
}
