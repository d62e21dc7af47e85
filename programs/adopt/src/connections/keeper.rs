//! What keeps connections in the kernel, as reports name it.

/// Why the packets of a connection are the kernel's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ConnectionKeeper {
    /// It is not established yet: not answered, or TCP before ESTABLISHED.
    Opening,
    /// It ends: TCP behind ESTABLISHED, or a packet was seen that may close it.
    Closing,
    /// It has a helper, adjusted sequence numbers, a SYN proxy or a zone, or is offloaded to a card.
    Unusual,
    /// One end is this machine.
    Local,
    /// Its family stays with the kernel, or has no rules that it could be forwarded past.
    Policy,
    /// It is translated, and the kernel does not translate now.
    Translation,
    /// A rule stands in the way, or may.
    Rule,
    /// Rules may give it to a flow table of the kernel's, but it is not in one, or not yet; otherwise a rule
    /// stands in the way, or windows do.
    FlowTable,
    /// The kernel would drop, or not translate, segments out of window, and does not see the windows of
    /// packets that go past it.
    Window,
    /// Its routes are the kernel's, or lead by several ports.
    Route,
    /// It is translated, and leaves by another port than when it began.
    OtherPort,
    /// The kernel has not said yet that it lets segments out of window through.
    Pending,
    /// There is no room for its packets among the flows.
    Room,
}

impl ConnectionKeeper {
    /// All of them, in the order of their numbers.
    pub const ALL: [ConnectionKeeper; 13] = [
        ConnectionKeeper::Opening,
        ConnectionKeeper::Closing,
        ConnectionKeeper::Unusual,
        ConnectionKeeper::Local,
        ConnectionKeeper::Policy,
        ConnectionKeeper::Translation,
        ConnectionKeeper::Rule,
        ConnectionKeeper::FlowTable,
        ConnectionKeeper::Window,
        ConnectionKeeper::Route,
        ConnectionKeeper::OtherPort,
        ConnectionKeeper::Pending,
        ConnectionKeeper::Room,
    ];

    /// Its name, as metrics have it.
    pub fn name(self) -> &'static str {
        self.words().0
    }

    /// What it says of a connection, in a few words.
    pub fn meaning(self) -> &'static str {
        self.words().1
    }

    fn words(self) -> (&'static str, &'static str) {
        match self {
            ConnectionKeeper::Opening => ("opening", "not established yet"),
            ConnectionKeeper::Closing => ("closing", "closing"),
            ConnectionKeeper::Unusual => (
                "unusual",
                "has a helper, adjusted sequence numbers, a SYN proxy or a zone, or is offloaded to a card",
            ),
            ConnectionKeeper::Local => ("local", "one end is this machine"),
            ConnectionKeeper::Policy => ("policy", "its family stays with the kernel, or has no rules"),
            ConnectionKeeper::Translation => ("translation", "translated where the kernel no longer does"),
            ConnectionKeeper::Rule => ("rules", "a rule stands in the way, or may"),
            ConnectionKeeper::FlowTable => ("flow-table", "may come into a flow table, but is not in it"),
            ConnectionKeeper::Window => ("windows", "the kernel must follow its windows"),
            ConnectionKeeper::Route => ("route", "its routes are the kernel's, or lead by several ports"),
            ConnectionKeeper::OtherPort => {
                ("other-port", "translated, and leaves by another port than when it began")
            }
            ConnectionKeeper::Pending => {
                ("pending", "the kernel has not let segments out of window through yet")
            }
            ConnectionKeeper::Room => ("room", "no room among the flows"),
        }
    }
}
