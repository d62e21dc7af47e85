//! Network cards of a machine: kind, queues, offloads, and what they are wired by.

use anyhow::{Context as _, bail};
use std::fmt;
use std::str::FromStr;

/// How the network cards of a machine are made. All cards of a machine are of one kind.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Nic {
    /// The model of the card.
    pub model: Model,
    /// Pairs of queues; more than one with virtio-net on TAPs only.
    pub queues: u32,
    /// Whether the machine may leave checksums and segments to the card, and the card to the machine.
    pub has_offloads: bool,
    /// What joins two cards.
    pub wire: Wire,
}

/// A network card that QEMU emulates.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Model {
    /// The card of KVM's guests, driver virtio_net.
    VirtioNet,
    /// Intel's 82574L, driver e1000e.
    E1000e,
    /// VMware's card, driver vmxnet3.
    Vmxnet3,
}

/// What joins two cards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Wire {
    /// A hub inside QEMU: one queue, whole checksums, no segments.
    Hub,
    /// Two TAPs with `vnet_hdr` on a bridge, in a namespace of the rig: unfinished
    /// checksums and segments pass.
    Tap,
}

impl Model {
    /// The kernel's module for it.
    pub fn driver(self) -> &'static str {
        match self {
            Model::VirtioNet => "virtio_net",
            Model::E1000e => "e1000e",
            Model::Vmxnet3 => "vmxnet3",
        }
    }

    /// QEMU's name of the device.
    pub(super) fn device(self) -> &'static str {
        match self {
            Model::VirtioNet => "virtio-net-pci",
            Model::E1000e => "e1000e",
            Model::Vmxnet3 => "vmxnet3",
        }
    }

    fn name(self) -> &'static str {
        match self {
            Model::VirtioNet => "virtio-net",
            Model::E1000e => "e1000e",
            Model::Vmxnet3 => "vmxnet3",
        }
    }

    /// As tried: virtio-net as most guests have it, the others on hubs.
    fn usual_wire(self) -> Wire {
        match self {
            Model::VirtioNet => Wire::Tap,
            Model::E1000e | Model::Vmxnet3 => Wire::Hub,
        }
    }
}

/// What a description may say, for errors and help.
const SYNTAX: &str = "virtio-net, e1000e or vmxnet3, then any of ,queues=N ,offloads=on|off ,wire=tap|hub";

impl FromStr for Nic {
    type Err = anyhow::Error;

    fn from_str(text: &str) -> anyhow::Result<Nic> {
        let mut words = text.split(',');
        let name = words.next().unwrap_or_default();
        let known = [Model::VirtioNet, Model::E1000e, Model::Vmxnet3];
        let Some(model) = known.into_iter().find(|model| model.name() == name) else {
            bail!("{name:?} is not a network card: write {SYNTAX}");
        };
        let mut nic = Nic { model, queues: 1, has_offloads: true, wire: model.usual_wire() };
        for word in words {
            nic.set(word)?;
        }
        nic.check()?;
        Ok(nic)
    }
}

impl Nic {
    fn set(&mut self, word: &str) -> anyhow::Result<()> {
        match word.split_once('=') {
            Some(("queues", count)) => {
                self.queues =
                    count.parse().with_context(|| format!("{count:?} is not a number of queues"))?;
            }
            Some(("offloads", "on")) => self.has_offloads = true,
            Some(("offloads", "off")) => self.has_offloads = false,
            Some(("wire", "tap")) => self.wire = Wire::Tap,
            Some(("wire", "hub")) => self.wire = Wire::Hub,
            _ => bail!("{word:?} says nothing of a network card: write {SYNTAX}"),
        }
        Ok(())
    }

    fn check(&self) -> anyhow::Result<()> {
        if !(1..=16).contains(&self.queues) {
            bail!("a card has 1 to 16 queues, not {}", self.queues);
        }
        if self.queues > 1 && (self.model, self.wire) != (Model::VirtioNet, Wire::Tap) {
            bail!("only virtio-net with wire=tap has more than one queue here");
        }
        Ok(())
    }
}

impl fmt::Display for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.model.name())?;
        if self.queues > 1 {
            write!(f, ",queues={}", self.queues)?;
        }
        if !self.has_offloads {
            f.write_str(",offloads=off")?;
        }
        match self.wire {
            wire if wire == self.model.usual_wire() => Ok(()),
            Wire::Tap => f.write_str(",wire=tap"),
            Wire::Hub => f.write_str(",wire=hub"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_description_is_printed_as_it_is_typed() {
        for text in [
            "virtio-net",
            "virtio-net,queues=4",
            "virtio-net,queues=2,offloads=off",
            "virtio-net,wire=hub",
            "e1000e",
            "e1000e,wire=tap",
            "vmxnet3,offloads=off",
        ] {
            assert_eq!(text.parse::<Nic>().unwrap().to_string(), text);
        }
    }

    #[test]
    fn what_is_usual_is_left_out() {
        for (text, short) in [("virtio-net,queues=1,wire=tap", "virtio-net"), ("e1000e,wire=hub", "e1000e")] {
            assert_eq!(text.parse::<Nic>().unwrap().to_string(), short);
        }
    }

    #[test]
    fn what_cannot_be_is_refused() {
        for bad in [
            "",
            "rtl8139",
            "virtio-net,queues=0",
            "virtio-net,queues=17",
            "virtio-net,queues=two",
            "virtio-net,queues=2,wire=hub",
            "e1000e,queues=2",
            "virtio-net,offloads=maybe",
            "virtio-net,,",
        ] {
            assert!(bad.parse::<Nic>().is_err(), "{bad:?}");
        }
    }
}
