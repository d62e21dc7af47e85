//! A bridge for a [`Switch`]: configured in the words of ifconfig(8); it blocks and unblocks the switch's
//! ports.

use super::spanning::port_flags;
use super::{Action, Bridge, Link, PortSettings, PortView, Settings, StpError, Version};
use crate::command::{Command, PortFlag, SpanningTree, StpProtocol};
use crate::{PortState, SpanningPort, Switch, flag_bit};
use artery_wire::{Bpdu, EtherAddr, Ethernet};
use std::time::Duration;

/// Frames that are to leave, each by the port at a place of the switch.
pub type Outgoing = Vec<(u16, [u8; Bpdu::FRAME_LEN])>;

/// A port of the switch, in the tree or not.
struct TreePort {
    address: EtherAddr,
    settings: PortSettings,
    link: Option<Link>,
    takes_part: bool,
}

/// The spanning tree of a switch. Ports are known by their numbers in the switch, and take part
/// when commands say so.
pub struct Tree {
    bridge: Bridge,
    places: Vec<TreePort>,
    actions: Vec<Action>,
}

impl Tree {
    /// A tree for a switch with these ports' addresses, from which they send; the lowest one is the bridge's.
    pub fn new(addresses: &[EtherAddr]) -> Result<Tree, StpError> {
        let most = usize::from(Bridge::MOST_PORTS);
        if addresses.len() > most {
            return Err(StpError::PortNumber(addresses.len().try_into().unwrap_or(u16::MAX)));
        }
        let own = addresses.iter().min().copied().unwrap_or_default();
        let place = |address: &EtherAddr| TreePort {
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
        self.bridge.port(port_number(place)).ok()
    }

    /// Whether any port takes part.
    pub fn is_spoken(&self) -> bool {
        self.places.iter().any(|place| place.takes_part)
    }

    /// Whether a frame is for [`receive_frame`](Tree::receive_frame), and no part of what is switched.
    pub fn accepts_frame(&self, place: u16, frame: &[u8]) -> bool {
        let is_ours = || Ethernet::new(frame).is_ok_and(|ethernet| ethernet.dst() == Bpdu::GROUP);
        self.places.get(usize::from(place)).is_some_and(|place| place.takes_part) && is_ours()
    }

    /// Does what a command says of the tree, or of the port at this place; says whether it was about either.
    pub fn apply_command(
        &mut self,
        command: &Command,
        place: Option<u16>,
        now: Duration,
    ) -> Result<bool, StpError> {
        match (command, place) {
            (Command::SpanningTree(words), _) => self.configure_bridge(words, place, now)?,
            (Command::Flag { flag: PortFlag::Stp, on, .. }, Some(place)) => {
                self.set_participation(place, *on, now)?
            }
            (Command::Flag { flag, on, .. }, Some(place)) => {
                let mut settings = self.place_mut(place)?.settings;
                if !set_flag(&mut settings, *flag, *on) {
                    return Ok(false);
                }
                self.set_port(place, settings, now)?;
            }
            (Command::Del(_), Some(place)) => {
                self.set_participation(place, false, now)?;
                self.place_mut(place)?.settings = PortSettings::default();
                // The switch must receive it, too.
                return Ok(false);
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    fn configure_bridge(
        &mut self,
        words: &SpanningTree,
        place: Option<u16>,
        now: Duration,
    ) -> Result<(), StpError> {
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
        self.places.iter().try_for_each(|place| place.settings.check_bounds(settings.version))?;
        self.bridge.set_settings(settings, now, &mut self.actions)
    }

    fn change_port(
        &mut self,
        place: Option<u16>,
        change: impl FnOnce(&mut PortSettings),
        now: Duration,
    ) -> Result<(), StpError> {
        let place = place.ok_or(StpError::NoSuchPort(0))?;
        let mut settings = self.place_mut(place)?.settings;
        change(&mut settings);
        self.set_port(place, settings, now)
    }

    fn set_port(&mut self, place: u16, settings: PortSettings, now: Duration) -> Result<(), StpError> {
        settings.check_bounds(self.bridge.settings().version)?;
        let port = self.place_mut(place)?;
        port.settings = settings;
        if port.takes_part {
            self.bridge.set_port(port_number(place), settings, now, &mut self.actions)?;
        }
        Ok(())
    }

    fn set_participation(&mut self, at: u16, on: bool, now: Duration) -> Result<(), StpError> {
        let place = self.place_mut(at)?;
        if std::mem::replace(&mut place.takes_part, on) == on {
            return Ok(());
        }
        let (number, link) = (port_number(at), place.link);
        let TreePort { address, settings, .. } = *place;
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
        let port = self.place_mut(place)?;
        let is_news = std::mem::replace(&mut port.link, link) != link;
        match (port.takes_part && is_news, link) {
            (false, _) => Ok(()),
            (true, Some(link)) => self.bridge.link_up(port_number(place), link, now, &mut self.actions),
            (true, None) => self.bridge.link_down(port_number(place), now, &mut self.actions),
        }
    }

    /// Takes a frame that it [`accepts_frame`](Tree::accepts_frame).
    pub fn receive_frame(&mut self, place: u16, frame: &[u8], now: Duration) -> Result<(), StpError> {
        self.bridge.receive_frame(port_number(place), frame, now, &mut self.actions)
    }

    /// Does what time alone brings.
    pub fn tick(&mut self, now: Duration) {
        self.bridge.tick(now, &mut self.actions);
    }

    /// When [`tick`](Tree::tick) has something to do next.
    pub fn next_deadline(&self, now: Duration) -> Option<Duration> {
        self.bridge.next_deadline(now)
    }

    /// Applies all results since the last call to the switch, and leaves the frames to send in `outgoing`.
    pub fn carry_out(&mut self, switch: &Switch, outgoing: &mut Outgoing) {
        for action in self.actions.drain(..) {
            match action {
                Action::Send { port, frame } => outgoing.push((place_of(port), frame)),
                Action::State { port, state } => switch.set_state(place_of(port), state),
                Action::Flush { port } => switch.flush_port(place_of(port)),
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

    /// The settings of a port, and whether it takes part.
    pub(super) fn settings_of(&self, place: u16) -> Option<(PortSettings, bool)> {
        self.places.get(usize::from(place)).map(|place| (place.settings, place.takes_part))
    }

    /// What a switch is to show of a port that takes part.
    pub(super) fn shown_port(&self, place: u16) -> Option<SpanningPort> {
        let (settings, _) = self.settings_of(place)?;
        let view = self.port(place)?;
        let set = port_flags(&settings).into_iter().filter(|(_, is_set)| *is_set);
        Some(SpanningPort {
            flags: set.fold(flag_bit(PortFlag::Stp), |bits, (flag, _)| bits | flag_bit(flag)),
            priority: view.priority,
            cost: view.cost,
            state: format!("{} role {}", view.state_name(), view.role),
        })
    }

    /// Reports the states of all ports again, to a switch that does not have them.
    pub(super) fn notify_states(&mut self) {
        let states = (0..self.len()).filter_map(|place| Some((port_number(place), self.port(place)?.state)));
        let states: Vec<_> = states.map(|(port, state)| Action::State { port, state }).collect();
        // What is still to be done is newer.
        self.actions.splice(0..0, states);
    }

    fn place_mut(&mut self, place: u16) -> Result<&mut TreePort, StpError> {
        self.places.get_mut(usize::from(place)).ok_or(StpError::NoSuchPort(place))
    }
}

/// Ports of bridges are numbered from one.
fn port_number(place: u16) -> u16 {
    place.saturating_add(1)
}

fn place_of(number: u16) -> u16 {
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
