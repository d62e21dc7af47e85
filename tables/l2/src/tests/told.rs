//! What the switch says of itself, and what is left when another takes its place or its table grows.
use super::*;

#[test]
fn it_is_shown_as_ifconfig_shows_it() {
    let lab = Lab::of(
        2,
        &["protected p1 1,2", &format!("rule block in on p0 src {C}"), &format!("static p1 {B} link1")],
    );
    lab.learn(A, 1, 0, 0);
    lab.learn(C, 9, 0, 3);
    let expected = format!(
        "veb0: flags=a843<UP,BROADCAST,RUNNING,SIMPLEX,LINK1,MULTICAST>
\tp0 flags=3<LEARNING,DISCOVER>
\t\tport 1 ifpriority 0 ifcost 0
\t\tblock in on p0 src {C}
\tp1 flags=3<LEARNING,DISCOVER>
\t\tport 2 ifpriority 0 ifcost 0 protected 1,2
\tAddresses (max cache: 100, timeout: 240):
\t\t{A} p0 10 flags=0<>
\t\t{B} p1 0 flags=1<STATIC>
\t\t{C}@9 p0 7 flags=0<>
"
    );
    assert_eq!(lab.switch.show(at(10)), expected);
    assert_eq!(lab.switch.show_rules(Some("p0")).unwrap(), format!("block in on p0 src {C}\n"));
    assert!(lab.switch.show_rules(Some("p1")).unwrap().is_empty());
    assert!(lab.switch.show_rules(Some("p7")).is_err());
    lab.tell("down -link1").unwrap();
    assert!(lab.switch.show(at(10)).starts_with("veb0: flags=8802<BROADCAST,SIMPLEX,MULTICAST>\n"));
    lab.tell("vnetid 10 txprio 3 rxprio payload evict ifmaxaddr p0 3 storm p0 broadcast 100").unwrap();
    let shown = lab.switch.show(at(10));
    for line in [
        "\tencap: vnetid 10 txprio 3 rxprio payload\n",
        " ifcost 0 ifmaxaddr 3\n\t\tstorm broadcast 100\n",
        "timeout: 240, evict):\n",
    ] {
        assert!(shown.contains(line), "{shown}");
    }
}

#[test]
fn what_would_become_of_a_frame_is_said_step_by_step() {
    let mut lab = Lab::of(3, &["blocknonip p2"]);
    lab.learn(B, 1, 1, 0);
    let question = |destination: &str, ether_type| Question {
        port: 0,
        destination: destination.parse().unwrap(),
        source: A.parse().unwrap(),
        vlan: None,
        ether_type,
    };
    let mut said = |question| {
        let turn = lab.reader.turn();
        lab.switch.explain_frame(&question, at(1), &turn)
    };
    assert_eq!(
        said(question(B, EtherType::IPV4)),
        format!(
            "taken in at p0, in VLAN 1\n{A} is learned, if there is room\nits destination is at p1\n\
             leaves by p1\n"
        )
    );
    let unknown = said(question(C, EtherType(0x88b5)));
    assert!(unknown.ends_with("leaves by p1\nnot by p2: it carries neither IP nor ARP\n"), "{unknown}");
    assert!(
        said(question("01:80:c2:00:00:00", EtherType(0x42)))
            .starts_with("dropped at p0: its destination is one that")
    );
    assert!(lab.switch.show_addresses(at(1)).lines().count() == 1, "nothing is learned by asking");
}

#[test]
fn a_switch_that_is_told_all_commands_of_another_is_the_same() {
    let told = [
        "down link0 -link1 vnetid 9 maxaddr 500 timeout 100 evict txprio 3",
        "addspan p3 locked p1 protected p1 1,5,7 ifmaxaddr p1 8 untagged p1 passthrough tagged p2 +5-9,12",
        &format!("static p2 {B}@7 static p1 {A} rule block in on p1 src {C}"),
        "rule pass on p2 arp request spa 10.0.0.1",
        "storm p2 unknown 100 -discover p2 blocknonip p2 hairpin p1 nobroadcast p2 nomulticast p2",
    ];
    let lab = Lab::new(5, 0);
    lab.tell("add p1 add p2").unwrap();
    told.iter().for_each(|line| lab.tell(line).unwrap_or_else(|error| panic!("{line}: {error}")));
    let other = Lab::new(5, 0);
    for command in lab.switch.dump_commands(at(0)) {
        other.switch.apply_command(&command, at(0)).unwrap_or_else(|error| panic!("{command}: {error}"));
    }
    assert_eq!(other.switch.show(at(0)), lab.switch.show(at(0)));
    assert_eq!(other.switch.dump_commands(at(0)), lab.switch.dump_commands(at(0)));
    assert!(lab.switch.show(at(0)).contains("p4").eq(&false));
}

