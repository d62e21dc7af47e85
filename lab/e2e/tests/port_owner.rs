//! One process at a time forwards by an interface, whatever command it was started by; those that only look
//! don't count.
use crate::support::{
    FAR, Hosts, Running, SOON, artery_on, end, start, until, until_answered, wire, with_hosts,
};
use artery_rig::program::artery;
use artery_rig::{CommandOutput, Host, Result, Signal};

/// Commands that forward between both ports of `r`, beside `artery run`.
const OTHERS: [&[&str]; 2] = [
    &["router", "--no-host", "--port", "eth0=10.0.1.1/24", "--port", "eth1=10.0.2.1/24"],
    &["adopt", "--path", "tc", "eth0", "eth1"],
];

/// What a command says that must not start.
fn refused(host: &Host, words: &[&str]) -> Result<CommandOutput> {
    let output = Running::spawn(host, words)?.wait(SOON)?;
    assert_eq!(output.code(), Some(1), "{words:?}: {}", output.stderr);
    Ok(output)
}

fn is_owned_by(said: &str, port: &str, command: &str, pid: u32) -> bool {
    said.contains(&format!("another router has {port} as its port: '{command}"))
        && said.contains(&format!("(pid {pid})"))
}

/// Pings the far host: each answer came once.
fn nothing_is_doubled(net: &Hosts) -> Result<()> {
    let ping = net.a.command(["ping", "-c", "5", "-i", "0.05", FAR]).output()?;
    assert!(ping.stdout.contains(" 0% packet loss") && !ping.stdout.contains("DUP!"), "{}", ping.stdout);
    Ok(())
}

#[test]
fn a_second_process_is_refused_with_the_name_of_the_first() {
    with_hosts("owner-second", |net| {
        let wire = wire("LINUX");
        let mut first = start(&net.r, &wire, &[])?;
        until_answered(&net.a, FAR, &mut first)?;
        let pid = first.id();
        let again = refused(&net.r, &["run", "-e", &wire])?;
        for port in ["eth0", "eth1"] {
            assert!(is_owned_by(&again.stderr, port, "artery run -e ", pid), "{port}: {}", again.stderr);
        }
        // One way is enough to send frames twice.
        let half =
            refused(&net.r, &["run", "-e", "FromDevice(eth0, PROMISC true) -> Queue -> ToDevice(eth1)"])?;
        assert!(is_owned_by(&half.stderr, "eth1", "artery run", pid), "{}", half.stderr);
        for words in OTHERS {
            let other = refused(&net.r, words)?;
            assert!(is_owned_by(&other.stderr, "eth0", "artery run", pid), "{words:?}: {}", other.stderr);
        }
        // From a container, which does not see the owner's process.
        let words = ["unshare", "--pid", "--fork", "--mount-proc"];
        let inside = net.r.command(words).arg(artery()?).args(["run", "-e", &wire]).output()?;
        assert_eq!(inside.code(), Some(1), "{}", inside.stderr);
        let expected = "another router has eth0 as its port: a process in another PID namespace";
        assert!(inside.stderr.contains(expected), "{}", inside.stderr);
        nothing_is_doubled(net)?;
        end(first).map(drop)
    });
}

#[test]
fn a_run_is_refused_where_other_commands_have_the_ports() {
    with_hosts("owner-others", |net| {
        for words in OTHERS {
            let mut other = Running::spawn(&net.r, words)?;
            let owner = format!("artery {}", words[0]);
            let pid = other.id();
            // Whoever asked before would be the owner.
            until(SOON, || {
                let sockets = net.r.run(["cat", "/proc/thread-self/net/unix"])?.stdout;
                Ok(["@artery/port/", "@artery/adopted/"]
                    .map(|name| sockets.matches(name).count())
                    .iter()
                    .max()
                    >= Some(&2))
            })?;
            let said = refused(&net.r, &["run", "-e", &wire("LINUX")])?.stderr;
            for port in ["eth0", "eth1"] {
                assert!(is_owned_by(&said, port, &owner, pid), "{words:?}: {port}: {said}");
            }
            other.signal(Signal::KILL);
            other.wait(SOON)?;
        }
        // The ports are free again.
        let mut run = start(&net.r, &wire("LINUX"), &[])?;
        until_answered(&net.a, FAR, &mut run)?;
        end(run).map(drop)
    });
}

