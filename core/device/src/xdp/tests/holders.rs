//! Which process has an interface, and which has it next.
use super::*;
use crate::testing::{hold, is_alone, start_holder, succeeds_alone};

#[test]
fn interfaces_that_it_is_not_for_are_refused_with_a_remedy() {
    in_namespace(|| {
        run("ip link add left mtu 9000 type veth peer name right");
        let pool = pool();
        let refusal = || {
            XdpPort::open(&Interface::find("left").unwrap(), &settings(Attach::Best), 1, pool).unwrap_err()
        };
        assert_eq!(refusal(), DeviceError::Down { name: "left".into() });
        run("ip link set left up");
        assert_eq!(
            refusal().to_string(),
            "left: MTU 9000 is too long for AF_XDP, whose frames here hold 1774 bytes; \
             'ip link set left mtu 1774', or use METHOD LINUX"
        );
        run("ip link set left mtu 1774");
        run("ip link set right mtu 1774");
        bring_up();
        wait_for_carriers();
        let port = open("left", &settings(Attach::Best), pool);
        let mut rx = port.rx(0, &RxSettings::default()).unwrap();
        let mut sent = batch_of(pool, [frame(BROADCAST, 1, 1788)]);
        packet_tx("right").transmit(&mut sent).unwrap();
        let got = receive_until(&mut rx, pool, is_ours);
        assert!(got.iter().any(|packet| packet.data() == frame(BROADCAST, 1, 1788)), "the longest fits");
    });
}

#[test]
fn a_second_router_is_told_which_process_has_the_interface() {
    on_a_cable(|pool| {
        let first = open("left", &settings(Attach::Best), pool);
        let second = XdpPort::open(&Interface::find("left").unwrap(), &settings(Attach::Best), 1, pool);
        let message = second.unwrap_err().to_string();
        let start = format!("left: in use by AF_XDP of process {} (", std::process::id());
        assert!(message.starts_with(&start) && message.ends_with("METHOD LINUX"), "{message}");
        let other = open("right", &settings(Attach::Best), pool);
        drop((first, other));
        open("left", &settings(Attach::Best), pool);
    });
}

#[test]
fn another_program_at_the_interface_is_not_pushed_aside() {
    in_namespace(|| {
        cable();
        let interface = Interface::find("left").unwrap();
        let _theirs = program::RedirectProgram::attach(&interface, 1, Attach::Best).unwrap();
        let error = XdpPort::open(&interface, &settings(Attach::Best), 1, pool()).unwrap_err();
        let DeviceError::Occupied { by, .. } = error else { panic!("{error}") };
        assert_eq!(by, "another XDP program is attached to it");
    });
}

#[test]
fn what_is_busy_is_tried_again_with_growing_pauses_and_not_for_ever() {
    fn busy<T>() -> io::Result<T> {
        Err(io::Error::from_raw_os_error(libc::EBUSY))
    }
    let mut pauses = Vec::new();
    let mut left = 4;
    let on_fourth_try = || {
        left -= 1;
        if left > 0 { busy() } else { Ok(7) }
    };
    let result = retry(|pause| pauses.push(pause.as_millis()), on_fourth_try);
    assert_eq!((result.unwrap(), pauses), (7, vec![1, 2, 4]));
    let mut total = Duration::ZERO;
    let result = retry(|pause| total += pause, busy::<()>);
    assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EBUSY));
    assert!(total >= PATIENCE && total < PATIENCE + LONGEST_PAUSE, "{total:?}");
    let mut calls = 0;
    let other: io::Result<()> = retry(|_| calls += 1, || Err(io::Error::from_raw_os_error(libc::EINVAL)));
    assert_eq!((other.unwrap_err().raw_os_error(), calls), (Some(libc::EINVAL), 0));
}

#[test]
fn a_queue_that_is_let_go_meanwhile_is_taken() {
    in_namespace(|| {
        cable();
        let (pool, interface) = (pool(), Interface::find("left").unwrap());
        let plan = socket::SocketPlan { ring: 64, zero_copy: true, busy_poll: None };
        let theirs = socket::Socket::open(&interface, 0, pool, plan).unwrap();
        let waits = XdpPort::open(&interface, &settings(Attach::Best), 1, pool).unwrap_err();
        assert!(matches!(waits, DeviceError::Occupied { .. }), "{waits}");
        std::thread::scope(|scope| {
            let opening = scope.spawn(|| {
                loop {
                    match XdpPort::open(&interface, &settings(Attach::Best), 1, pool) {
                        // The other thread was just looking.
                        Err(DeviceError::InUse { .. }) => {}
                        result => return result.map(drop),
                    }
                }
            });
            // Its lock is the first thing it takes, the queue the last.
            while lock::InterfaceLock::acquire(&interface).is_ok() {
                assert!(!opening.is_finished());
            }
            drop(theirs);
            assert_eq!(opening.join().unwrap(), Ok(()));
        });
    });
}

#[test]
fn the_host_has_its_interface_back_when_the_holder_is_killed() {
    if is_alone() {
        let port = open("left", &settings(Attach::Best), pool());
        return hold(&mut port.rx(0, &RxSettings::default()).unwrap());
    }
    in_namespace(|| {
        let host = neighbor();
        assert!(is_answered(&host), "the host answers at first");
        let mut holder = start_holder(the_host_has_its_interface_back_when_the_holder_is_killed);
        assert!(!host.pings("10.1.0.1"), "the host gets no frames");
        let second = XdpPort::open(&Interface::find("left").unwrap(), &settings(Attach::Best), 1, pool());
        let Err(DeviceError::InUse { pid, .. }) = second else { panic!("{second:?}") };
        assert_eq!(pid, holder.id());
        holder.kill().unwrap();
        holder.wait().unwrap();
        assert!(is_answered(&host), "it answers again when the holder was killed");
        // Its lock file is still there, and its queue may be busy for a moment.
        open("left", &settings(Attach::Best), pool());
    });
}

#[test]
fn a_limit_of_locked_memory_is_raised_or_told() {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    use rustix::thread::{CapabilitySet, capabilities, set_capabilities};
    // In a process of its own, since a limit is that of all threads.
    if !is_alone() {
        return succeeds_alone(a_limit_of_locked_memory_is_raised_or_told);
    }
    in_namespace(|| {
        cable();
        let mut sets = capabilities(None).unwrap();
        sets.effective.remove(CapabilitySet::IPC_LOCK | CapabilitySet::SYS_RESOURCE);
        set_capabilities(None, sets).unwrap();
        let pool = Pool::new(1024, 1).unwrap();
        let (small, hard) = (Some(1 << 20), getrlimit(Resource::Memlock).maximum);
        assert!(hard.is_none_or(|hard| hard > 2 << 20), "a test for machines with a higher limit");
        setrlimit(Resource::Memlock, Rlimit { current: small, maximum: hard }).unwrap();
        open("left", &settings(Attach::Best), pool);
        assert_eq!(getrlimit(Resource::Memlock).current, hard, "it was raised as far as may be");
        setrlimit(Resource::Memlock, Rlimit { current: small, maximum: small }).unwrap();
        let error =
            XdpPort::open(&Interface::find("left").unwrap(), &settings(Attach::Best), 1, pool).unwrap_err();
        let expected = DeviceError::MemoryLimit { name: "left".into(), bytes: 1024 * 2048, limit: 1 << 20 };
        assert_eq!(error, expected, "{error}");
    });
}
