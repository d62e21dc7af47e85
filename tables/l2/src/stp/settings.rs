//! What can be set of a bridge and of its ports, and between which bounds (802.1D-2004, 17.14).

use artery_wire::BpduTime;
use std::fmt;

/// Which protocol a bridge begins with; it answers each neighbor in its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Version {
    /// Of 1998, with timers alone.
    Stp,
    /// Of 2004, by proposals and agreements.
    #[default]
    Rstp,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Version::Stp => "stp",
            Version::Rstp => "rstp",
        })
    }
}

/// What can be set of a bridge.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Settings {
    /// The lower, the sooner it is the root: 0 to 61440, in steps of 4096.
    pub priority: u16,
    /// Seconds between messages: 1 or 2.
    pub hello_time: u8,
    /// Seconds that a port waits before it learns and before it forwards: 4 to 30.
    pub forward_delay: u8,
    /// Seconds that a message is good for: 6 to 40.
    pub max_age: u8,
    /// Messages of a port in a second: 1 to 10.
    pub hold_count: u8,
    /// Protocol version that the bridge speaks.
    pub version: Version,
}

impl Default for Settings {
    fn default() -> Settings {
        Settings {
            priority: 32768,
            hello_time: 2,
            forward_delay: 15,
            max_age: 20,
            hold_count: 6,
            version: Version::Rstp,
        }
    }
}

impl Settings {
    /// Says which of them is out of its bounds.
    pub fn check_bounds(&self) -> Result<(), StpError> {
        let Settings { priority, hello_time, forward_delay, max_age, hold_count, .. } = *self;
        ensure_that(priority <= 61440 && priority.is_multiple_of(4096), StpError::Priority(priority))?;
        ensure_that((1..=2).contains(&hello_time), StpError::HelloTime(hello_time))?;
        ensure_that((4..=30).contains(&forward_delay), StpError::ForwardDelay(forward_delay))?;
        ensure_that((6..=40).contains(&max_age), StpError::MaxAge(max_age))?;
        ensure_that((1..=10).contains(&hold_count), StpError::HoldCount(hold_count))
    }

    /// The times that this bridge would have all others keep, were it the root.
    pub(super) fn times(&self) -> Times {
        Times {
            message_age: BpduTime(0),
            max_age: BpduTime::seconds(self.max_age),
            hello_time: BpduTime::seconds(self.hello_time),
            forward_delay: BpduTime::seconds(self.forward_delay),
        }
    }
}

/// What can be set of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PortSettings {
    /// The lower, the better: 0 to 240, in steps of 16.
    pub priority: u8,
    /// Path cost of the port; None for the cost that follows from its speed.
    pub cost: Option<u32>,
    /// Whether only hosts are behind it, so that it may forward at once.
    pub edge: bool,
    /// Whether the port counts as an edge port when no message is received.
    pub auto_edge: bool,
    /// Whether there is one bridge behind it at most; with none, its link says.
    pub point_to_point: Option<bool>,
    /// Shuts the port when a spanning tree message is received.
    pub bpdu_guard: bool,
    /// Root guard: while a better root is announced there, the port forwards nothing.
    pub root_guard: bool,
    /// Neither sends nor receives messages, as if no bridge were there.
    pub bpdu_filter: bool,
}

impl Default for PortSettings {
    fn default() -> PortSettings {
        PortSettings {
            priority: 128,
            cost: None,
            edge: false,
            auto_edge: true,
            point_to_point: None,
            bpdu_guard: false,
            root_guard: false,
            bpdu_filter: false,
        }
    }
}

/// The highest cost in the old protocol, which has 16 bits for it.
const MOST_COST_STP: u32 = 65_535;
const MOST_COST_RSTP: u32 = 200_000_000;

impl PortSettings {
    /// Says which of them is out of its bounds for a bridge of that version.
    pub fn check_bounds(&self, version: Version) -> Result<(), StpError> {
        ensure_that(
            self.priority <= 240 && self.priority.is_multiple_of(16),
            StpError::PortPriority(self.priority),
        )?;
        match self.cost {
            Some(cost) => ensure_that((1..=most_cost(version)).contains(&cost), StpError::Cost(cost)),
            None => Ok(()),
        }
    }
}

fn most_cost(version: Version) -> u32 {
    match version {
        Version::Stp => MOST_COST_STP,
        Version::Rstp => MOST_COST_RSTP,
    }
}

fn ensure_that(is_so: bool, otherwise: StpError) -> Result<(), StpError> {
    if is_so { Ok(()) } else { Err(otherwise) }
}

/// A link that is up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Link {
    /// Megabits a second; zero if not known.
    pub megabits: u32,
    /// Whether both sides may talk at once, as they do where there are only two.
    pub full_duplex: bool,
}

impl Link {
    /// A link of 1 Gbit/s between two.
    pub const GIGABIT: Link = Link { megabits: 1000, full_duplex: true };

    /// Path cost by speed (table 17-3): 20,000 for a gigabit, and for a link of unknown speed.
    pub fn path_cost(self, version: Version) -> u32 {
        let cost = 20_000_000_u32.checked_div(self.megabits).unwrap_or(20_000);
        cost.clamp(1, most_cost(version))
    }
}

