//! A switch and its spanning tree as one, shared by all workers; ports take part when commands say so.

use super::{Link, Outgoing, PortSettings, Settings, StpError, Tree, Version};
use crate::command::{Command, PortFlag, SpanningTree, StpProtocol};
use crate::{Config, Spanning, Switch, SwitchError, View};
use artery_rcu::Domain;
use artery_wire::EtherAddr;
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// A [`Switch`] with its [`Tree`], which is behind a lock that frames of hosts never meet: only messages
/// between bridges, time, commands and links that come and go do.
pub struct SpanningSwitch {
    switch: Switch,
    followed: Mutex<Followed>,
    is_spoken: AtomicBool,
    /// The bridge's own address.
    own: EtherAddr,
}

/// The tree, and what the switch's ports are like.
struct Followed {
    tree: Tree,
    /// The links of its ports; those of a switch that is down are none to the tree.
    links: Vec<Option<Link>>,
    is_up: bool,
}

impl SpanningSwitch {
    /// A switch with this configuration. Its ports send messages from these addresses: the lowest is
    /// the bridge's, and also that of ports without an address here. Their links are down for the tree
    /// until [`set_link`](SpanningSwitch::set_link) says otherwise.
    pub fn new(
        domain: &Arc<Domain>,
        config: Config,
        addresses: &[EtherAddr],
    ) -> Result<SpanningSwitch, SwitchError> {
        let (is_up, ports) = (config.is_up, config.ports.len());
        let own = addresses.iter().min().copied().unwrap_or_default();
        let addresses: Vec<EtherAddr> =
            addresses.iter().copied().chain(std::iter::repeat(own)).take(ports).collect();
        let tree = Tree::new(&addresses).map_err(SwitchError::Tree)?;
        Ok(SpanningSwitch {
            switch: Switch::new(domain, config)?,
            followed: Mutex::new(Followed { tree, links: vec![None; ports], is_up }),
            is_spoken: AtomicBool::new(false),
            own,
        })
    }

    /// The switch, for lookups and for commands that don't concern the tree.
    #[inline]
    pub fn switch(&self) -> &Switch {
        &self.switch
    }

    /// Whether any port takes part.
    #[inline]
    pub fn is_spoken(&self) -> bool {
        self.is_spoken.load(Relaxed)
    }

    fn lock_followed(&self) -> MutexGuard<'_, Followed> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Applies the results of a change to the switch, and collects the frames to send.
    fn carry_out(&self, followed: &mut Followed, outgoing: &mut Outgoing) {
        followed.tree.carry_out(&self.switch, outgoing);
        self.is_spoken.store(followed.tree.is_spoken(), Relaxed);
    }

    /// Does what a command says of the switch, its ports or its tree; see [`Switch::apply_command`].
    pub fn apply_command(
        &self,
        command: &Command,
        now: Duration,
        outgoing: &mut Outgoing,
    ) -> Result<(), SwitchError> {
        let mut followed = self.lock_followed();
        let done = self.dispatch_command(&mut followed, command, now);
        self.carry_out(&mut followed, outgoing);
        done
    }

    fn dispatch_command(
        &self,
        followed: &mut Followed,
        command: &Command,
        now: Duration,
    ) -> Result<(), SwitchError> {
        let is_of_tree = match command {
            Command::SpanningTree(_) => true,
            Command::Flag { flag, .. } => flag.is_of_tree(),
            _ => false,
        };
        if is_of_tree {
            let place = command.port().map(|name| self.switch.place_of_member(name)).transpose()?;
            return followed.tree.apply_command(command, place, now).map(drop).map_err(SwitchError::Tree);
        }
        let leaves = match command {
            Command::Del(name) => self.switch.place_of_member(name).ok(),
            _ => None,
        };
        self.switch.apply_command(command, now)?;
        match command {
            Command::Up | Command::Down => {
                followed.is_up = *command == Command::Up;
                followed.notify_links(now)
            }
            Command::Del(_) => followed.tree.apply_command(command, leaves, now).map(drop),
            _ => Ok(()),
        }
        .map_err(SwitchError::Tree)
    }

