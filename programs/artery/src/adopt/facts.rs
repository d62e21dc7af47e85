//! What a port is, and what its driver can do.
use artery_adopt::MOST_MTU_OF_A_BUFFER;
use artery_adopt::blockers::{Bridging, Port};
use artery_adopt::mirror::Vrf;
use artery_device::{
    Channels, Interface, XdpFeatures, channels, joining_offload, strips_tags, survey, xdp_features,
};

/// A port with what its driver can do.
#[derive(Default)]
pub(crate) struct Facts {
    pub(crate) port: Port,
    /// Empty when it does not say.
    pub(crate) driver: String,
    /// `None` where the kernel does not report them.
    pub(crate) features: Option<XdpFeatures>,
    /// Whether it takes VLAN tags off.
    pub(crate) strips_tags: bool,
    /// The offload by which it joins frames before the kernel sees them, if one is on.
    pub(crate) joining: Option<&'static str>,
    pub(crate) mtu: u32,
    /// `None` where the driver does not say.
    pub(crate) channels: Option<Channels>,
    /// The port that it is a VLAN on, if that is adopted, too: its program forwards for the VLAN.
    pub(crate) carrier: Option<String>,
    /// The bridge that it is a member of, if that is adopted.
    pub(crate) bridge: Option<String>,
    /// The VRF that it belongs to, once that is looked up.
    pub(crate) vrf: Option<Vrf>,
}

impl Facts {
    /// What there is to know of a port. `others` are all ports that are to be adopted.
    pub(crate) fn find(port: Port, others: &[Port]) -> anyhow::Result<Facts> {
        // The frames of a VLAN come and go by the interface that it is on.
        let index = port.vlan_on.unwrap_or(port.index);
        let carrier = others.iter().find(|other| port.vlan_on == Some(other.index));
        let interface = Interface::find(&carrier.unwrap_or(&port).name)?;
        let surveyed = survey().into_iter().find(|one| one.interface.index == index);
        Ok(Facts {
            mtu: surveyed.as_ref().map_or(0, |one| one.interface.mtu),
            driver: surveyed.map(|one| one.driver).unwrap_or_default(),
            features: xdp_features(index).ok(),
            strips_tags: strips_tags(&interface)?,
            joining: joining_offload(&interface).ok().flatten(),
            channels: channels(&interface).ok(),
            carrier: carrier.map(|carrier| carrier.name.clone()),
            bridge: match port.bridging {
                Bridging::Member(bridge) => others.iter().find(|other| other.index == bridge),
                _ => None,
            }
            .map(|bridge| bridge.name.clone()),
            vrf: None,
            port,
        })
    }

    /// How the driver runs XDP programs.
    pub(crate) fn xdp(&self) -> &'static str {
        match self.features {
            Some(features) if features.redirects => "native",
            Some(_) => "generic",
            None => "?",
        }
    }

    /// Its driver's name, in a sentence.
    fn driver(&self) -> &str {
        if self.driver.is_empty() { "its driver" } else { &self.driver }
    }

    /// Whether frames arrive without checksums, or larger than the MTU: virtual links, with
    /// senders on this machine.
    pub(crate) fn is_unfinished(&self) -> bool {
        matches!(self.driver.as_str(), "veth" | "tun" | "netkit")
    }

    /// Whether it is a bond, whose members each run a program of XDP that it has.
    fn is_bond(&self) -> bool {
        self.driver == "bonding"
    }

    /// Why programs of XDP would not do for it, or would make it slower than the kernel.
    pub(crate) fn xdp_obstacle(&self) -> Option<String> {
        let (name, driver) = (&self.port.name, self.driver());
        if !self.port.has_program() {
            // The members of a bridge have programs, and the ports that outer packets of a tunnel leave by.
            return None;
        }
        let runs_none = self.features.is_some_and(|features| !features.redirects);
        if self.port.vlan_on.is_some() && self.carrier.is_none() {
            return Some(
                "it is a VLAN, whose frames come by another interface; adopt that one, too, for XDP"
                    .to_owned(),
            );
        }
        if self.is_unfinished() {
            return Some(format!(
                "frames from {driver} come with checksums and segments unfinished, which XDP would lose"
            ));
        }
        if self.is_bond() {
            return Some(
                "it is a bond, and XDP would forward what arrives at members that it does not receive by"
                    .to_owned(),
            );
        }
        if runs_none {
            return Some(format!("{driver} does not run XDP programs itself"));
        }
        if self.strips_tags {
            return Some(format!(
                "{driver} takes VLAN tags off, which XDP would not see; 'ethtool -K {name} rxvlan off' \
                 leaves them on"
            ));
        }
        let offload = self.joining?;
        Some(format!(
            "{offload} joins frames of TCP before the kernel sees them, and XDP would switch it off; where \
             small packets matter more, '--path xdp' is faster"
        ))
    }

    /// A note on XDP at this port, where no obstacle is known.
    pub(crate) fn xdp_note(&self, processors: u32) -> Option<String> {
        if !self.port.has_program() {
            return None;
        }
        let (name, driver) = (&self.port.name, self.driver());
        if let Some((lack, remedy)) = self.lacks_queues_for_xdp(processors) {
            return Some(format!("{name}: {lack} ({remedy})"));
        }
        self.features.is_none().then(|| {
            format!(
                "{name}: this kernel does not tell whether {driver} runs XDP programs, as Linux 6.3 does; \
                 only attaching one shows it"
            )
        })
    }
}

