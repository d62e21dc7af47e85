//! Programs as filters of tc (cls_bpf), for kernels that have no TCX.
//!
//! A filter stays when its process is killed. So that others can tell, its name names a Unix socket of the
//! filter's own (abstract, which belongs to the network namespace and ends with the process): a filter whose
//! socket is gone is dead.
use artery_netlink::rtnetlink::Rtnetlink;
use netlink_packet_core::{NLM_F_CREATE, NLM_F_EXCL};
use netlink_packet_route::RouteNetlinkMessage;
use netlink_packet_route::tc::{
    TcAttribute, TcBpfFlags, TcFilterBpf, TcFilterBpfOption, TcMessage, TcOption,
};
use rustix::fd::{AsRawFd, OwnedFd};
use std::io;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::{Mutex, PoisonError};

/// What the names of our filters begin with; `tc filter show` prints them.
pub const FILTER_NAME: &str = "artery-";
/// What the name of a filter ends with whose queueing discipline was made for it.
const WITH_QDISC: &str = "-clsact";
/// Parents: where qdiscs for filters are, and the filters for frames that arrive (`TC_H_CLSACT`,
/// `TC_H_MIN_INGRESS`).
const CLSACT: u32 = 0xffff_fff1;
const INGRESS: u32 = 0xffff_fff2;
const EGRESS: u32 = 0xffff_fff3;
/// Our filters come first: frames that they leave to the kernel go on to all others.
const PRIORITY: u32 = 1;
const ALL_PROTOCOLS: u16 = libc::ETH_P_ALL as u16;
/// Handles that are tried until one is free.
const HANDLES: u32 = 1000;

/// A program as a filter for frames that arrive at an interface; removed when this is dropped.
#[derive(Debug)]
pub struct Filter {
    interface: u32,
    handle: u32,
    name: String,
    /// A socket in the interface's network namespace, which may not be that of the thread that drops this.
    netlink: Mutex<Rtnetlink>,
    /// Shows other processes that the filter has an owner.
    _owned: UnixDatagram,
}

impl Filter {
    /// Adds a filter in front of all others.
    pub(super) fn add(program: &OwnedFd, interface: u32) -> io::Result<Filter> {
        let mut netlink = Rtnetlink::open()?;
        remove_dead(&mut netlink, interface)?;
        let made_qdisc = add_qdisc(&mut netlink, interface)?;
        let mut tried =
            (1..=HANDLES).map(|handle| Filter::add_as(&mut netlink, program, interface, handle, made_qdisc));
        let added = tried.find(|result| !result.as_ref().is_err_and(is_taken));
        let added = added.unwrap_or_else(|| Err(io::Error::from_raw_os_error(libc::EEXIST)));
        if added.is_err() && made_qdisc {
            // The error above says more than that the qdisc stays.
            let _ = netlink.change(RouteNetlinkMessage::DelQueueDiscipline(qdisc(interface)), 0);
        }
        let (handle, name, owned) = added?;
        Ok(Filter { interface, handle, name, netlink: Mutex::new(netlink), _owned: owned })
    }

    fn add_as(
        netlink: &mut Rtnetlink,
        program: &OwnedFd,
        interface: u32,
        handle: u32,
        made_qdisc: bool,
    ) -> io::Result<(u32, String, UnixDatagram)> {
        let owner = format!("{FILTER_NAME}{}-{interface}-{handle}", crate::privsep::owner_id());
        let owned = UnixDatagram::bind_addr(&SocketAddr::from_abstract_name(&owner)?)?;
        let name = if made_qdisc { owner + WITH_QDISC } else { owner };
        let message = RouteNetlinkMessage::NewTrafficFilter(filter(interface, handle, &name, program));
        netlink.change(message, NLM_F_CREATE | NLM_F_EXCL)?;
        Ok((handle, name, owned))
    }

    /// Replaces the filter's program by another one.
    pub(super) fn replace(&self, program: &OwnedFd) -> io::Result<()> {
        let message = filter(self.interface, self.handle, &self.name, program);
        let mut netlink = self.netlink.lock().unwrap_or_else(PoisonError::into_inner);
        netlink.change(RouteNetlinkMessage::NewTrafficFilter(message), 0)
    }
}

impl Drop for Filter {
    fn drop(&mut self) {
        let netlink = self.netlink.get_mut().unwrap_or_else(PoisonError::into_inner);
        // An interface that is gone took the filter with it.
        let _ = remove(netlink, self.interface, self.handle, &self.name);
    }
}

/// Removes the filters at an interface whose processes ended without removing them; says how many there were.
pub fn remove_dead_filters(interface: u32) -> io::Result<usize> {
    remove_dead(&mut Rtnetlink::open()?, interface)
}

