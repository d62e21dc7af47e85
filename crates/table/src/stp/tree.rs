//! A bridge for a [`Switch`]: told by the words of ifconfig(8), with the switch's ports held back as it wants it.

use super::spanning::flags;
use super::{Action, Bridge, Link, PortSettings, PortView, Settings, StpError, Version};
use crate::switch::command::{Command, PortFlag, SpanningTree, StpProtocol};
use crate::switch::{PortState, SpanningPort, Switch, flag_bit};
use artery_wire::{Bpdu, EtherAddr, Ethernet};
use std::time::Duration;

/// Frames that are to leave, each by the port at a place of the switch.
pub type Outgoing = Vec<(u16, [u8; Bpdu::FRAME_LEN])>;

/// A port of the switch, in the tree or not.
struct Place {
    address: EtherAddr,
    settings: PortSettings,
    link: Option<Link>,
    takes_part: bool,
}

/// The spanning tree of a switch. Ports are known by their places in the switch, and take part when they are told so.
pub struct Tree {
    bridge: Bridge,
    places: Vec<Place>,
    actions: Vec<Action>,
}

impl Tree {
    /// Of a switch with so many ports, which send from these addresses; the lowest one is the bridge's.
    pub fn new(addresses: &[EtherAddr]) -> Result<Tree, StpError> {
        let most = usize::from(Bridge::MOST_PORTS);
        if addresses.len() > most {
            return Err(StpError::PortNumber(addresses.len().try_into().unwrap_or(u16::MAX)));
        }
        let own = addresses.iter().min().copied().unwrap_or_default();
        let place = |address: &EtherAddr| Place {
            address: *address,
            settings: PortSettings::default(),
            link: None,
            takes_part: false,
        };
        Ok(Tree {
            bridge: Bridge::new(own, Settings::default())?,
            places: addresses.iter().map(place).collect(),
            actions: Vec::new(),
        })
    }

    /// The bridge as it is now.
    pub fn bridge(&self) -> &Bridge {
        &self.bridge
    }

    /// A port that takes part, as it is now.
    pub fn port(&self, place: u16) -> Option<PortView> {
        self.bridge.port(number(place)).ok()
    }

    /// Whether any port takes part.
    pub fn is_spoken(&self) -> bool {
        self.places.iter().any(|place| place.takes_part)
    }

    /// Whether a frame is for [`receive`](Tree::receive), and no part of what is switched.
    pub fn hears(&self, place: u16, frame: &[u8]) -> bool {
        let is_ours = || Ethernet::new(frame).is_ok_and(|ethernet| ethernet.dst() == Bpdu::GROUP);
        self.places.get(usize::from(place)).is_some_and(|place| place.takes_part) && is_ours()
    }

