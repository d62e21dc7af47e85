//! What interfaces there are, and what a router would get of each.
use crate::driver::DriverFacts;
use crate::settings::{MethodChoice, choose};
use crate::{DeviceError, Hide, Interface, LinkType, RxSettings, netdev};

/// One interface of the machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InterfaceSurvey {
    /// The interface as it is.
    pub interface: Interface,
    /// Its driver; empty when it does not say.
    pub driver: String,
    /// Queues that frames come in by.
    pub queues: u16,
    /// Offloads of the driver or the kernel, by ethtool's short names.
    pub offloads: Vec<&'static str>,
    /// Whether the driver gives frames to AF_XDP uncopied; `None` where the kernel does not report it.
    pub zero_copy: Option<bool>,
    /// What `FromDevice` gets, in words.
    pub shared: String,
    /// What `FromDevice` with `SNIFFER false` gets, in words.
    pub alone: String,
}

/// All interfaces of this network namespace. One that vanishes meanwhile is left out.
pub fn survey() -> Vec<InterfaceSurvey> {
    Interface::list().iter().filter_map(|name| survey_interface(name).ok()).collect()
}

fn survey_interface(name: &str) -> Result<InterfaceSurvey, DeviceError> {
    let interface = Interface::find(name)?;
    let DriverFacts { driver, queues, offloads, .. } = DriverFacts::query(&interface)?;
    let zero_copy = netdev::has_zero_copy(interface.index).ok();
    let way = |hide: Hide| in_words(&interface, &RxSettings { hide, ..RxSettings::default() });
    let (shared, alone) = (way(Hide::Nothing), way(Hide::All));
    Ok(InterfaceSurvey { interface, driver, queues, offloads, zero_copy, shared, alone })
}

fn in_words(interface: &Interface, settings: &RxSettings) -> String {
    if interface.link_type.is_none_or(|link| link != LinkType::ETHER && link != LinkType::IP) {
        return "nothing: its frames are of no known kind".to_owned();
    }
    match choose(interface, settings) {
        MethodChoice::Xdp => "AF_XDP without copying".to_owned(),
        MethodChoice::Packet(why) => format!("packet sockets, since {why}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::namespace::{in_namespace, run};

    #[test]
    fn every_interface_is_listed_with_what_it_would_get() {
        in_namespace(|| {
            run("ip link add left mtu 9000 type veth peer name right");
            let found = survey();
            let names: Vec<_> = found.iter().map(|one| one.interface.name.as_str()).collect();
            assert_eq!(names, ["lo", "right", "left"]);
            let left = &found[2];
            assert_eq!((left.driver.as_str(), left.interface.mtu, left.interface.up), ("veth", 9000, false));
            assert_ne!(left.zero_copy, Some(true));
            assert!(left.shared.starts_with("packet sockets, since"), "{left:?}");
        });
    }
}