#[test]
fn a_switch_that_takes_the_place_of_another_knows_its_addresses_by_the_names_of_ports() {
    let old = Lab::of(3, &[]);
    old.learn(A, 1, 0, 5);
    old.learn(B, 1, 2, 6);
    let domain = Domain::new();
    let mut config = Config::new("veb0");
    ["p2", "p7"].iter().for_each(|name| config.connect_port(Port::new(*name, Role::Member)).unwrap());
    let new = Switch::new(&domain, config).unwrap();
    new.adopt_state(&old.switch, at(7));
    assert_eq!(new.show_addresses(at(7)), format!("{B} p2 1 flags=0<>\n"));
}

#[test]
fn another_limit_makes_another_table_with_the_same_addresses() {
    let mut lab = Lab::of(2, &[]);
    lab.learn(B, 1, 1, 0);
    let buckets = |lab: &mut Lab| {
        let turn = lab.reader.turn();
        lab.switch.table(&turn).bucket_count()
    };
    let before = buckets(&mut lab);
    lab.switch.apply_command(&Command::MaxAddresses(100_000), at(0)).unwrap();
    assert!(buckets(&mut lab) > before);
    assert_eq!(lab.ports(0, &plain(B, A)), [1]);
    lab.learn(C, 1, 0, 0);
    lab.tell("maxaddr 100").unwrap();
    assert_eq!((buckets(&mut lab), lab.switch.show_addresses(at(0)).lines().count()), (before, 2));
}

#[test]
fn ports_and_tables_come_and_go_while_frames_pass() {
    let lab = Lab::of(4, &[]);
    let (switch, domain) = (&lab.switch, lab.switch.view.domain());
    let done = &AtomicBool::new(false);
    std::thread::scope(|scope| {
        let passed: Vec<_> = (0..2_u64)
            .map(|seed| {
                scope.spawn(move || {
                    let (mut reader, mut random, mut decided) = (domain.reader(), Random::new(seed), 0_u64);
                    let mut ways = BatchLookup::default();
                    while !done.load(Relaxed) || decided < 1000 {
                        let turn = reader.turn();
                        let (view, table) = (switch.view(&turn), switch.table(&turn));
                        let mut station = || EtherAddr([2, 0, 0, 0, 0, random.below(200) as u8]);
                        let bytes = ether(station(), station()).raw(EtherType::IPV4, [0; 46]).bytes();
                        let port = random.below(4) as u16;
                        let sight = FrameView::new(&bytes).unwrap();
                        let views = (view, switch.groups(&turn));
                        let decision =
                            trace_frame(views, port, &sight, |key| table.find_entry(table.probe_key(key)));
                        let to = decision.targets.iter().filter(|(_, outcome)| outcome.is_ok());
                        assert!(to.clone().all(|(to, _)| *to != port && usize::from(*to) < view.len()));
                        ways.lookup_batch((view, table), port, 1_000_000, [&bytes[..]].into_iter());
                        assert_eq!(ways.targets_mut().len(), 1);
                        if let Some(key) = decision.learns {
                            switch.learn_address(key, port, false, at(decided / 100));
                        }
                        decided += 1;
                    }
                    decided
                })
            })
            .collect();
        let mut random = Random::new(9);
        for n in 0..300 {
            let port = random.below(4);
            lab.tell(&format!("del p{port}")).unwrap();
            switch.apply_command(&Command::MaxAddresses([50, 100_000][n % 2]), at(0)).unwrap();
            switch.sweep_addresses(at(n as u64));
            lab.tell(&format!("add p{port}")).unwrap();
        }
        done.store(true, Relaxed);
        assert!(passed.into_iter().all(|thread| thread.join().unwrap() >= 1000));
    });
    let learner = lock_unpoisoned(&switch.learner);
    let (listed, count, table) =
        (learner.list_addresses(at(0)).len(), learner.count() as usize, learner.published_table());
    let mut reader = domain.reader();
    let turn = reader.turn();
    let stands = table.read(&turn);
    assert!(listed <= count && stands.entries(0..stands.bucket_count()).count() == count);
}
