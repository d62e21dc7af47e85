//! What joins the cards of a machine: hubs inside QEMU, or TAPs on bridges in a namespace of the rig.

use super::nic::{Model, Nic, Wire};
use crate::{Host, Result, Skip};
use std::path::Path;

/// Cards of a machine: each two that follow one another are joined.
pub(super) const CARDS: u32 = 4;

/// The longest packet that wires carry, in bytes.
const MOST_MTU: u32 = 9000;

/// Makes what QEMU doesn't make itself.
pub(super) fn make(host: &Host, nic: &Nic) -> Result<()> {
    if nic.wire == Wire::Hub {
        return Ok(());
    }
    if !Path::new("/dev/net/tun").exists() {
        return Err(Skip::KernelLacks("TAP (/dev/net/tun)".into()).into());
    }
    // No frames of the bridges' own.
    host.sysctl("net.ipv6.conf.default.disable_ipv6", "1")?;
    // Where netfilter sees what bridges pass on, it drops malformed packets and cuts off what short frames
    // are filled up with, which wires don't. Where it does not, these variables are missing.
    for family in ["ip", "ip6"] {
        let _ = host.sysctl(&format!("net.bridge.bridge-nf-call-{family}tables"), "0");
    }
    for wire in 0..CARDS / 2 {
        let bridge = format!("br{wire}");
        host.run(["ip", "link", "add", &bridge, "type", "bridge", "mcast_snooping", "0"])?;
        host.up(&bridge)?;
    }
    for card in 0..CARDS {
        let (tap, bridge) = (format!("tap{card}"), format!("br{}", card / 2));
        let queues: &[&str] = if nic.queues > 1 { &["multi_queue"] } else { &[] };
        host.command(["ip", "tuntap", "add", &tap, "mode", "tap", "vnet_hdr"]).args(queues).run()?;
        // As long as guests may set their own.
        host.mtu(&tap, MOST_MTU)?;
        host.run(["ip", "link", "set", &tap, "master", &bridge])?;
        host.up(&tap)?;
    }
    Ok(())
}

/// QEMU's words for the cards.
pub(super) fn words(nic: &Nic) -> Vec<String> {
    (0..CARDS).flat_map(|card| words_of(nic, card)).collect()
}

fn words_of(nic: &Nic, card: u32) -> Vec<String> {
    let mut words = match nic.wire {
        // A card is joined to a hub by a port of its own.
        Wire::Hub => vec!["-netdev".into(), format!("hubport,id=wire{card},hubid={}", card / 2)],
        Wire::Tap => {
            let queues = if nic.queues > 1 { format!(",queues={}", nic.queues) } else { String::new() };
            let tap = format!("tap,id=wire{card},ifname=tap{card},script=no,downscript=no,vhost=off{queues}");
            vec!["-netdev".into(), tap]
        }
    };
    // The guest doesn't boot from the network, which its firmware would take time to offer.
    let mut device = format!("{},netdev=wire{card},mac={},romfile=", nic.model.device(), mac(card));
    if nic.model == Model::VirtioNet {
        if nic.queues > 1 {
            // A vector for each queue, one for the control queue and one for changes of the configuration.
            device += &format!(",mq=on,vectors={}", 2 * nic.queues + 2);
        }
        if !nic.has_offloads {
            device += NO_OFFLOADS;
        }
    }
    words.extend(["-device".into(), device]);
    words
}

/// Properties of virtio-net without which neither side may leave anything to the other.
const NO_OFFLOADS: &str = ",csum=off,gso=off,guest_csum=off,guest_tso4=off,guest_tso6=off,guest_ecn=off,\
    guest_ufo=off,\
    host_tso4=off,host_tso6=off,host_ecn=off,host_ufo=off";

/// The address of a card; `guest/start.sh` names cards by it.
fn mac(card: u32) -> String {
    format!("52:54:00:00:00:{card:02x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(nic: &str) -> String {
        words(&nic.parse().unwrap()).join(" ")
    }

    #[test]
    fn two_cards_share_a_hub() {
        let words = said("e1000e");
        for (card, hub) in [(0, 0), (1, 0), (2, 1), (3, 1)] {
            assert!(words.contains(&format!("hubport,id=wire{card},hubid={hub} ")), "{words}");
        }
        assert!(words.contains("-device e1000e,netdev=wire3,mac=52:54:00:00:00:03"), "{words}");
    }

    #[test]
    fn queues_have_their_vectors() {
        let words = said("virtio-net,queues=4");
        assert!(words.contains("vhost=off,queues=4 "), "{words}");
        assert!(words.contains("mq=on,vectors=10"), "{words}");
        assert!(!said("virtio-net").contains("queues"));
    }

    #[test]
    fn offloads_are_left_as_they_are_or_switched_off_on_both_sides() {
        assert!(!said("virtio-net").contains("off,gso"));
        let words = said("virtio-net,offloads=off");
        assert!(words.contains("guest_tso4=off") && words.contains("host_tso4=off"), "{words}");
    }
}
