//! How an interface is to be used, and by which of the two ways.
use crate::xdp::MOST_MTU;
use crate::{Attach, BusyPoll, Interface, LinkType, netdev};
use std::str::FromStr;

/// How to receive from an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RxSettings {
    /// The kernel interface that frames come by.
    pub method: Method,
    /// Whether to receive frames addressed to other MAC addresses too.
    pub promiscuous: bool,
    /// What of that which arrives to hide from the host's own stack, until the port is closed.
    pub hide: Hide,
    /// Whether to receive also what the host sends by the interface. What the router itself sends is not
    /// among it if it bypasses the queueing discipline.
    pub outbound: bool,
    /// Whether packets get the time when the kernel saw them; by AF_XDP, when they were received.
    pub timestamps: bool,
    /// Queues, one for each worker, that flows are spread over, both directions of a flow to the same one.
    pub queues: u16,
    /// Bytes of the ring of each queue of a packet socket.
    pub ring_bytes: usize,
    /// Whether system calls do the driver's work instead of interrupts, by AF_XDP.
    pub busy_poll: Option<BusyPoll>,
}

impl Default for RxSettings {
    fn default() -> RxSettings {
        RxSettings {
            method: Method::default(),
            promiscuous: false,
            hide: Hide::Nothing,
            outbound: false,
            timestamps: true,
            queues: 1,
            // 41 ms of 100,000 frames a second: others have the processor for up to 25 ms at a time.
            ring_bytes: 8 << 20,
            busy_poll: None,
        }
    }
}

/// What the host's own stack does not see of what arrives at an interface; `SNIFFER` in configurations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Hide {
    /// It sees all: `true`.
    #[default]
    Nothing,
    /// It sees frames without a tag, and those whose tag says a priority and no VLAN: `untagged`.
    Tagged,
    /// It sees nothing: `false`.
    All,
}

impl Hide {
    /// The word that configurations use.
    pub fn name(self) -> &'static str {
        match self {
            Hide::Nothing => "true",
            Hide::Tagged => "untagged",
            Hide::All => "false",
        }
    }
}

/// How to send by an interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxSettings {
    /// By which way. [`Method::Auto`] is that of the receiving half, where AF_XDP is used by it.
    pub method: Method,
    /// Whether frames go past the interface's queueing discipline, straight to its driver.
    pub qdisc_bypass: bool,
    /// Queues for as many threads.
    pub queues: u16,
}

impl Default for TxSettings {
    fn default() -> TxSettings {
        TxSettings { method: Method::default(), qdisc_bypass: false, queues: 1 }
    }
}

/// How frames get from an interface to the router, and back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Method {
    /// AF_XDP where that copies nothing and takes nothing from the host, else packet sockets.
    #[default]
    Auto,
    /// Packet sockets (AF_PACKET), with rings.
    Packet,
    /// AF_XDP sockets, and where their program runs.
    Xdp(Attach),
}

impl Method {
    /// The names that configurations use.
    pub const NAMES: &'static str = "AUTO, LINUX, XDP, XDP_NATIVE or XDP_GENERIC";
    /// The name that configurations use.
    pub fn name(self) -> &'static str {
        match self {
            Method::Auto => "AUTO",
            Method::Packet => "LINUX",
            Method::Xdp(Attach::Best) => "XDP",
            Method::Xdp(Attach::Native) => "XDP_NATIVE",
            Method::Xdp(Attach::Generic) => "XDP_GENERIC",
        }
    }
}

/// A word that names no [`Method`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InvalidMethod;

impl FromStr for Method {
    type Err = InvalidMethod;
    /// Reads one of [`Method::NAMES`]. Click's `PCAP` is a way to packet sockets, and taken for `LINUX`.
    fn from_str(word: &str) -> Result<Method, InvalidMethod> {
        Ok(match word {
            "AUTO" => Method::Auto,
            "LINUX" | "PCAP" => Method::Packet,
            "XDP" => Method::Xdp(Attach::Best),
            "XDP_NATIVE" => Method::Xdp(Attach::Native),
            "XDP_GENERIC" => Method::Xdp(Attach::Generic),
            _ => return Err(InvalidMethod),
        })
    }
}

/// The method that [`Method::Auto`] selects, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MethodChoice {
    /// AF_XDP: the driver copies nothing.
    Xdp,
    /// Packet sockets, for a reason that ends "packet sockets, since".
    Packet(String),
}

/// Chooses for an interface that is to be received from.
pub(crate) fn choose(interface: &Interface, settings: &RxSettings) -> MethodChoice {
    let because = |why: &str| MethodChoice::Packet(why.to_owned());
    if interface.link_type != Some(LinkType::ETHER) {
        return because("its frames have no Ethernet header");
    }
    match netdev::has_zero_copy(interface.index) {
        Ok(true) => {}
        Ok(false) => return because("its driver has no AF_XDP without copying"),
        Err(_) => return because("the kernel can't tell whether its driver has AF_XDP without copying"),
    }
    if interface.mtu > MOST_MTU {
        return MethodChoice::Packet(format!(
            "its MTU of {} is beyond {MOST_MTU}, the most for AF_XDP",
            interface.mtu
        ));
    }
    if settings.outbound {
        return because("AF_XDP does not see what the host sends (OUTBOUND true)");
    }
    match settings.hide {
        Hide::Nothing => because("the host is to see its frames too; with SNIFFER false AF_XDP would do"),
        Hide::Tagged => because("the host is to see its frames without a tag (SNIFFER untagged)"),
        Hide::All => MethodChoice::Xdp,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_have_the_names_that_are_told() {
        let all = [
            Method::Auto,
            Method::Packet,
            Method::Xdp(Attach::Best),
            Method::Xdp(Attach::Native),
            Method::Xdp(Attach::Generic),
        ];
        for method in all {
            assert_eq!(method.name().parse(), Ok(method));
            assert!(Method::NAMES.contains(method.name()));
        }
        assert_eq!("PCAP".parse(), Ok(Method::Packet));
        assert_eq!("NETMAP".parse::<Method>(), Err(InvalidMethod));
    }

    #[test]
    fn an_interface_without_zero_copy_gets_packet_sockets_with_a_reason() {
        let MethodChoice::Packet(why) = choose(&Interface::find("lo").unwrap(), &RxSettings::default())
        else {
            panic!("the loopback has no zero-copy");
        };
        assert!(why.contains("without copying"), "{why}");
    }
}
