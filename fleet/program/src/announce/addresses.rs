//! Announces by addresses of an interface, which the routing daemon takes from there.

use std::io;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use artery_netlink::rtnetlink::Rtnetlink;
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketType};

use super::driver::Actuator;
use crate::service_address::ServiceAddress;

pub(crate) struct Addresses {
    device: String,
    /// The interface when this machine was last announced.
    index: Option<u32>,
    addresses: Vec<ServiceAddress>,
    rtnetlink: Rtnetlink,
    outcome: Option<Result<()>>,
}

impl Addresses {
    /// Finds whether the interface is there, and whether its addresses may be changed.
    pub(crate) fn open(device: &str, addresses: Vec<ServiceAddress>) -> Result<Addresses> {
        find_device(device)?;
        let mut rtnetlink = Rtnetlink::open().context("can't open a socket of rtnetlink")?;
        // No interface has the index 0: the right is checked, and nothing is deleted.
        let refusal = rtnetlink.delete_address(0, Ipv4Addr::LOCALHOST.into(), 8).err();
        ensure!(
            !refusal.is_some_and(|refusal| is_errno(&refusal, &[Errno::PERM, Errno::ACCESS])),
            "can't change addresses of '{device}': run as root or with CAP_NET_ADMIN"
        );
        Ok(Addresses { device: device.to_string(), index: None, addresses, rtnetlink, outcome: None })
    }

    /// Adds all that it can.
    fn announce(&mut self) -> Result<()> {
        let index = find_device(&self.device)?;
        self.index = Some(index);
        let there = self.rtnetlink.addresses().context("can't list addresses")?;
        let is_missing = |wanted: &ServiceAddress| {
            let ServiceAddress { address, len } = *wanted;
            !there.iter().any(|one| (one.index, one.address, one.length) == (index, address, len))
        };
        let missing: Vec<_> = self.addresses.iter().copied().filter(is_missing).collect();
        let mut result = Ok(());
        for ServiceAddress { address, len } in missing {
            let added = self.rtnetlink.add_address(index, address, len);
            let added = added.with_context(|| format!("can't add {address}/{len} to {}", self.device));
            result = result.and(added);
        }
        result
    }

    /// Deletes all that it can, also from the interface that had the name when this machine was announced.
    fn withdraw(&mut self) -> Result<()> {
        let now = match find_device(&self.device) {
            Err(error) if error.downcast_ref() == Some(&Errno::NODEV) => None,
            found => Some(found?),
        };
        let before = self.index.filter(|index| Some(*index) != now);
        let mut result = Ok(());
        for index in now.into_iter().chain(before) {
            for ServiceAddress { address, len } in self.addresses.clone() {
                let deleted = self.rtnetlink.delete_address(index, address, len);
                if let Err(error) = deleted
                    && !is_errno(&error, &[Errno::ADDRNOTAVAIL, Errno::NODEV])
                {
                    let what = format!("can't delete {address}/{len} from {}", self.device);
                    result = result.and(Err(anyhow::Error::new(error).context(what)));
                }
            }
        }
        result
    }
}

impl Actuator for Addresses {
    fn begin(&mut self, is_announced: bool, _: Instant) -> Result<()> {
        let result = if is_announced { self.announce() } else { self.withdraw() };
        if result.is_err() {
            // A socket that failed may be of no use any more.
            self.rtnetlink = Rtnetlink::open().context("can't open a socket of rtnetlink")?;
        }
        self.outcome = Some(result);
        Ok(())
    }

    fn poll(&mut self, _: Instant) -> Option<Result<()>> {
        self.outcome.take()
    }

    /// Others than this process change addresses, too.
    fn renewal(&self) -> Option<Duration> {
        Some(Duration::from_secs(1))
    }
}

fn find_device(name: &str) -> Result<u32> {
    let socket = rustix::net::socket(AddressFamily::INET, SocketType::DGRAM, None)?;
    let index = rustix::net::netdevice::name_to_index(socket, name);
    index.with_context(|| format!("can't find the interface '{name}' of announce.addresses"))
}

fn is_errno(error: &io::Error, numbers: &[Errno]) -> bool {
    numbers.iter().any(|errno| error.raw_os_error() == Some(errno.raw_os_error()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unknown_interface_is_named() {
        let error = Addresses::open("nowhere9", Vec::new()).err().unwrap();
        assert!(format!("{error:#}").contains("can't find the interface 'nowhere9'"), "{error:#}");
    }
}