fn remove_dead(netlink: &mut Rtnetlink, interface: u32) -> io::Result<usize> {
    let mut removed = 0;
    for message in filters(netlink, interface, INGRESS)? {
        if let Some(name) = name(&message).filter(|name| is_dead(name)) {
            remove(netlink, interface, message.header.handle.into(), name)?;
            removed += 1;
        }
    }
    Ok(removed)
}

/// The processes that live and have filters at an interface, each once, by the number that is in the filter's
/// name: a process in a PID namespace has that namespace's number there.
pub fn living_filter_owners(interface: u32) -> io::Result<Vec<u32>> {
    let found = filters(&mut Rtnetlink::open()?, interface, INGRESS)?;
    let living = found.iter().filter_map(name).filter(|name| !is_dead(name));
    let mut owners: Vec<u32> = living.filter_map(owner).collect();
    owners.sort_unstable();
    owners.dedup();
    Ok(owners)
}

/// The process in the name of a filter, if it is one of ours.
fn owner(name: &str) -> Option<u32> {
    name.strip_prefix(FILTER_NAME)?.split('-').next()?.parse().ok()
}

/// Whether a filter is ours, and its owner's socket is gone.
fn is_dead(name: &str) -> bool {
    let owner = name.strip_suffix(WITH_QDISC).unwrap_or(name);
    let has_no_owner = || {
        let address = SocketAddr::from_abstract_name(owner)?;
        UnixDatagram::unbound()?.connect_addr(&address)
    };
    let refused = |error: io::Error| error.kind() == io::ErrorKind::ConnectionRefused;
    owner.starts_with(FILTER_NAME) && has_no_owner().is_err_and(refused)
}

/// Removes a filter, and the queueing discipline that was made for it if there is no other filter.
fn remove(netlink: &mut Rtnetlink, interface: u32, handle: u32, name: &str) -> io::Result<()> {
    let mut message = header(interface, handle, INGRESS);
    message.header.info = info();
    message.attributes = vec![TcAttribute::Kind(TcFilterBpf::KIND.to_owned())];
    netlink.change(RouteNetlinkMessage::DelTrafficFilter(message), 0)?;
    let is_last = |netlink: &mut Rtnetlink| -> io::Result<bool> {
        Ok(filters(netlink, interface, INGRESS)?.is_empty()
            && filters(netlink, interface, EGRESS)?.is_empty())
    };
    if name.ends_with(WITH_QDISC) && is_last(netlink)? {
        netlink.change(RouteNetlinkMessage::DelQueueDiscipline(qdisc(interface)), 0)?;
    }
    Ok(())
}

/// Makes room for filters; says whether there was none.
fn add_qdisc(netlink: &mut Rtnetlink, interface: u32) -> io::Result<bool> {
    let message = RouteNetlinkMessage::NewQueueDiscipline(qdisc(interface));
    match netlink.change(message, NLM_F_CREATE | NLM_F_EXCL) {
        Ok(()) => Ok(true),
        Err(error) if error.raw_os_error() == Some(libc::EEXIST) => Ok(false),
        Err(error) => Err(error),
    }
}

fn filters(netlink: &mut Rtnetlink, interface: u32, parent: u32) -> io::Result<Vec<TcMessage>> {
    let message = RouteNetlinkMessage::GetTrafficFilter(header(interface, 0, parent));
    // The kernel lists each priority, too, by an object without a handle.
    let of_filter = |message| match message {
        RouteNetlinkMessage::NewTrafficFilter(filter) if u32::from(filter.header.handle) != 0 => Some(filter),
        _ => None,
    };
    Ok(netlink.dump(message)?.into_iter().filter_map(of_filter).collect())
}

fn name(filter: &TcMessage) -> Option<&str> {
    let options = filter.attributes.iter().filter_map(|attribute| match attribute {
        TcAttribute::Options(options) => Some(options),
        _ => None,
    });
    options.flatten().find_map(|option| match option {
        TcOption::Bpf(TcFilterBpfOption::ProgName(name)) => Some(name.as_str()),
        _ => None,
    })
}

fn filter(interface: u32, handle: u32, name: &str, program: &OwnedFd) -> TcMessage {
    let mut message = header(interface, handle, INGRESS);
    message.header.info = info();
    let options = [
        TcFilterBpfOption::ProgFd(program.as_raw_fd() as u32),
        TcFilterBpfOption::ProgName(name.to_owned()),
        TcFilterBpfOption::Flags(TcBpfFlags::DirectAction),
    ];
    message.attributes = vec![
        TcAttribute::Kind(TcFilterBpf::KIND.to_owned()),
        TcAttribute::Options(options.map(TcOption::Bpf).to_vec()),
    ];
    message
}

