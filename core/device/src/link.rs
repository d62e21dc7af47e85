//! An interface of the machine behind a port: which of two ways its frames go, and why.
use crate::af_packet::{self, FanoutGroup, PromiscuousMode};
use crate::settings::{MethodChoice, choose};
use crate::steer::share_queues;
use crate::xdp::{XdpPort, XdpSettings};
use crate::{
    AfPacketRx, AfPacketTx, Attach, DeviceError, Hide, Interface, Method, PortClaim, RxQueue, RxSettings,
    TxQueue, TxSettings,
};
use artery_packet::Pool;
use artery_wire::EtherAddr;
use std::io;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The number of the loopback in each network namespace (LOOPBACK_IFINDEX, include/net/flow.h).
const LOOPBACK: u32 = 1;

/// An interface, with what its queues share.
pub(crate) struct Link {
    pub(crate) interface: Interface,
    pool: &'static Pool,
    group: FanoutGroup,
    xdp: Mutex<Option<XdpUse>>,
    report: Mutex<Option<String>>,
    /// The interface's state at the last check.
    last: Mutex<Interface>,
    /// Its MTU, for transmit queues to read.
    mtu: Arc<AtomicU32>,
    /// Held while frames for other MAC addresses are received.
    promiscuous: Mutex<Option<PromiscuousMode>>,
    /// Keeps other processes from using it, once more is done than looking at what arrives.
    claim: Mutex<Option<PortClaim>>,
}

/// What AF_XDP uses of an interface, and how.
struct XdpUse {
    port: XdpPort,
    settings: XdpSettings,
}

impl Link {
    /// Finds the interface of a name; by AF_XDP, packets will be of `pool`.
    pub(crate) fn find(name: &str, pool: &'static Pool) -> Result<Link, DeviceError> {
        Ok(Link::new(af_packet::find(name)?, pool))
    }

    /// Finds the interface of a name that can take the place of this one, which is gone; it may be down.
    /// Interfaces whose numbers are in `held` are other ports'.
    pub(crate) fn find_successor(&self, name: &str, held: &[u32]) -> Result<Link, DeviceError> {
        let interface = Interface::find(name)?;
        if held.contains(&interface.index) {
            return Err(crate::interface::no_such(name));
        }
        if interface.link_type != self.interface.link_type {
            let kind = |interface: &Interface| {
                interface.link_type.map_or("other".to_owned(), |kind| kind.to_string())
            };
            let (expected, found) = (kind(&self.interface), kind(&interface));
            return Err(DeviceError::WrongLinkType { name: name.to_owned(), expected, found });
        }
        Ok(Link::new(interface, self.pool))
    }
    fn new(interface: Interface, pool: &'static Pool) -> Link {
        let (group, xdp, report) = (FanoutGroup::default(), Mutex::default(), Mutex::default());
        let (last, mtu) = (Mutex::new(interface.clone()), Arc::new(AtomicU32::new(interface.mtu)));
        let (promiscuous, claim) = Default::default();
        Link { interface, pool, group, xdp, report, last, mtu, promiscuous, claim }
    }

    /// Enters or leaves promiscuous mode.
    pub(crate) fn set_promiscuous(&self, is_wanted: bool) -> Result<(), DeviceError> {
        let mut mode = self.promiscuous.lock().unwrap_or_else(PoisonError::into_inner);
        if is_wanted != mode.is_some() {
            *mode = is_wanted.then(|| PromiscuousMode::enter(&self.interface)).transpose()?;
        }
        Ok(())
    }

