//! Why routes of FPM are not installed, and which messages are passed over.
use artery_l3::router::RouterError;

/// Why a route is not in the router's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum RejectReason {
    /// Its packets would be encapsulated (MPLS, SRv6, VXLAN).
    Encapsulation,
    /// It is for some sources or types of service alone.
    Selective,
    /// It is not of a type that forwards or ends packets.
    Type,
    /// Its next-hop object is unknown.
    UnknownNextHop,
    /// Its gateway has a link-local address, and no port is given.
    LinkLocal,
    /// Its interface on the host is not that of a port.
    Interface,
    /// The kernel can't be asked what its interface is, as without descriptors.
    UnknownInterface,
    /// It names neither gateway nor port.
    NoPort,
    /// No port has an address in a prefix with its gateway.
    OffLink,
    /// Its gateway is the router itself, or not a host.
    Gateway,
    /// It has more next hops than a route can have.
    TooManyNextHops,
    /// The table or a limit of neighbors is full.
    Full,
    Other,
}

impl RejectReason {
    pub(crate) const ALL: [RejectReason; 13] = [
        RejectReason::Encapsulation,
        RejectReason::Selective,
        RejectReason::Type,
        RejectReason::UnknownNextHop,
        RejectReason::LinkLocal,
        RejectReason::Interface,
        RejectReason::UnknownInterface,
        RejectReason::NoPort,
        RejectReason::OffLink,
        RejectReason::Gateway,
        RejectReason::TooManyNextHops,
        RejectReason::Full,
        RejectReason::Other,
    ];

    /// What it is called in JSON.
    pub(crate) fn name(self) -> &'static str {
        self.words().0
    }

    /// The same for people.
    pub(crate) fn text(self) -> &'static str {
        self.words().1
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            RejectReason::Encapsulation => {
                ("encapsulation", "packets would be encapsulated (MPLS, SRv6, VXLAN)")
            }
            RejectReason::Selective => ("selective", "only for some sources or types of service"),
            RejectReason::Type => ("type", "neither unicast nor blackhole, unreachable or prohibit"),
            RejectReason::UnknownNextHop => ("unknown-next-hop", "no such next-hop object"),
            RejectReason::LinkLocal => {
                ("link-local", "link-local gateway at an unknown port; name a port's interface")
            }
            RejectReason::Interface => ("interface", "leads by an interface of the host that is not a port"),
            RejectReason::UnknownInterface => {
                ("unknown-interface", "the kernel can't be asked which interface it leads by")
            }
            RejectReason::NoPort => ("no-port", "names neither gateway nor port"),
            RejectReason::OffLink => ("off-link", "no port has an address in a prefix with the gateway"),
            RejectReason::Gateway => ("gateway", "the gateway is the router itself, or not a host"),
            RejectReason::TooManyNextHops => ("too-many-next-hops", "too many next hops"),
            RejectReason::Full => ("full", "the table or the limit of neighbors is full"),
            RejectReason::Other => ("other", "the router's table refuses it"),
        }
    }
}

impl From<&RouterError> for RejectReason {
    fn from(error: &RouterError) -> RejectReason {
        match error {
            RouterError::GatewayNeedsPort(_) => RejectReason::LinkLocal,
            RouterError::GatewayOffLink { .. } => RejectReason::OffLink,
            RouterError::GatewayIsOwn { .. }
            | RouterError::GatewayIsNoHost(_)
            | RouterError::GatewayFamily(_) => RejectReason::Gateway,
            RouterError::TooManyNextHops(_) => RejectReason::TooManyNextHops,
            RouterError::NoNextHop | RouterError::NoWay => RejectReason::NoPort,
            RouterError::Neighbors(_) | RouterError::Table(_) => RejectReason::Full,
            _ => RejectReason::Other,
        }
    }
}

/// Messages that are passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum IgnoredMessage {
    /// Routes that the sender's kernel created, or that it read there.
    Kernel,
    /// Routes of tables other than the main one (VRFs).
    Tables,
    /// Entries of MAC tables, and neighbors (EVPN).
    Neighbors,
    /// MPLS label bindings and routes.
    Mpls,
    Other,
}

impl IgnoredMessage {
    pub(crate) const ALL: [IgnoredMessage; 5] = [
        IgnoredMessage::Kernel,
        IgnoredMessage::Tables,
        IgnoredMessage::Neighbors,
        IgnoredMessage::Mpls,
        IgnoredMessage::Other,
    ];

    /// What it is called in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            IgnoredMessage::Kernel => "kernel-routes",
            IgnoredMessage::Tables => "other-tables",
            IgnoredMessage::Neighbors => "neighbors",
            IgnoredMessage::Mpls => "mpls",
            IgnoredMessage::Other => "other",
        }
    }
}