/// The times that a root has all bridges keep, and how old its word is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    pub(super) message_age: BpduTime,
    pub(super) max_age: BpduTime,
    pub(super) hello_time: BpduTime,
    pub(super) forward_delay: BpduTime,
}

impl Times {
    /// Times within the bounds that bridges may have: a stranger shall not stop this one for hours,
    /// nor make it hurry.
    pub(super) fn clamp_bounds(self) -> Times {
        let between = |time: BpduTime, least, most| {
            BpduTime(time.0.clamp(BpduTime::seconds(least).0, BpduTime::seconds(most).0))
        };
        Times {
            message_age: self.message_age,
            max_age: between(self.max_age, 6, 40),
            hello_time: between(self.hello_time, 1, 10),
            forward_delay: between(self.forward_delay, 4, 30),
        }
    }

    /// Whether one more bridge may receive this (17.21.23).
    pub(super) fn is_young(self) -> bool {
        self.one_further().message_age <= self.max_age
    }

    /// The times as a bridge hands them on.
    pub(super) fn one_further(self) -> Times {
        Times { message_age: BpduTime(self.message_age.0.saturating_add(256)), ..self }
    }
}

/// Why a bridge refuses a setting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum StpError {
    /// The priority isn't one of 0, 4096, … 61440.
    #[error("priority {0} is not 0 to 61440 in steps of 4096")]
    Priority(u16),
    /// The hello time isn't 1 or 2 s.
    #[error("hello time {0} is not 1 or 2 seconds")]
    HelloTime(u8),
    /// The forward delay isn't between 4 and 30 s.
    #[error("forward delay {0} is not 4 to 30 seconds")]
    ForwardDelay(u8),
    /// The maximum age isn't between 6 and 40 s.
    #[error("maximum age {0} is not 6 to 40 seconds")]
    MaxAge(u8),
    /// The hold count isn't between 1 and 10.
    #[error("hold count {0} is not 1 to 10")]
    HoldCount(u8),
    /// The port's priority isn't one of 0, 16, … 240.
    #[error("port priority {0} is not 0 to 240 in steps of 16")]
    PortPriority(u8),
    /// The cost isn't one that the protocol can say.
    #[error("cost {0} is not 1 to {MOST_COST_RSTP} (stp: {MOST_COST_STP})")]
    Cost(u32),
    /// The port's number isn't between 1 and 4095.
    #[error("port number {0} is not 1 to 4095")]
    PortNumber(u16),
    /// There is such a port already.
    #[error("there is a port {0} already")]
    PortExists(u16),
    /// There is no such port.
    #[error("no port named {0}")]
    NoSuchPort(u16),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_within_the_bounds_is_taken_and_nothing_else() {
        let default = Settings::default();
        let cases = [
            (Settings { priority: 0, ..default }, None),
            (Settings { priority: 61440, ..default }, None),
            (Settings { priority: 100, ..default }, Some(StpError::Priority(100))),
            (Settings { hello_time: 3, ..default }, Some(StpError::HelloTime(3))),
            (Settings { hello_time: 0, ..default }, Some(StpError::HelloTime(0))),
            (Settings { forward_delay: 4, ..default }, None),
            (Settings { forward_delay: 31, ..default }, Some(StpError::ForwardDelay(31))),
            (Settings { max_age: 5, ..default }, Some(StpError::MaxAge(5))),
            (Settings { max_age: 40, ..default }, None),
            (Settings { hold_count: 0, ..default }, Some(StpError::HoldCount(0))),
            (Settings { hold_count: 11, ..default }, Some(StpError::HoldCount(11))),
        ];
        for (settings, wrong) in cases {
            assert_eq!(settings.check_bounds().err(), wrong, "{settings:?}");
        }
    }

    #[test]
    fn a_port_may_cost_what_its_protocol_can_say() {
        let cost = |cost| PortSettings { cost: Some(cost), ..PortSettings::default() };
        for (settings, version, is_well) in [
            (cost(0), Version::Rstp, false),
            (cost(200_000_000), Version::Rstp, true),
            (cost(200_000_001), Version::Rstp, false),
            (cost(65_535), Version::Stp, true),
            (cost(65_536), Version::Stp, false),
            (PortSettings { priority: 240, ..PortSettings::default() }, Version::Rstp, true),
            (PortSettings { priority: 20, ..PortSettings::default() }, Version::Rstp, false),
        ] {
            assert_eq!(settings.check_bounds(version).is_ok(), is_well, "{settings:?}");
        }
    }

    #[test]
    fn faster_links_cost_less() {
        let cost = |megabits, version| Link { megabits, full_duplex: true }.path_cost(version);
        let rapid = [0, 10, 100, 1000, 10_000, 100_000, u32::MAX].map(|speed| cost(speed, Version::Rstp));
        assert_eq!(rapid, [20_000, 2_000_000, 200_000, 20_000, 2_000, 200, 1]);
        assert_eq!(cost(100, Version::Stp), 65_535);
    }
}
