//! What keeps others from changing a tree: guards, and a filter.

use super::net::{Net, millis, seconds};
use artery_l2::stp::{Link, PortSettings, PortState, Role, Settings, StpError, Version};
use artery_wire::EtherAddr;

/// Two bridges, the second of which would be the root; the first one's port is so set.
fn pair(settings: PortSettings) -> Net {
    let mut net = Net::new();
    net.add(Settings::default());
    net.add(Settings { priority: 4096, ..Settings::default() });
    let ends = vec![net.port(0, settings), net.port(1, PortSettings::default())];
    net.cable_between(ends, millis(1));
    net.all_up();
    net
}

#[test]
fn a_bridge_where_none_may_be_shuts_the_port_until_the_link_goes_down() {
    let mut net = pair(PortSettings { bpdu_guard: true, edge: true, ..PortSettings::default() });
    assert_eq!(net.state((0, 1)), PortState::Forwarding, "an edge port begins at once");
    net.run(seconds(1));
    let port = net.bridges[0].port(1).unwrap();
    assert!(port.is_shut && port.counters.shut == 1);
    assert_eq!((port.state_name(), net.state((0, 1))), ("disabled", PortState::Discarding));
    net.run(seconds(300));
    assert!(net.bridges[0].port(1).unwrap().is_shut);
    assert_eq!(net.bridges[0].view().root.port, None);

    net.deaf = vec![(0, 1)];
    net.down(0);
    net.up(0);
    assert_eq!(net.state((0, 1)), PortState::Forwarding);
}

#[test]
fn a_port_that_may_not_lead_to_the_root_forwards_nothing_while_a_better_root_is_behind_it() {
    let mut net = pair(PortSettings { root_guard: true, ..PortSettings::default() });
    net.run(seconds(100));
    let port = net.bridges[0].port(1).unwrap();
    assert_eq!((port.role, port.state), (Role::Designated, PortState::Discarding));
    assert!(port.counters.held > 10);
    let settings = Settings { priority: 61440, ..Settings::default() };
    net.act(1, |bridge, now, actions| bridge.set_settings(settings, now, actions).unwrap());
    net.run(seconds(10));
    assert_eq!(net.state((0, 1)), PortState::Forwarding, "it opens by itself when that is over");
    assert_eq!(net.bridges[1].view().root.id, net.bridges[0].view().id);
}

#[test]
fn a_filtered_port_neither_says_nor_hears_anything() {
    let mut net = pair(PortSettings { bpdu_filter: true, ..PortSettings::default() });
    net.run(seconds(60));
    let port = net.bridges[0].port(1).unwrap();
    assert_eq!((port.counters.sent, port.role, port.is_edge), (0, Role::Designated, true));
    assert!(port.counters.ignored > 10 && net.bridges[0].view().root.port.is_none());
}

#[test]
fn a_port_that_hears_itself_forwards_nothing() {
    let mut net = Net::of(1, Settings::default());
    let looped = net.cable(&[0], millis(1));
    net.up(looped);
    net.run(seconds(100));
    assert_eq!(net.state((0, 1)), PortState::Discarding);
    net.deaf = vec![(0, 1)];
    net.run(seconds(30));
    assert_eq!(net.state((0, 1)), PortState::Forwarding);
}

#[test]
fn two_ports_of_one_bridge_on_a_cable_are_one_and_its_backup() {
    let mut net = Net::of(1, Settings::default());
    let looped = net.cable(&[0, 0], millis(1));
    net.up(looped);
    net.run(seconds(60));
    let roles: Vec<_> = net.bridges[0].view().ports.iter().map(|port| (port.role, port.state)).collect();
    let wanted = [(Role::Designated, PortState::Forwarding), (Role::Backup, PortState::Discarding)];
    assert_eq!(roles, wanted);
}

#[test]
fn what_cannot_be_is_refused_and_changes_nothing() {
    let mut net = pair(PortSettings::default());
    net.run(seconds(5));
    let before = net.describe();
    let (now, mut actions) = (net.now, Vec::new());
    let bridge = &mut net.bridges[0];
    let (address, port) = (EtherAddr([2, 0, 0, 0, 0, 7]), PortSettings::default());
    let dear = PortSettings { cost: Some(70_000), ..port };
    assert_eq!(bridge.add_port(1, address, port), Err(StpError::PortExists(1)));
    assert_eq!(bridge.add_port(0, address, port), Err(StpError::PortNumber(0)));
    assert_eq!(bridge.add_port(4096, address, port), Err(StpError::PortNumber(4096)));
    assert_eq!(bridge.link_up(9, Link::GIGABIT, now, &mut actions), Err(StpError::NoSuchPort(9)));
    assert_eq!(bridge.receive_frame(9, &[], now, &mut actions), Err(StpError::NoSuchPort(9)));
    let wrong = Settings { max_age: 5, ..Settings::default() };
    assert_eq!(bridge.set_settings(wrong, now, &mut actions), Err(StpError::MaxAge(5)));
    assert_eq!(actions, []);
    assert_eq!(net.describe(), before);

    let bridge = &mut net.bridges[0];
    bridge.set_port(1, dear, now, &mut actions).unwrap();
    let old = Settings { version: Version::Stp, ..Settings::default() };
    assert_eq!(bridge.set_settings(old, now, &mut actions), Err(StpError::Cost(70_000)));
}

#[test]
fn a_port_that_is_taken_away_leaves_a_tree_without_it() {
    let mut net = Net::of(3, Settings::default());
    (0..3).for_each(|at| _ = net.cable(&[at, (at + 1) % 3], millis(1)));
    net.all_up();
    net.run(seconds(5));
    net.cables[0].is_up = false;
    for end in net.cables[0].ends.clone() {
        net.act(end.0, |bridge, now, actions| bridge.remove_port(end.1, now, actions).unwrap());
    }
    net.run(seconds(5));
    assert!(net.is_whole());
    assert_eq!(net.bridges[1].port(1).unwrap_err(), StpError::NoSuchPort(1));
}

#[test]
fn it_shows_what_ifconfig_shows() {
    let mut net = pair(PortSettings::default());
    net.run(seconds(5));
    assert_eq!(
        net.bridges[0].view().to_string(),
        "\tpriority 32768 hellotime 2 fwddelay 15 maxage 20 holdcnt 6 proto rstp\n\
         \tdesignated: id 02:00:00:00:00:01 priority 32768\n\
         \troot: id 02:00:00:00:00:02 priority 4096 ifcost 20000 port 1\n"
    );
    let port = net.bridges[0].port(1).unwrap();
    assert_eq!(port.to_string(), "port 1 ifpriority 128 ifcost 20000 forwarding role root");
    assert_eq!(
        net.bridges[1].view().to_string(),
        "\tpriority 4096 hellotime 2 fwddelay 15 maxage 20 holdcnt 6 proto rstp\n\
         \tdesignated: id 02:00:00:00:00:02 priority 4096\n"
    );
}