/// What becomes by XDP of frames that lie in several buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MultiBuffer {
    /// No frame of the port is as long.
    Never,
    /// XDP forwards them.
    Forwarded,
    /// The driver runs no programs for such frames, and may refuse any.
    NotReceived,
    /// Those that would leave there stay with the kernel: the driver does not send them.
    NotSent,
    /// The driver sends redirected frames only while it has a program, or the kernel does not report
    /// what the driver does.
    Unknown,
}

impl Facts {
    /// What becomes by XDP of frames that lie in several buffers.
    pub(crate) fn multi_buffer(&self) -> MultiBuffer {
        match self.features {
            _ if !self.port.has_program() => MultiBuffer::Never,
            _ if self.mtu <= MOST_MTU_OF_A_BUFFER => MultiBuffer::Never,
            None => MultiBuffer::Unknown,
            Some(features) if !features.receives_multi_buffer => MultiBuffer::NotReceived,
            Some(features) if features.sends_multi_buffer => MultiBuffer::Forwarded,
            Some(features) if features.sends_redirected => MultiBuffer::NotSent,
            Some(_) => MultiBuffer::Unknown,
        }
    }

    /// A note on that, where they are not forwarded or it is not known.
    pub(crate) fn multi_buffer_note(&self) -> Option<String> {
        let (name, mtu, driver) = (&self.port.name, self.mtu, self.driver());
        let what = match self.multi_buffer() {
            MultiBuffer::Never | MultiBuffer::Forwarded => return None,
            MultiBuffer::NotReceived => {
                format!("{driver} does not give frames in several buffers to XDP, and may refuse programs")
            }
            MultiBuffer::NotSent => format!(
                "{driver} does not send frames in several buffers that XDP redirects: those that leave there \
                 stay with the kernel"
            ),
            MultiBuffer::Unknown if self.features.is_none() => format!(
                "frames in several buffers that leave there stay with the kernel, for this kernel does not \
                 report whether {driver} sends them, as Linux 6.3 does"
            ),
            MultiBuffer::Unknown => format!(
                "only with a program at the port does {driver} report whether it sends frames in several \
                 buffers"
            ),
        };
        Some(format!("{name}: MTU {mtu}: {what}"))
    }

    /// Reports that there are too few queue pairs for XDP to send from each processor by one of its own, and
    /// how to get more.
    pub(crate) fn lacks_queues_for_xdp(&self, processors: u32) -> Option<(String, String)> {
        let Channels { combined, most_combined } = self.channels.filter(|_| self.driver == "virtio_net")?;
        if most_combined >= combined + processors {
            return None;
        }
        let name = &self.port.name;
        let remedy = match most_combined.saturating_sub(processors) {
            0 => format!("give it {} queue pairs", 2 * processors),
            left => format!("ethtool -L {name} combined {left}"),
        };
        let lack = format!(
            "virtio_net has {most_combined} queue pairs, of which {combined} receive, and XDP wants one more \
             for each of {processors} processors: they share one, by a lock"
        );
        Some((lack, remedy))
    }
}

