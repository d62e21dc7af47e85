//! What a port is, and by which path its packets would go.
use super::Path;
use artery_adopt::guard::Port;
use artery_device::{Interface, XdpFeatures, strips_tags, survey, xdp_features};

/// A port with what its driver can do.
pub(super) struct Facts {
    pub(super) port: Port,
    /// Empty when it does not say.
    pub(super) driver: String,
    /// `None` where the kernel can't tell.
    pub(super) features: Option<XdpFeatures>,
    /// Whether it takes VLAN tags off.
    pub(super) strips_tags: bool,
    /// The path that somebody wants its packets to go.
    pub(super) wanted: Option<Path>,
}

impl Facts {
    pub(super) fn find(port: Port, wanted: Option<Path>) -> anyhow::Result<Facts> {
        // One that went away meanwhile is told as such.
        let strips_tags = strips_tags(&Interface::find(&port.name)?)?;
        // The frames of a VLAN come and go by the interface that it is on.
        let index = port.vlan_on.unwrap_or(port.index);
        let driver = survey().into_iter().find(|one| one.interface.index == index).map(|one| one.driver);
        Ok(Facts {
            driver: driver.unwrap_or_default(),
            features: xdp_features(index).ok(),
            strips_tags,
            wanted,
            port,
        })
    }

    /// How the driver runs XDP programs.
    pub(super) fn xdp(&self) -> &'static str {
        match self.features {
            Some(features) if features.redirects => "native",
            Some(_) => "generic",
            None => "?",
        }
    }
    /// The path that its packets would go.
    pub(super) fn path(&self) -> Path {
        self.wanted.unwrap_or(match self.features {
            Some(features) if features.redirects && !self.is_hidden() => Path::Xdp,
            _ => Path::Tc,
        })
    }
    /// Whether that is by XDP, whoever runs its programs.
    pub(super) fn is_by_xdp(&self) -> bool {
        matches!(self.path(), Path::Xdp | Path::XdpGeneric)
    }
    /// Whether programs of XDP would not see all that is about a frame.
    fn is_hidden(&self) -> bool {
        self.is_unfinished() || self.strips_tags || self.port.vlan_on.is_some()
    }
    /// Whether frames arrive whose checksums nobody has computed, and which nobody has cut: its senders are on this machine.
    fn is_unfinished(&self) -> bool {
        matches!(self.driver.as_str(), "veth" | "tun" | "netkit")
    }
    /// Why they would not go by XDP, or what that takes. Who wants another path has not asked.
    pub(super) fn why(&self) -> Option<String> {
        if matches!(self.wanted, Some(Path::Tc | Path::Graph)) {
            return None;
        }
        let driver = if self.driver.is_empty() { "its driver" } else { &self.driver };
        match self.features {
            None => {
                Some("the kernel does not tell what its driver can do with XDP, as Linux 6.3 does".to_owned())
            }
            Some(features) if !features.redirects => {
                Some(format!("{driver} does not run XDP programs itself"))
            }
            Some(_) if self.is_unfinished() => Some(format!(
                "frames from {driver} come with checksums and segments unfinished, which XDP would lose"
            )),
            Some(_) if self.port.vlan_on.is_some() => {
                Some("it is a VLAN, whose frames come by another port".to_owned())
            }
            Some(_) if self.strips_tags => Some(format!(
                "{driver} takes VLAN tags off, which XDP would not see; 'ethtool -K {} rxvlan off' leaves them on",
                self.port.name
            )),
            Some(features) if !features.sends_redirected => Some(format!(
                "{driver} sends redirected frames only once its other end joins frames (GRO) or has a program"
            )),
            Some(_) => None,
        }
    }
}

#[cfg(test)]
pub(super) fn example(index: u32, name: &str, features: Option<XdpFeatures>) -> Facts {
    let port = Port { index, name: name.to_owned(), vlan_on: None, own: None };
    Facts { port, driver: "ice".to_owned(), features, strips_tags: false, wanted: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_path_is_by_xdp_where_the_driver_runs_programs() {
        let way = |features| {
            let facts = example(1, "eth0", features);
            (facts.xdp(), facts.path().name(), facts.why())
        };
        let all = XdpFeatures { redirects: true, sends_redirected: true, zero_copy: false };
        assert_eq!(way(Some(all)), ("native", "xdp", None));
        let (xdp, path, why) = way(Some(XdpFeatures { sends_redirected: false, ..all }));
        assert_eq!((xdp, path), ("native", "xdp"));
        assert!(why.unwrap().contains("GRO"));
        let stripping = Facts { strips_tags: true, ..example(1, "eth0", Some(all)) };
        assert_eq!((stripping.path().name(), stripping.why().unwrap().contains("rxvlan off")), ("tc", true));
        let mut vlan = example(1, "eth0.7", Some(all));
        vlan.port.vlan_on = Some(2);
        assert_eq!(vlan.path(), Path::Tc);
        let none = "ice does not run XDP programs itself".to_owned();
        assert_eq!(way(Some(XdpFeatures::default())), ("generic", "tc", Some(none)));
        assert_eq!(way(None).0, "?");
    }
}