    /// Opens all receive queues where they come together, by AF_XDP; `None` where each is opened on its own.
    pub(crate) fn open_all(
        &self,
        settings: &RxSettings,
        port: u16,
    ) -> Result<Option<Vec<Box<dyn RxQueue>>>, DeviceError> {
        if settings.hide != Hide::Nothing || matches!(settings.method, Method::Xdp(_)) {
            self.claim()?;
        }
        let why = match settings.method {
            Method::Xdp(attach) => {
                self.open_xdp(attach, settings, port)?;
                return self.xdp_queues(settings).map(Some);
            }
            Method::Packet => "as METHOD says".to_owned(),
            Method::Auto => match choose(&self.interface, settings) {
                MethodChoice::Packet(why) => why,
                MethodChoice::Xdp if !self.is_up() => return Err(self.down()),
                MethodChoice::Xdp => match self.open_without_copying(settings, port) {
                    Ok(queues) => return Ok(Some(queues)),
                    Err(why) => why,
                },
            },
        };
        let queues = match settings.queues {
            0 | 1 => "a queue".to_owned(),
            queues => format!("{queues} queues"),
        };
        let since = if settings.method == Method::Packet { ", " } else { ", since " };
        let name = &self.interface.name;
        self.say(format!("{name}: packet sockets with {queues} and virtio-net headers{since}{why}"));
        self.release();
        Ok(None)
    }
    fn open_without_copying(
        &self,
        settings: &RxSettings,
        port: u16,
    ) -> Result<Vec<Box<dyn RxQueue>>, String> {
        let opened = self.open_xdp(Attach::Best, settings, port).map_err(|error| error.to_string())?;
        if !opened.report().zero_copy {
            drop(opened);
            self.release();
            return Err("AF_XDP would copy after all".to_owned());
        }
        self.xdp_queues(settings).map_err(|error| error.to_string())
    }
    /// The AF_XDP queues, shared out among the workers.
    fn xdp_queues(&self, settings: &RxSettings) -> Result<Vec<Box<dyn RxQueue>>, DeviceError> {
        let Some(port) = self.xdp().as_ref().map(|xdp| xdp.port.clone()) else { return Ok(Vec::new()) };
        let (have, wanted) = (port.queues(), settings.queues.max(1));
        let mut queues: Vec<Box<dyn RxQueue>> = Vec::new();
        for queue in 0..have {
            queues.push(Box::new(port.rx(queue, settings)?));
        }
        self.set_promiscuous(settings.promiscuous)?;
        let mut report = port.report().to_string();
        if have < wanted {
            report += &format!("; flows are dealt to {wanted} workers");
        }
        self.say(report);
        if have == wanted {
            return Ok(queues);
        }
        let failed = |error| self.failed("sharing its queues out", &io::Error::from(error));
        let shares = share_queues(queues, wanted.into()).map_err(failed)?;
        Ok(shares.into_iter().map(|share| Box::new(share) as Box<dyn RxQueue>).collect())
    }
    fn open_xdp(&self, attach: Attach, settings: &RxSettings, port: u16) -> Result<XdpPort, DeviceError> {
        let settings = XdpSettings { attach, busy_poll: settings.busy_poll, ..XdpSettings::default() };
        let mut xdp = self.xdp();
        if let Some(open) = xdp.as_ref().filter(|xdp| xdp.settings == settings) {
            return Ok(open.port.clone());
        }
        if let Some(open) = xdp.as_ref().filter(|xdp| xdp.port.is_held()) {
            return Err(self.differs(&open.settings, &settings));
        }
        *xdp = None;
        let opened = XdpPort::open(&self.present(), &settings, port, self.pool)?;
        *xdp = Some(XdpUse { port: opened.clone(), settings });
        Ok(opened)
    }

    /// Says that AF_XDP is in use with other settings.
    fn differs(&self, open: &XdpSettings, asked: &XdpSettings) -> DeviceError {
        let name = self.interface.name.clone();
        if open.attach != asked.attach {
            let method = |settings: &XdpSettings| Method::Xdp(settings.attach).name().to_owned();
            return DeviceError::Differs {
                name,
                setting: "METHOD",
                open: method(open),
                asked: method(asked),
            };
        }
        let polls =
            |settings: &XdpSettings| settings.busy_poll.map_or(0, |poll| poll.microseconds).to_string();
        DeviceError::Differs { name, setting: "BUSY_POLL", open: polls(open), asked: polls(asked) }
    }

    /// Opens a receive queue of its own socket.
    pub(crate) fn open_rx(&self, settings: &RxSettings, port: u16) -> Result<Box<dyn RxQueue>, DeviceError> {
        let rx = AfPacketRx::open(&self.interface, settings, port, &self.group)?;
        self.set_promiscuous(settings.promiscuous)?;
        Ok(Box::new(rx))
    }
    /// Opens a transmit queue: by AF_XDP where that was requested, or receives, and has a queue of the
    /// number. Workers beyond its queues send by packet sockets, where the kernel serializes them.
    pub(crate) fn open_tx(
        &self,
        queue: u16,
        settings: &TxSettings,
        receiving: Option<&RxSettings>,
        port: u16,
    ) -> Result<Box<dyn TxQueue>, DeviceError> {
        self.claim()?;
        let plain = RxSettings::default();
        let receiving = receiving.unwrap_or(&plain);
        let by_xdp = match (settings.method, receiving.method) {
            (Method::Xdp(attach), _) | (Method::Auto, Method::Xdp(attach)) => {
                Some(self.open_xdp(attach, receiving, port)?)
            }
            (Method::Auto, Method::Auto) if choose(&self.interface, receiving) == MethodChoice::Xdp => {
                if !self.is_up() {
                    return Err(self.down());
                }
                let opened = self.open_xdp(Attach::Best, receiving, port).ok();
                let opened = opened.filter(|opened| opened.report().zero_copy);
                if opened.is_none() {
                    self.release();
                }
                opened
            }
            _ => None,
        };
        match by_xdp.filter(|xdp| queue < xdp.queues()) {
            Some(xdp) => Ok(Box::new(xdp.tx(queue)?)),
            None => Ok(Box::new(AfPacketTx::open(&self.interface, settings, self.mtu.clone())?)),
        }
    }

