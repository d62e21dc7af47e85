//! Compares the settings of open ports with those that are requested.
use crate::tap::TapDevice;
use crate::{DeviceError, RxSettings, TapSettings, TxSettings};

/// How a TAP device is set up, and the settings that the replacing graph requests.
#[derive(Debug)]
pub(super) struct TapUse {
    pub(super) now: TapSettings,
    wanted: Option<TapSettings>,
}

impl TapUse {
    pub(super) fn new(now: TapSettings) -> TapUse {
        TapUse { now, wanted: None }
    }

    /// Checks that the device has the requested settings, or can take them on.
    pub(super) fn agree(
        &mut self,
        asked: &TapSettings,
        may_change: bool,
        same: impl Fn(&[(&'static str, String)], &[(&'static str, String)]) -> Result<(), DeviceError>,
    ) -> Result<(), DeviceError> {
        match &self.wanted {
            None if may_change => {
                same(&tap_kind(&self.now), &tap_kind(asked))?;
                self.wanted = Some(asked.clone());
                Ok(())
            }
            wanted => {
                let known = wanted.as_ref().unwrap_or(&self.now);
                same(&tap_kind(known), &tap_kind(asked))?;
                same(&tap_settings(known), &tap_settings(asked))
            }
        }
    }

    /// Applies the requested change, or drops it.
    pub(super) fn end_change(&mut self, device: &TapDevice, is_replaced: bool) -> Result<(), DeviceError> {
        let Some(wanted) = self.wanted.take().filter(|wanted| is_replaced && *wanted != self.now) else {
            return Ok(());
        };
        let before = std::mem::replace(&mut self.now, wanted);
        device.change(&before, &self.now)
    }
}

/// The settings with the names that messages give them.
pub(super) fn rx_settings(s: &RxSettings) -> [(&'static str, String); 8] {
    [
        ("METHOD", s.method.name().to_owned()),
        ("BUSY_POLL", s.busy_poll.map_or("off".to_owned(), |poll| poll.microseconds.to_string())),
        ("PROMISC", s.promiscuous.to_string()),
        ("SNIFFER", s.hide.name().to_owned()),
        ("OUTBOUND", s.outbound.to_string()),
        ("TIMESTAMP", s.timestamps.to_string()),
        ("queues", s.queues.to_string()),
        ("ring size", s.ring_bytes.to_string()),
    ]
}

pub(super) fn tx_settings(s: &TxSettings) -> [(&'static str, String); 3] {
    [
        ("METHOD", s.method.name().to_owned()),
        ("qdisc bypass", s.qdisc_bypass.to_string()),
        ("queues", s.queues.to_string()),
    ]
}

/// What a TAP device keeps as long as it lives.
fn tap_kind(s: &TapSettings) -> [(&'static str, String); 3] {
    [
        ("kind", if s.ethernet { "TAP" } else { "TUN" }.to_owned()),
        ("queues", s.queues.to_string()),
        ("HOST_PORT", s.is_host_port.to_string()),
    ]
}

fn tap_settings(s: &TapSettings) -> [(&'static str, String); 4] {
    [
        ("addresses", format!("{:?}", s.addresses)),
        ("Ethernet address", format!("{:02x?}", s.mac)),
        ("MTU", s.mtu.map_or("default".to_owned(), |mtu| mtu.to_string())),
        ("routes", format!("{:?}", s.routes)),
    ]
}