    /// Says that a port's link is up, or down: then nothing is sent there.
    pub fn set_link(&self, port: u16, link: Option<Link>, now: Duration, outgoing: &mut Outgoing) {
        let mut followed = self.lock_followed();
        let Some(known) = followed.links.get_mut(usize::from(port)) else { return };
        *known = link;
        self.switch.set_running(port, link.is_some());
        let told = followed.notify_links(now);
        debug_assert_eq!(told, Ok(()), "the tree has a place for each port");
        self.carry_out(&mut followed, outgoing);
    }

    /// Takes a frame that came to the address of all bridges, if the port takes part; says whether it does.
    pub fn receive_frame(&self, port: u16, frame: &[u8], now: Duration, outgoing: &mut Outgoing) -> bool {
        if !self.is_spoken() {
            return false;
        }
        let mut followed = self.lock_followed();
        let is_heard =
            followed.tree.accepts_frame(port, frame) && followed.tree.receive_frame(port, frame, now).is_ok();
        self.carry_out(&mut followed, outgoing);
        is_heard
    }

    /// Forgets groups that hosts are in no more; returns what asks hosts for theirs, see
    /// [`Switch::tick_groups`].
    pub fn tick_groups(&self, view: &View, now: Duration) -> Vec<(u16, Vec<u8>)> {
        self.switch.tick_groups(view, self.own, now)
    }

    /// Does what time alone brings to the tree, and says when there is more to do.
    pub fn tick(&self, now: Duration, outgoing: &mut Outgoing) -> Option<Duration> {
        if !self.is_spoken() {
            return None;
        }
        let mut followed = self.lock_followed();
        followed.tree.tick(now);
        self.carry_out(&mut followed, outgoing);
        followed.tree.next_deadline(now)
    }

    /// When [`tick`](SpanningSwitch::tick) has something to do next.
    pub fn next_deadline(&self, now: Duration) -> Option<Duration> {
        self.is_spoken().then(|| self.lock_followed().tree.next_deadline(now)).flatten()
    }

    /// All of it, as `ifconfig` prints a switch.
    pub fn show(&self, now: Duration) -> String {
        let spanning = self.lock_followed().tree.show_spanning();
        self.switch.show_with(now, &spanning)
    }

    /// The commands that make another switch with the same ports what this one is; see
    /// [`Switch::dump_commands`].
    pub fn dump_commands(&self, now: Duration) -> Vec<Command> {
        let followed = self.lock_followed();
        let mut commands = followed.tree.dump_commands();
        for command in self.switch.dump_commands(now) {
            let port = match &command {
                Command::Add(name) => self.switch.place_of_member(name).ok().map(|at| (at, name.clone())),
                _ => None,
            };
            commands.push(command);
            // Directly after it, so that no loop forms in between.
            commands.extend(port.into_iter().flat_map(|(at, name)| followed.tree.port_commands(at, &name)));
        }
        commands
    }

    /// Takes over what another switch knows: its addresses, and its tree if all is as it was, so that its
    /// ports need not restart; the old tree's frames that are not sent yet are dropped.
    pub fn adopt_state(&self, old: &SpanningSwitch, now: Duration, outgoing: &mut Outgoing) {
        self.switch.adopt_state(&old.switch, now);
        let mut followed = self.lock_followed();
        let mut before = old.lock_followed();
        if self.switch.port_names() != old.switch.port_names() || !followed.tree.is_like(&before.tree) {
            return;
        }
        outgoing.clear();
        std::mem::swap(&mut followed.tree, &mut before.tree);
        followed.tree.notify_states();
        // What became of them since is news to this tree.
        let told = followed.notify_links(now);
        debug_assert_eq!(told, Ok(()), "the tree has a place for each port");
        self.carry_out(&mut followed, outgoing);
    }
}