    /// Does what a command says of the tree, or of the port at this place; says whether it was about either.
    pub fn tell(&mut self, command: &Command, place: Option<u16>, now: Duration) -> Result<bool, StpError> {
        match (command, place) {
            (Command::SpanningTree(words), _) => self.tell_tree(words, place, now)?,
            (Command::Flag { flag: PortFlag::Stp, on, .. }, Some(place)) => {
                self.take_part(place, *on, now)?
            }
            (Command::Flag { flag, on, .. }, Some(place)) => {
                let mut settings = self.at(place)?.settings;
                if !set_flag(&mut settings, *flag, *on) {
                    return Ok(false);
                }
                self.set_port(place, settings, now)?;
            }
            (Command::Del(_), Some(place)) => {
                self.take_part(place, false, now)?;
                self.at(place)?.settings = PortSettings::default();
                // The switch has to hear of it, too.
                return Ok(false);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn tell_tree(&mut self, words: &SpanningTree, place: Option<u16>, now: Duration) -> Result<(), StpError> {
        let mut settings = *self.bridge.settings();
        match words {
            SpanningTree::Protocol(StpProtocol::Rstp) => settings.version = Version::Rstp,
            SpanningTree::Protocol(StpProtocol::Stp) => settings.version = Version::Stp,
            SpanningTree::Priority(priority) => settings.priority = *priority,
            SpanningTree::HelloTime(seconds) => settings.hello_time = *seconds,
            SpanningTree::ForwardDelay(seconds) => settings.forward_delay = *seconds,
            SpanningTree::MaxAge(seconds) => settings.max_age = *seconds,
            SpanningTree::HoldCount(count) => settings.hold_count = *count,
            SpanningTree::PortPriority { priority, .. } => {
                return self.change_port(place, |port| port.priority = *priority, now);
            }
            SpanningTree::PortCost { cost, .. } => {
                return self.change_port(place, |port| port.cost = *cost, now);
            }
        }
        self.places.iter().try_for_each(|place| place.settings.check(settings.version))?;
        self.bridge.set(settings, now, &mut self.actions)
    }

    fn change_port(
        &mut self,
        place: Option<u16>,
        change: impl FnOnce(&mut PortSettings),
        now: Duration,
    ) -> Result<(), StpError> {
        let place = place.ok_or(StpError::NoSuchPort(0))?;
        let mut settings = self.at(place)?.settings;
        change(&mut settings);
        self.set_port(place, settings, now)
    }

    fn set_port(&mut self, place: u16, settings: PortSettings, now: Duration) -> Result<(), StpError> {
        settings.check(self.bridge.settings().version)?;
        let port = self.at(place)?;
        port.settings = settings;
        if port.takes_part {
            self.bridge.set_port(number(place), settings, now, &mut self.actions)?;
        }
        Ok(())
    }

    fn take_part(&mut self, at: u16, on: bool, now: Duration) -> Result<(), StpError> {
        let place = self.at(at)?;
        if std::mem::replace(&mut place.takes_part, on) == on {
            return Ok(());
        }
        let (number, link) = (number(at), place.link);
        let Place { address, settings, .. } = *place;
        if !on {
            self.bridge.remove_port(number, now, &mut self.actions)?;
            self.actions.push(Action::State { port: number, state: PortState::Forwarding });
            return Ok(());
        }
        self.bridge.add_port(number, address, settings)?;
        self.actions.push(Action::State { port: number, state: PortState::Discarding });
        match link {
            Some(link) => self.bridge.link_up(number, link, now, &mut self.actions),
            None => Ok(()),
        }
    }

    /// Says that a port's link is up, or down.
    pub fn set_link(&mut self, place: u16, link: Option<Link>, now: Duration) -> Result<(), StpError> {
        let port = self.at(place)?;
        let is_news = std::mem::replace(&mut port.link, link) != link;
        match (port.takes_part && is_news, link) {
            (false, _) => Ok(()),
            (true, Some(link)) => self.bridge.link_up(number(place), link, now, &mut self.actions),
            (true, None) => self.bridge.link_down(number(place), now, &mut self.actions),
        }
    }

    /// Takes a frame that it [`hears`](Tree::hears).
    pub fn receive(&mut self, place: u16, frame: &[u8], now: Duration) -> Result<(), StpError> {
        self.bridge.receive(number(place), frame, now, &mut self.actions)
    }

    /// Does what time alone brings.
    pub fn tick(&mut self, now: Duration) {
        self.bridge.tick(now, &mut self.actions);
    }

    /// When [`tick`](Tree::tick) has something to do next.
    pub fn next_deadline(&self, now: Duration) -> Option<Duration> {
        self.bridge.next_deadline(now)
    }

    /// Has the switch do what came out of all that since the last call, and leaves what is to be sent.
    pub fn carry_out(&mut self, switch: &Switch, outgoing: &mut Outgoing) {
        for action in self.actions.drain(..) {
            match action {
                Action::Send { port, frame } => outgoing.push((place(port), frame)),
                Action::State { port, state } => switch.set_state(place(port), state),
                Action::Flush { port } => switch.flush_port(place(port)),
            }
        }
    }

    /// Number of its places.
    pub(super) fn len(&self) -> u16 {
        // No more than a bridge may have ports.
        self.places.len() as u16
    }

    /// The addresses that its ports send from.
    pub(super) fn addresses(&self) -> impl Iterator<Item = EtherAddr> {
        self.places.iter().map(|place| place.address)
    }

    /// What was told of a port, and whether it takes part.
    pub(super) fn told_of(&self, place: u16) -> Option<(PortSettings, bool)> {
        self.places.get(usize::from(place)).map(|place| (place.settings, place.takes_part))
    }

    /// What a switch is to show of a port that takes part.
    pub(super) fn shown_port(&self, place: u16) -> Option<SpanningPort> {
        let (settings, _) = self.told_of(place)?;
        let view = self.port(place)?;
        let set = flags(&settings).into_iter().filter(|(_, is_set)| *is_set);
        Some(SpanningPort {
            flags: set.fold(flag_bit(PortFlag::Stp), |bits, (flag, _)| bits | flag_bit(flag)),
            priority: view.priority,
            cost: view.cost,
            state: format!("{} role {}", view.state_name(), view.role),
        })
    }

    /// Says the states of all ports anew, to a switch that has not heard of them.
    pub(super) fn tell_states(&mut self) {
        let states = (0..self.len()).filter_map(|place| Some((number(place), self.port(place)?.state)));
        let states: Vec<_> = states.map(|(port, state)| Action::State { port, state }).collect();
        // What is still to be done is newer.
        self.actions.splice(0..0, states);
    }

    fn at(&mut self, place: u16) -> Result<&mut Place, StpError> {
        self.places.get_mut(usize::from(place)).ok_or(StpError::NoSuchPort(place))
    }
}

/// Ports of bridges are numbered from one.
fn number(place: u16) -> u16 {
    place.saturating_add(1)
}

fn place(number: u16) -> u16 {
    number - 1
}

/// Says whether the flag is one of the tree's.
fn set_flag(settings: &mut PortSettings, flag: PortFlag, on: bool) -> bool {
    match flag {
        PortFlag::Edge => settings.edge = on,
        PortFlag::AutoEdge => settings.auto_edge = on,
        PortFlag::Ptp => settings.point_to_point = Some(on),
        PortFlag::AutoPtp if on => settings.point_to_point = None,
        PortFlag::AutoPtp => settings.point_to_point = Some(settings.point_to_point.unwrap_or(false)),
        PortFlag::BpduGuard => settings.bpdu_guard = on,
        PortFlag::BpduFilter => settings.bpdu_filter = on,
        PortFlag::RootGuard => settings.root_guard = on,
        PortFlag::Stp
        | PortFlag::Learn
        | PortFlag::Discover
        | PortFlag::Locked
        | PortFlag::BlockNonIp
        | PortFlag::McastRouter
        | PortFlag::FastLeave
        | PortFlag::Hairpin
        | PortFlag::NoBroadcast
        | PortFlag::NoMulticast => return false,
    }
    true
}
