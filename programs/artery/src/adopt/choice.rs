//! By which path the packets of ports go. It is one for all ports: between paths frames would be lost, or
//! left to the kernel.
use super::Path;
use super::facts::Facts;

/// The paths that do for some ports.
pub(crate) struct Choice {
    /// The best first; others are tried where the kernel refuses it.
    pub(crate) paths: Vec<Path>,
    /// The port for whose sake it is not by XDP, and why.
    obstacle: Option<(String, String)>,
}

impl Choice {
    /// Chooses a path for the ports; `wanted` is the user's own choice.
    pub(crate) fn of(ports: &[Facts], wanted: Option<Path>) -> Choice {
        if let Some(path) = wanted {
            return Choice { paths: vec![path], obstacle: None };
        }
        let obstacle = |facts: &Facts| Some((facts.port.name.clone(), facts.xdp_obstacle()?));
        match ports.iter().find_map(obstacle) {
            None => Choice { paths: vec![Path::Xdp, Path::Tc], obstacle: None },
            found => Choice { paths: vec![Path::Tc], obstacle: found },
        }
    }

    /// The path that is tried first.
    pub(crate) fn best(&self) -> Path {
        self.paths[0]
    }

    /// Why a port does not go by XDP, unless the user has chosen the path.
    pub(crate) fn why(&self, facts: &Facts) -> Option<String> {
        let (port, why) = self.obstacle.as_ref()?;
        if !facts.port.has_program() {
            return None;
        }
        let own = || facts.xdp_obstacle();
        own().or_else(|| Some(format!("as {port}, since all ports go by one path: {why}")))
    }
}

impl Path {
    /// Whether XDP programs forward, in the driver or in the kernel.
    pub(crate) fn is_xdp(self) -> bool {
        matches!(self, Path::Xdp | Path::XdpGeneric)
    }
}

#[cfg(test)]
mod tests {
    use super::super::facts::example;
    use super::*;
    use artery_device::XdpFeatures;

    #[test]
    fn all_ports_go_by_xdp_or_none_does() {
        let all = XdpFeatures { redirects: true, sends_redirected: true, ..XdpFeatures::default() };
        let (good, bad) = (example(1, "eth0", Some(all)), example(2, "eth1", Some(XdpFeatures::default())));
        let choice = Choice::of(std::slice::from_ref(&good), None);
        assert_eq!((choice.paths.as_slice(), choice.why(&good)), (&[Path::Xdp, Path::Tc][..], None));
        let ports = [good, bad];
        let choice = Choice::of(&ports, None);
        assert_eq!(choice.paths, [Path::Tc]);
        assert_eq!(choice.why(&ports[1]).unwrap(), "ice does not run XDP programs itself");
        assert!(choice.why(&ports[0]).unwrap().starts_with("as eth1, "));
        let choice = Choice::of(&ports, Some(Path::Xdp));
        assert_eq!((choice.paths.as_slice(), choice.why(&ports[1])), (&[Path::Xdp][..], None));
    }
}