/// Priority, and the protocol in network order.
fn info() -> u32 {
    PRIORITY << 16 | u32::from(ALL_PROTOCOLS.to_be())
}

fn qdisc(interface: u32) -> TcMessage {
    let mut message = header(interface, CLSACT & 0xffff_0000, CLSACT);
    message.attributes = vec![TcAttribute::Kind("clsact".to_owned())];
    message
}

fn header(interface: u32, handle: u32, parent: u32) -> TcMessage {
    let mut message = TcMessage::with_index(interface.cast_signed());
    message.header.handle = handle.into();
    message.header.parent = parent.into();
    message
}

/// Whether an error says that another filter has the handle.
fn is_taken(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::EEXIST | libc::EADDRINUSE))
}

#[cfg(test)]
pub(super) mod tests {
    use super::super::{Hook, instruction, load};
    use super::*;
    use crate::Interface;
    use crate::namespace::{in_namespace, run};

    /// A program that lets the next filter decide.
    pub(in super::super) fn pass() -> OwnedFd {
        let instructions = [instruction(0xb7, 0, 0, 0, -1), instruction(0x95, 0, 0, 0, 0)];
        load(Hook::TcIngress, &instructions).unwrap()
    }

    fn names(interface: u32) -> Vec<String> {
        let found = filters(&mut Rtnetlink::open().unwrap(), interface, INGRESS).unwrap();
        found.iter().filter_map(name).map(str::to_owned).collect()
    }

    fn has_qdisc(interface: u32) -> bool {
        let message = RouteNetlinkMessage::GetQueueDiscipline(header(interface, 0, 0));
        let found = Rtnetlink::open().unwrap().dump(message).unwrap();
        let is_clsact = |message: &RouteNetlinkMessage| match message {
            RouteNetlinkMessage::NewQueueDiscipline(qdisc) => {
                qdisc.attributes.contains(&TcAttribute::Kind("clsact".to_owned()))
            }
            _ => false,
        };
        found.iter().any(is_clsact)
    }

    #[test]
    fn a_filter_and_the_qdisc_made_for_it_leave_when_it_is_dropped() {
        in_namespace(|| {
            run("ip link add left type veth peer name right");
            let left = Interface::find("left").unwrap().index;
            let (first, second) = (Filter::add(&pass(), left).unwrap(), Filter::add(&pass(), left).unwrap());
            let start = format!("{FILTER_NAME}{}-{left}-", std::process::id());
            let mut found = names(left);
            found.sort();
            assert_eq!(found, [format!("{start}1{WITH_QDISC}"), format!("{start}2")]);
            first.replace(&pass()).unwrap();
            drop(first);
            assert_eq!((names(left).len(), has_qdisc(left)), (1, true), "another filter is there");
            drop(second);
            assert_eq!(names(left).len(), 0);
            run("tc qdisc del dev left clsact");

            let only = Filter::add(&pass(), left).unwrap();
            drop(only);
            assert!(!has_qdisc(left));
            run("tc qdisc add dev left clsact");
            drop(Filter::add(&pass(), left).unwrap());
            assert!(has_qdisc(left), "it was there before");
        });
    }

    #[test]
    fn dead_filters_are_removed_and_those_of_others_stay() {
        in_namespace(|| {
            run("ip link add left type veth peer name right");
            let left = Interface::find("left").unwrap().index;
            run("tc qdisc add dev left clsact");
            run("tc filter add dev left ingress pref 7 protocol ip u32 match u8 7 0xff at 8");
            let living = Filter::add(&pass(), left).unwrap();
            let mut netlink = Rtnetlink::open().unwrap();
            // As one that a killed process leaves.
            let program = pass();
            let message = filter(left, 99, "artery-4000000000-1-99", &program);
            let message = RouteNetlinkMessage::NewTrafficFilter(message);
            netlink.change(message, NLM_F_CREATE | NLM_F_EXCL).unwrap();
            assert_eq!(names(left).len(), 2);
            assert_eq!(living_filter_owners(left).unwrap(), [std::process::id()]);
            assert_eq!(remove_dead_filters(left).unwrap(), 1);
            assert_eq!((names(left).len(), remove_dead_filters(left).unwrap()), (1, 0));
            drop(living);
            assert_eq!((names(left).len(), living_filter_owners(left).unwrap().len()), (0, 0));
            assert!(
                !filters(&mut netlink, left, INGRESS).unwrap().is_empty(),
                "the filter of another program stays"
            );
            let error = Filter::add(&pass(), 9999).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::ENODEV), "{error}");
        });
    }
}