#[cfg(test)]
pub(crate) fn example(index: u32, name: &str, features: Option<XdpFeatures>) -> Facts {
    let port = Port { index, name: name.to_owned(), ..Port::default() };
    Facts { port, driver: "ice".to_owned(), features, mtu: 1500, ..Facts::default() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_speaks_against_xdp_is_named_with_its_remedy() {
        let all = XdpFeatures { redirects: true, sends_redirected: true, ..XdpFeatures::default() };
        let ice = |features| example(1, "eth0", features);
        assert_eq!((ice(Some(all)).xdp(), ice(Some(all)).xdp_obstacle()), ("native", None));
        assert_eq!((ice(None).xdp(), ice(None).xdp_obstacle()), ("?", None));
        assert!(ice(None).xdp_note(2).unwrap().contains("only attaching one shows it"));
        let none = ice(Some(XdpFeatures::default()));
        assert_eq!(none.xdp(), "generic");
        assert_eq!(none.xdp_obstacle().unwrap().as_str(), "ice does not run XDP programs itself");
        let silent = ice(Some(XdpFeatures { sends_redirected: false, ..all }));
        let found = silent.xdp_obstacle();
        assert_eq!(found, None, "some drivers say that they send only once they have a program");
        let stripping = Facts { strips_tags: true, ..ice(Some(all)) };
        assert!(stripping.xdp_obstacle().unwrap().contains("'ethtool -K eth0 rxvlan off'"));
        let bond = Facts { driver: "bonding".to_owned(), ..ice(Some(all)) };
        assert!(bond.xdp_obstacle().unwrap().contains("members that it does not receive by"));
        let joining = Facts { joining: Some("rx-gro-hw"), ..ice(Some(all)) };
        assert!(joining.xdp_obstacle().unwrap().contains("'--path xdp' is faster"));
        let mut vlan = example(3, "eth0.7", Some(all));
        vlan.port.vlan_on = Some(1);
        assert!(vlan.xdp_obstacle().unwrap().contains("adopt that one, too"));
        assert_eq!(Facts { carrier: Some("eth0".to_owned()), ..vlan }.xdp_obstacle(), None);
    }

    #[test]
    fn what_becomes_of_frames_in_several_buffers_is_told_where_there_are_any() {
        let all = XdpFeatures {
            redirects: true,
            sends_redirected: true,
            receives_multi_buffer: true,
            sends_multi_buffer: true,
            zero_copy: false,
        };
        let at = |features, mtu| Facts { mtu, ..example(1, "eth0", features) };
        let of = |features| at(features, 9000).multi_buffer();
        assert_eq!(at(None, 1500).multi_buffer(), MultiBuffer::Never);
        assert_eq!((of(Some(all)), of(None)), (MultiBuffer::Forwarded, MultiBuffer::Unknown));
        assert_eq!(of(Some(XdpFeatures { sends_multi_buffer: false, ..all })), MultiBuffer::NotSent);
        assert_eq!(of(Some(XdpFeatures { receives_multi_buffer: false, ..all })), MultiBuffer::NotReceived);
        let yet = XdpFeatures { sends_redirected: false, sends_multi_buffer: false, ..all };
        assert_eq!(of(Some(yet)), MultiBuffer::Unknown, "virtio_net says so only with a program");
        assert_eq!(at(Some(all), 9000).multi_buffer_note(), None);
        assert!(at(Some(yet), 9000).multi_buffer_note().unwrap().starts_with("eth0: MTU 9000: only with"));
    }

    #[test]
    fn too_few_queues_are_told_with_the_command_that_makes_room() {
        let all = XdpFeatures { redirects: true, sends_redirected: true, ..XdpFeatures::default() };
        let virtio = |combined, most_combined| Facts {
            driver: "virtio_net".to_owned(),
            channels: Some(Channels { combined, most_combined }),
            ..example(1, "eth0", Some(all))
        };
        assert_eq!(virtio(2, 4).xdp_note(2), None);
        assert!(virtio(4, 4).xdp_note(2).unwrap().ends_with("(ethtool -L eth0 combined 2)"));
        assert!(virtio(1, 1).xdp_note(2).unwrap().ends_with("(give it 4 queue pairs)"));
    }
}