impl Followed {
    /// Reports all links to the tree; unchanged ones have no effect.
    fn notify_links(&mut self, now: Duration) -> Result<(), StpError> {
        let Followed { tree, links, is_up } = self;
        let links = links.iter().map(|link| link.filter(|_| *is_up));
        (0..).zip(links).try_for_each(|(port, link)| tree.set_link(port, link, now))
    }
}

impl Tree {
    /// What it has the switch show of itself.
    fn show_spanning(&self) -> Spanning {
        let is_shown = self.is_spoken() || *self.bridge().settings() != Settings::default();
        Spanning {
            head: if is_shown { self.bridge().view().to_string() } else { String::new() },
            ports: (0..self.len()).map(|at| self.shown_port(at)).collect(),
        }
    }

    /// Whether another tree has the same ports with the same settings.
    fn is_like(&self, other: &Tree) -> bool {
        let told = |tree: &Tree| -> Vec<Command> {
            let ports = (0..tree.len()).flat_map(|at| tree.port_commands(at, ""));
            tree.dump_commands().into_iter().chain(ports).collect()
        };
        self.addresses().eq(other.addresses()) && told(self) == told(other)
    }

    /// The commands that make another tree's bridge what this one is.
    fn dump_commands(&self) -> Vec<Command> {
        let Settings { priority, hello_time, forward_delay, max_age, hold_count, version } =
            *self.bridge().settings();
        let protocol = match version {
            Version::Rstp => StpProtocol::Rstp,
            Version::Stp => StpProtocol::Stp,
        };
        let words = [
            SpanningTree::Protocol(protocol),
            SpanningTree::Priority(priority),
            SpanningTree::HelloTime(hello_time),
            SpanningTree::ForwardDelay(forward_delay),
            SpanningTree::MaxAge(max_age),
            SpanningTree::HoldCount(hold_count),
        ];
        words.map(Command::SpanningTree).into()
    }

    /// The same of a port that is as it is when it is added.
    fn port_commands(&self, at: u16, name: &str) -> Vec<Command> {
        let Some((settings, takes_part)) = self.settings_of(at) else { return Vec::new() };
        let default = PortSettings::default();
        let mut commands = Vec::new();
        let port = || name.to_string();
        if settings.priority != default.priority {
            let words = SpanningTree::PortPriority { port: port(), priority: settings.priority };
            commands.push(Command::SpanningTree(words));
        }
        if settings.cost != default.cost {
            commands
                .push(Command::SpanningTree(SpanningTree::PortCost { port: port(), cost: settings.cost }));
        }
        // Of `ptp` and `autoptp` the first says all.
        let is_alone = |flag: PortFlag| !matches!(flag, PortFlag::Ptp | PortFlag::AutoPtp);
        let both = port_flags(&settings).into_iter().zip(port_flags(&default));
        let changed = both.filter(|(now, before)| now != before && is_alone(now.0)).map(|(now, _)| now);
        let ptp = settings.point_to_point.map(|on| (PortFlag::Ptp, on));
        let stp = takes_part.then_some((PortFlag::Stp, true));
        let words = changed.chain(ptp).chain(stp);
        commands.extend(words.map(|(flag, on)| Command::Flag { port: port(), flag, on }));
        commands
    }
}

/// What is set of a port and can be said by flags.
pub(super) fn port_flags(settings: &PortSettings) -> [(PortFlag, bool); 7] {
    [
        (PortFlag::Edge, settings.edge),
        (PortFlag::AutoEdge, settings.auto_edge),
        (PortFlag::Ptp, settings.point_to_point == Some(true)),
        (PortFlag::AutoPtp, settings.point_to_point.is_none()),
        (PortFlag::BpduGuard, settings.bpdu_guard),
        (PortFlag::BpduFilter, settings.bpdu_filter),
        (PortFlag::RootGuard, settings.root_guard),
    ]
}
