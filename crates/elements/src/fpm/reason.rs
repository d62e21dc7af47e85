//! Why routes of FPM are not installed, and which messages are passed over.
use artery_table::router::RouterError;

/// Why a route is not in the router's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum Reason {
    /// Its packets would be encapsulated (MPLS, SRv6, VXLAN).
    Encapsulation,
    /// It is for some sources or types of service alone.
    Selective,
    /// It is not of a type that forwards or ends packets.
    Type,
    /// Its next-hop object is unknown.
    UnknownNextHop,
    /// Its gateway has a link-local address, and nothing says which port it is at.
    LinkLocal,
    /// It leads out by an interface of the host that is not a port.
    Interface,
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
    /// Any other.
    Other,
}

impl Reason {
    /// All of them.
    pub(crate) const ALL: [Reason; 12] = [
        Reason::Encapsulation,
        Reason::Selective,
        Reason::Type,
        Reason::UnknownNextHop,
        Reason::LinkLocal,
        Reason::Interface,
        Reason::NoPort,
        Reason::OffLink,
        Reason::Gateway,
        Reason::TooManyNextHops,
        Reason::Full,
        Reason::Other,
    ];

    /// What it is called in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Reason::Encapsulation => "encapsulation",
            Reason::Selective => "selective",
            Reason::Type => "type",
            Reason::UnknownNextHop => "unknown-next-hop",
            Reason::LinkLocal => "link-local",
            Reason::Interface => "interface",
            Reason::NoPort => "no-port",
            Reason::OffLink => "off-link",
            Reason::Gateway => "gateway",
            Reason::TooManyNextHops => "too-many-next-hops",
            Reason::Full => "full",
            Reason::Other => "other",
        }
    }

    /// The same for people.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Reason::Encapsulation => "packets would be encapsulated (MPLS, SRv6, VXLAN)",
            Reason::Selective => "only for some sources or types of service",
            Reason::Type => "neither unicast nor blackhole, unreachable or prohibit",
            Reason::UnknownNextHop => "no such next-hop object",
            Reason::LinkLocal => "link-local gateway at an unknown port; name a port's interface",
            Reason::Interface => "leads by an interface of the host that is not a port",
            Reason::NoPort => "names neither gateway nor port",
            Reason::OffLink => "no port has an address in a prefix with the gateway",
            Reason::Gateway => "the gateway is the router itself, or not a host",
            Reason::TooManyNextHops => "too many next hops",
            Reason::Full => "the table or the limit of neighbors is full",
            Reason::Other => "the router's table refuses it",
        }
    }
}

impl From<&RouterError> for Reason {
    fn from(error: &RouterError) -> Reason {
        match error {
            RouterError::GatewayNeedsPort(_) => Reason::LinkLocal,
            RouterError::GatewayOffLink { .. } => Reason::OffLink,
            RouterError::GatewayIsOwn { .. }
            | RouterError::GatewayIsNoHost(_)
            | RouterError::GatewayFamily(_) => Reason::Gateway,
            RouterError::TooManyNextHops(_) => Reason::TooManyNextHops,
            RouterError::NoNextHop | RouterError::NoWay => Reason::NoPort,
            RouterError::Neighbors(_) | RouterError::Table(_) => Reason::Full,
            _ => Reason::Other,
        }
    }
}

/// Messages that are passed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ignored {
    /// Routes that the sender's kernel made, or that it read there.
    Kernel,
    /// Routes of other tables than the main one (VRFs).
    Tables,
    /// Entries of MAC tables, and neighbors (EVPN).
    Neighbors,
    /// Labels of MPLS.
    Mpls,
    /// Anything else.
    Other,
}

impl Ignored {
    /// All of them.
    pub(crate) const ALL: [Ignored; 5] =
        [Ignored::Kernel, Ignored::Tables, Ignored::Neighbors, Ignored::Mpls, Ignored::Other];

    /// What it is called in JSON.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Ignored::Kernel => "kernel-routes",
            Ignored::Tables => "other-tables",
            Ignored::Neighbors => "neighbors",
            Ignored::Mpls => "mpls",
            Ignored::Other => "other",
        }
    }
}