/// A router whose port goes while it is stopped, and comes back as the port of another process. `stays` and
/// `returns` are what it says then, and when that one has ended.
fn port_returns(net: &Hosts, router: &mut Running, stays: &str, returns: &str) -> Result<()> {
    router.signal(Signal::STOP);
    net.r.run(["ip", "link", "delete", "eth1"])?;
    net.r.run(["ip", "link", "add", "eth1", "type", "veth", "peer", "name", "end1"])?;
    for end in ["eth1", "end1"] {
        net.r.run(["ip", "link", "set", end, "up"])?;
    }
    let other = start(&net.r, "Idle -> Queue -> ToDevice(eth1)", &[])?;
    router.signal(Signal::CONT);
    let owner = "eth1 as its port: 'artery run";
    router.wait_for(&format!("{stays}another router has {owner}"), SOON)?;
    assert!(!router.stderr_so_far().contains(returns), "{}", router.stderr_so_far());
    end(other)?;
    router.wait_for(returns, SOON)?;
    let late = refused(&net.r, &["run", "-e", "Idle -> Queue -> ToDevice(eth1)"])?;
    assert!(is_owned_by(&late.stderr, "eth1", "artery", router.id()), "{}", late.stderr);
    Ok(())
}

#[test]
fn a_port_that_returns_and_is_anothers_stays_absent_until_that_one_has_ended() {
    with_hosts("owner-returned", |net| {
        let mut router = Running::spawn(&net.r, OTHERS[0])?;
        let shows = |router: &Running, state: &str| {
            let shown = router.call(&["show", "ports"])?.stdout;
            Ok(shown.lines().any(|line| line.contains("eth1") && line.contains(state)))
        };
        until(SOON, || shows(&router, "up"))?;
        let returns = "eth1: there is an interface 'eth1' again";
        port_returns(net, &mut router, "eth1: the port stays absent: ", returns)?;
        until(SOON, || shows(&router, "up"))?;
        router.end()
    });
}

#[test]
fn an_adopted_port_that_returns_and_is_anothers_stays_with_the_kernel_until_that_one_has_ended() {
    with_hosts("owner-adopted", |net| {
        let mut adopted = Running::spawn(&net.r, OTHERS[1])?;
        adopted.wait_for("forwarding", SOON)?;
        let stays = "eth1: the interface has come back, and its traffic stays with the kernel: ";
        let returns = "eth1: the interface has come back, and is adopted again";
        port_returns(net, &mut adopted, stays, returns)?;
        adopted.end()
    });
}

#[test]
fn an_owner_that_was_killed_leaves_nothing_locked_and_lookers_own_nothing() {
    with_hosts("owner-killed", |net| {
        let look = "FromDevice(eth0, SNIFFER true, PROMISC true) -> seen :: Counter -> Discard;";
        let lookers = [start(&net.r, look, &[])?, start(&net.r, look, &[])?];
        let mut first = start(&net.r, &wire("LINUX"), &[])?;
        until_answered(&net.a, FAR, &mut first)?;
        first.signal(Signal::KILL);
        first.wait(SOON)?;
        let mut second = start(&net.r, &wire("LINUX"), &[])?;
        until_answered(&net.a, FAR, &mut second)?;
        let late = start(&net.r, look, &[])?;
        nothing_is_doubled(net)?;
        lookers.into_iter().chain([late, second]).try_for_each(|process| end(process).map(drop))
    });
}

#[test]
fn one_process_goes_on_with_its_ports_whatever_replaces_its_configuration() {
    with_hosts("owner-replaced", |net| {
        let mut router = Running::run(&net.r, &wire("LINUX"), &["-R"])?;
        router.until_answered(&net.a, FAR)?;
        // One port, and the other one given up.
        let two = "FromDevice(eth0, PROMISC true, SNIFFER false, METHOD LINUX) -> Discard;
            Idle -> Queue -> ToDevice(eth0);";
        for config in [&wire("LINUX"), two, &wire("LINUX"), two] {
            router.replace(config)?;
        }
        let other = "Idle -> Queue -> ToDevice(eth1)";
        until(SOON, || {
            let output = artery_on(&net.r, ["run", "-q", "-e", other])?.output()?;
            Ok(output.code() == Some(0))
        })?;
        let taken = refused(&net.r, &["run", "-e", "Idle -> Queue -> ToDevice(eth0)"])?;
        assert!(is_owned_by(&taken.stderr, "eth0", "artery run", router.process.id()), "{}", taken.stderr);
        router.replace(&wire("LINUX"))?;
        router.until_answered(&net.a, FAR)?;
        router.end()
    });
}
