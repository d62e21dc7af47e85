//! `artery up`, `artery import` and `artery ifconfig`, as far as they need no network.
use crate::support::{artery, artery_reads};
use std::path::Path;

/// The files of the benchmark of 2021.
fn veb2021() -> String {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conf/veb2021").display().to_string()
}

/// A folder with these files.
fn etc(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

fn text(folder: &tempfile::TempDir) -> String {
    folder.path().display().to_string()
}

const FOUR: &str = "add cnmac0\nadd cnmac1\nadd cnmac2\nadd cnmac3\nup\n";

#[test]
fn the_files_of_the_benchmark_are_those_that_were_printed() {
    let file = |name: &str| std::fs::read_to_string(Path::new(&veb2021()).join(name)).unwrap();
    assert_eq!((file("hostname.veb0").as_str(), file("hostname.bridge0").as_str()), (FOUR, FOUR));
    for port in 0..4 {
        assert_eq!(file(&format!("hostname.cnmac{port}")), "up\n");
    }
    assert_eq!(file("pf.conf"), "set skip on lo0\npass\n");
}

#[test]
fn each_line_of_the_benchmark_is_honoured_for_the_switch_that_starts() {
    for switch in ["veb0", "bridge0"] {
        let outcome = artery(&["import", "--explain", "--json", "--switch", switch, &veb2021()]);
        assert_eq!((outcome.status, outcome.err.as_str()), (0, ""), "{outcome:?}");
        let said: serde_json::Value = serde_json::from_str(&outcome.out).unwrap();
        for line in said["lines"].as_array().unwrap() {
            let file = line["file"].as_str().unwrap();
            let is_left_out = file.contains("hostname.veb0") && switch != "veb0"
                || file.contains("hostname.bridge0") && switch != "bridge0";
            let expected = if is_left_out { "approximated" } else { "honoured" };
            assert_eq!(line["verdict"], expected, "{line}");
        }
        let has_note = said["notes"].to_string().contains("packet filter is always on");
        assert_eq!(has_note, switch == "bridge0");
    }
}

const PRINTED: &str = "
// A switch.
veb0 :: Veb(
    PORT cnmac0,
    PORT cnmac1,
    PORT cnmac2,
    PORT cnmac3,
    PF \"DIR/pf.conf\",
    PFETC \"DIR\");

// Port 0, cnmac0. The host does not see what arrives here.
from_cnmac0 :: FromDevice(cnmac0, SNIFFER false, PROMISC true) -> [0] veb0;
veb0 [0] -> to_cnmac0 :: ToDevice(cnmac0);
";

#[test]
fn the_benchmark_is_a_switch_of_four_ports() {
    let outcome = artery(&["up", "--etc", &veb2021(), "--print"]);
    assert_eq!((outcome.status, outcome.err.as_str()), (0, ""), "{outcome:?}");
    let (_, text) = outcome.out.split_once('\n').unwrap();
    assert!(text.starts_with(&PRINTED.replace("DIR", &veb2021())), "{text}");
    // With a star in its name one file does for all.
    let starred = etc(&[("hostname.veb0", FOUR), ("hostname.cnmac*", "up")]);
    let other = artery(&["up", "--etc", &self::text(&starred), "--print"]);
    let without_rules =
        text.replace(&format!(",\n    PF \"{0}/pf.conf\",\n    PFETC \"{0}\"", veb2021()), "");
    assert_eq!(other.out.split_once('\n').unwrap().1, without_rules);
    assert_eq!(artery(&["import", &veb2021()]).out.split_once('\n').unwrap().1, text);
    let bridge = artery(&["up", "--etc", &veb2021(), "--print", "--switch", "bridge0"]);
    assert!(bridge.out.contains("bridge0 :: Veb(\n    PORT cnmac0,") && bridge.out.contains("LINK1 true"));
}

/// All kinds of lines that are honoured.
const VEB: &str = "\
description \"the \\ house\"
add em0
add em1
add vport0
addspan em2
protected em0 1,2
-discover em1
blocknonip em1
static em0 2:0:0:0:0:1
static em1 2:0:0:0:0:2@10
untagged vport0 10
tagged em0 10,20-29 # for guests
maxaddr 1000 timeout 300
rule block in on em0 arp request spa 10.0.0.1
rule pass in on em0 tag guests
storm em0 broadcast 1000
link0
vnetid 5
";

#[test]
fn what_is_printed_is_sound_laid_out_and_runs_on_all_workers() {
    let folder = etc(&[
        ("hostname.veb0", VEB),
        (
            "hostname.vport0",
            "inet 10.0.0.1 255.255.255.0\ninet6 2001:db8::1 64\nmtu 1400\nlladdr 2:0:0:0:0:9",
        ),
        ("hostname.em0", "up description 'to the left'"),
    ]);
    let printed = artery(&["import", &text(&folder)]);
    assert_eq!((printed.status, printed.err.as_str()), (0, ""), "{printed:?}");
    let formatted = artery_reads(&["fmt", "-"], &printed.out);
    assert_eq!(formatted.out, printed.out);
    for expected in [
        "// A switch. the \\ house\n",
        "SPAN em2",
        "UP false",
        "IFCONFIG \"rule block in on em0 arp request spa 10.0.0.1\"",
        "FromHost(vport0, ETHER 02:00:00:00:00:09, MTU 1400, ADDRESS 10.0.0.1/24, ADDRESS 2001:db8::1/64)",
        "to the left",
    ] {
        assert!(printed.out.contains(expected), "{expected}: {}", printed.out);
    }
    // Any interface will do that has an address.
    let devices = ["--device", "em0=lo", "--device", "em1=lo", "--device", "em2=lo"];
    let checked = artery_reads(&[&["check", "-j", "2"], &devices[..], &["-"]].concat(), &printed.out);
    assert_eq!(checked.status, 0, "{}", checked.err);
    assert!(checked.out.contains("every worker: ") && checked.out.contains("veb0"), "{}", checked.out);
}

#[test]
fn a_line_that_cant_be_done_is_named_with_its_file_and_nothing_starts() {
    let folder = etc(&[
        (
            "hostname.veb0",
            "add em0\nad em1\nlearn em9\nproto stp ifcost em0 70000\nadd vport0 untagged vport0 passthrough\n\
             !echo 1\nup",
        ),
        ("hostname.em0", "inet 10.0.0.1 255.255.255.0"),
    ]);
    let name = text(&folder);
    let expected = [
        "hostname.veb0:2: 'ad' is not a command of a switch; did you mean 'add'?",
        "hostname.veb0:3: em9 is not a port of veb0; write 'add em9' to hostname.veb0, above this line",
        "hostname.veb0:4: cost 70000 is not 1 to 200000000 (stp: 65535)",
        "hostname.veb0:5: vport0 is the host's port, which has no other behind it",
        "hostname.em0:1: em0 is a port of veb0, and a port has no address of the host; write 'add vport0'",
    ];
    for call in [&["up", "--etc", &name][..], &["up", "--etc", &name, "--print"], &["import", &name]] {
        let outcome = artery(call);
        assert_eq!((outcome.status, outcome.out.as_str()), (1, ""), "{call:?}: {outcome:?}");
        for expected in expected {
            assert!(
                outcome.err.contains(&format!("error: {name}/{expected}")),
                "{expected}: {}",
                outcome.err
            );
        }
    }
    let explained = artery(&["import", "--explain", &name]);
    assert_eq!(explained.status, 1, "{explained:?}");
    assert!(explained.out.ends_with("8 lines: 2 honoured, 1 approximated, 5 refused\n"), "{}", explained.out);
    assert!(
        explained.out.contains("hostname.veb0:6: approximated: !echo 1\n    not run; with --run-commands")
    );
}

#[test]
fn what_comes_without_a_tag_is_the_hosts_where_a_port_says_so_at_last() {
    let folder = etc(&[
        (
            "hostname.veb0",
            "add em0\nadd em1\nuntagged em0 passthrough tagged em0 10\nuntagged em1 passthrough\n\
             untagged em1 10\nup",
        ),
        ("hostname.em0", "inet 10.0.0.1 255.255.255.0\nup"),
    ]);
    let name = text(&folder);
    let imported = artery(&["import", &name]);
    assert_eq!(imported.status, 0, "{imported:?}");
    for expected in [
        "from_em0 :: FromDevice(em0, SNIFFER untagged, PROMISC true)",
        "from_em1 :: FromDevice(em1, SNIFFER false, PROMISC true)",
        "IFCONFIG \"untagged em0 passthrough\"",
        "// Port 0, em0. What arrives here without a tag is the host's.",
    ] {
        assert!(imported.out.contains(expected), "{expected}: {}", imported.out);
    }
    let explained = artery(&["import", "--explain", &name]);
    assert_eq!(explained.status, 0, "{explained:?}");
    let out = &explained.out;
    assert!(out.contains("hostname.veb0:3: honoured: untagged em0 passthrough"), "{out}");
    assert!(
        explained
            .out
            .contains("hostname.em0:1: approximated: inet 10.0.0.1 255.255.255.0\n    left to the host"),
        "{}",
        explained.out
    );
}

#[test]
fn a_mistake_in_pf_conf_is_named_with_its_line_and_nothing_starts() {
    let pf = "set skip on lo0\npass in on nosuch from any to any prot tcp\npass in proto tcp user root\n";
    let folder = etc(&[("hostname.veb0", "add em0\nlink1\nup"), ("pf.conf", pf)]);
    let outcome = artery(&["up", "--etc", &text(&folder)]);
    assert_eq!((outcome.status, outcome.out.as_str()), (1, ""), "{outcome:?}");
    let wrong = |line: usize| format!("error: {}/pf.conf:{line}: ", text(&folder));
    assert!(outcome.err.contains(&wrong(2)) && !outcome.err.contains(&wrong(1)), "{}", outcome.err);
    assert!(outcome.err.contains("nothing was started"), "{}", outcome.err);
    let explained = artery(&["import", "--explain", &text(&folder)]);
    assert_eq!(explained.status, 1);
    assert!(explained.out.contains("pf.conf:1: honoured: set skip on lo0\n"), "{}", explained.out);
}

#[test]
fn what_rules_log_has_a_file_and_files_of_etc_are_those_of_the_folder() {
    let folder = etc(&[
        ("hostname.veb0", "add em0\nlink1\nup"),
        ("pf.conf", "include \"/etc/more.conf\"\n"),
        ("more.conf", "block log\n"),
    ]);
    let name = text(&folder);
    let imported = artery(&["import", &name]);
    assert_eq!((imported.status, imported.err.as_str()), (0, ""), "{imported:?}");
    let out = &imported.out;
    assert!(out.contains(&format!("PFETC \"{name}\",\n    PFLOG \"/var/log/pflog\"")), "{out}");
    let other = artery(&["up", "--etc", &name, "--print", "--pflog", "a log"]);
    assert!(other.out.contains("PFLOG \"a log\""), "{}", other.out);
    let explained = artery(&["import", "--explain", &name]);
    assert!(explained.out.contains("tcpdump -n -e -r /var/log/pflog"), "{}", explained.out);
    std::fs::remove_file(folder.path().join("more.conf")).unwrap();
    let missing = artery(&["import", &name]);
    assert_eq!(missing.status, 1);
    assert!(missing.err.contains("pf.conf:1: failed to include file /etc/more.conf"), "{}", missing.err);
}

#[test]
fn what_the_machine_lacks_is_said_and_nothing_starts() {
    let outcome = artery(&["up", "--etc", &veb2021(), "--map", "cnmac0=nonsuch0,cnmac1=nonsuch0,em0=lo"]);
    assert_eq!((outcome.status, outcome.out.as_str()), (1, ""), "{outcome:?}");
    for expected in [
        "error: --map em0=lo: no port is called em0; the ports are cnmac0, cnmac1, cnmac2, cnmac3\n",
        "error: cnmac0 and cnmac1 are both nonsuch0; give each an interface of its own by --map\n",
        "error: port cnmac0: nonsuch0: no such interface",
        "'--map cnmac3=NAME' says what this machine calls it\n",
        "artery: 6 mistakes; nothing was started\n",
    ] {
        assert!(outcome.err.contains(expected), "{expected}: {}", outcome.err);
    }
    let dry = artery(&["up", "--etc", &veb2021(), "--dry-run"]);
    assert_eq!(dry.status, 1, "{dry:?}");
    assert!(dry.out.contains("hostname.veb0:1: honoured: add cnmac0\n"), "{}", dry.out);
}

#[test]
fn words_for_a_switch_are_wrong_whether_or_not_it_runs() {
    for (words, expected) in [
        (
            &["veb0", "lern", "em0"][..],
            "artery: veb0: 'lern' is not a command of a switch; did you mean 'learn'?\n",
        ),
        (
            &["veb0", "maxaddr", "0"],
            "artery: veb0: 'maxaddr 0': not '0', but a number from 1 to 4194304, as in 'maxaddr 100'\n",
        ),
        (&["veb0", "-learn"], "artery: veb0: '-learn' needs the name of an interface, as in '-learn em0'\n"),
    ] {
        let outcome = artery(&[&["ifconfig"], words].concat());
        assert_eq!((outcome.status, outcome.err.as_str()), (1, expected), "{words:?}");
    }
    let outcome = artery(&["ifconfig", "-u", "/nonexistent/artery.sock", "veb0", "-learn", "em0"]);
    assert!(outcome.status == 1, "{outcome:?}");
    assert!(outcome.err.contains("can't reach /nonexistent/artery.sock"), "{outcome:?}");
}

#[test]
fn a_folder_without_a_switch_or_an_address_is_refused() {
    let folder = etc(&[("pf.conf", "pass")]);
    let outcome = artery(&["up", "--etc", &text(&folder)]);
    assert!(outcome.status == 1 && outcome.err.contains("there is no hostname.veb0 or"), "{outcome:?}");
    let outcome = artery(&["up", "--etc", &veb2021(), "--switch", "veb1"]);
    assert!(outcome.err.ends_with("has no switch 'veb1'; it has veb0, bridge0\n"), "{outcome:?}");
}