    /// Checks the interface, whatever its name is now, and describes what has changed for the port since the
    /// last check, a sentence for each change; `None` if the interface is gone.
    pub(crate) fn find_changes(&self, port: &str) -> Option<Vec<String>> {
        // What can't be asked, for want of descriptors, is as it was.
        let Ok(now) = Interface::with_index(self.interface.index) else { return Some(Vec::new()) };
        let now = now?;
        let mut last = self.last.lock().unwrap_or_else(PoisonError::into_inner);
        if now == *last {
            return Some(Vec::new());
        }
        let was = std::mem::replace(&mut *last, now.clone());
        self.mtu.store(now.mtu, Relaxed);
        if let Some(xdp) = &*self.xdp() {
            xdp.port.follow(&now);
        }
        Some(describe_changes(port, &was, &now))
    }
    /// The interface's state at the last check.
    pub(crate) fn last_seen(&self) -> Interface {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    /// The interface as it is, or as it last was.
    fn present(&self) -> Interface {
        Interface::with_index(self.interface.index).ok().flatten().unwrap_or_else(|| self.last_seen())
    }
    /// AF_XDP can be opened on an interface that is up only.
    fn is_up(&self) -> bool {
        self.present().up
    }
    fn down(&self) -> DeviceError {
        DeviceError::Down { name: self.last_seen().name }
    }
    /// Claims the interface for this process.
    fn claim(&self) -> Result<(), DeviceError> {
        let mut claim = self.claim.lock().unwrap_or_else(PoisonError::into_inner);
        // All processes send by the loopback, where nothing is forwarded.
        if claim.is_none() && self.interface.index != LOOPBACK {
            *claim = Some(PortClaim::new(&self.interface)?.serve());
        }
        Ok(())
    }
    /// Gives the interface up: another process may have it.
    pub(crate) fn release_claim(&self) {
        self.release();
        *self.claim.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }
    /// Gives the interface back that AF_XDP has taken, unless a queue of it is held.
    pub(crate) fn release(&self) {
        let mut xdp = self.xdp();
        if xdp.as_ref().is_some_and(|xdp| !xdp.port.is_held()) {
            *xdp = None;
        }
    }
    /// How frames are received, and why so, in a line; `None` before they are.
    pub(crate) fn report(&self) -> Option<String> {
        self.report.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
    fn say(&self, line: String) {
        *self.report.lock().unwrap_or_else(PoisonError::into_inner) = Some(line);
    }
    fn xdp(&self) -> MutexGuard<'_, Option<XdpUse>> {
        self.xdp.lock().unwrap_or_else(PoisonError::into_inner)
    }
    fn failed(&self, doing: &'static str, error: &io::Error) -> DeviceError {
        DeviceError::from_io(&self.interface.name, doing, "CAP_NET_RAW", error)
    }
}

/// A sentence for each change of a port's interface.
pub(crate) fn describe_changes(port: &str, was: &Interface, now: &Interface) -> Vec<String> {
    let mut said = Vec::new();
    if now.name != was.name {
        let (now, was) = (&now.name, &was.name);
        said.push(format!(
            "{port}: its interface is called {now} now, and was {was}; the port keeps its name"
        ));
    }
    if now.mtu != was.mtu {
        said.push(format!("{port}: its MTU is {} now, and was {}", now.mtu, was.mtu));
    }
    if let (Some(mac), Some(old)) = (now.mac, was.mac)
        && mac != old
    {
        let (mac, old) = (EtherAddr(mac), EtherAddr(old));
        said.push(format!(
            "{port}: its Ethernet address is {mac} now, and was {old}; elements that were given the old \
             one, as by '{port}:eth', keep it until the configuration is replaced"
        ));
    }
    if now.up && !was.up {
        said.push(format!("{port}: it is up again"));
    }
    said
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Link").field("interface", &self.interface).finish_non_exhaustive()
    }
}
