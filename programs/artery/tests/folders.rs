//! Folders of BSD's files, as `artery import`, `artery up`, `artery pfctl` and `artery check` read them: the
//! same names, the same mistakes, the same verdicts.
use crate::support::{artery, artery_reads};
use std::collections::BTreeSet;
use std::process::{Command, Stdio};

/// A folder with these files.
fn etc(files: &[(&str, &str)]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for (name, text) in files {
        std::fs::write(folder.path().join(name), text).unwrap();
    }
    folder
}

/// A folder with a switch of two ports and a host port, and these rules.
fn switch(pf: &str) -> tempfile::TempDir {
    etc(&[
        ("hostname.veb0", "add em0\nadd em1\nadd vport0\nlink1\nup\n"),
        ("hostname.vport0", "inet 10.0.0.9 255.255.255.0\n"),
        ("pf.conf", pf),
    ])
}

fn text(folder: &tempfile::TempDir) -> String {
    folder.path().display().to_string()
}

/// The lines of a text that say something of a place in a file.
fn placed(said: &str, file: &str) -> Vec<(usize, String)> {
    let of_line = |line: &str| -> Option<(usize, String)> {
        let (_, rest) = line.split_once(&format!("{file}:"))?;
        let (number, rest) = rest.split_once(':')?;
        Some((number.parse().ok()?, rest.trim().to_string()))
    };
    said.lines().filter_map(of_line).collect()
}

/// `artery pfctl -n` with the names of this machine.
fn pfctl(options: &[&str], file: &str) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_artery"));
    command.arg("pfctl").args(options).arg(file).env_remove("ARTERY_PF_FIXTURE");
    let output = command.stdin(Stdio::null()).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

#[test]
fn names_have_the_same_numbers_whoever_reads_them() {
    let rules = "pass in on em0 proto tcp to port { smtps spamd www }\n\
        pass in on em0 proto udp to port { dhcpv6-client dhcpv6-server }\n\
        pass proto { ospf gre icmp6 }\n";
    let folder = switch(rules);
    let explained = artery(&["import", "--explain", &text(&folder)]);
    assert_eq!(explained.status, 0, "{explained:?}");
    let (status, out, err) = pfctl(&["-nvf"], &format!("{}/pf.conf", text(&folder)));
    assert_eq!((status, err.as_str()), (Some(0), ""));
    for port in [465, 8025, 80, 546, 547] {
        let is_named = |end: char| out.contains(&format!("port = {port}{end}"));
        assert!(is_named(' ') || is_named('\n'), "{port}: {out}");
    }
    // The filter itself reads the names of the file.
    let printed = artery(&["import", &text(&folder)]);
    let devices = ["--device", "em0=lo", "--device", "em1=lo"];
    let checked = artery_reads(&[&["check"], &devices[..], &["-"]].concat(), &printed.out);
    assert_eq!(checked.status, 0, "{checked:?}");
}

#[test]
fn every_name_of_this_machine_is_known_to_all() {
    let words = |file: &str| -> BTreeSet<(String, String)> {
        let text = std::fs::read_to_string(file).unwrap_or_default();
        let lines = text.lines().map(|line| line.split('#').next().unwrap_or_default());
        let of_line = |line: &str| {
            let mut words = line.split_whitespace();
            Some((words.next()?.to_string(), words.next()?.to_string()))
        };
        lines.filter_map(of_line).collect()
    };
    let services = words("/etc/services").into_iter().filter(|(_, number)| number.ends_with("/tcp"));
    let services = services.map(|(name, _)| format!("pass in proto tcp to port \"{name}\"\n"));
    let protocols =
        words("/etc/protocols").into_iter().filter(|(_, number)| matches!(number.parse(), Ok(1..=255_u16)));
    let protocols = protocols.map(|(name, _)| format!("pass in proto \"{name}\"\n"));
    let rules: String = services.chain(protocols).collect();
    let folder = switch(&rules);
    let (status, out, err) = pfctl(&["-nvf"], &format!("{}/pf.conf", text(&folder)));
    assert_eq!((status, err.as_str()), (Some(0), ""));
    assert_eq!(out.lines().count(), rules.lines().count());
    let explained = artery(&["import", "--explain", &text(&folder)]);
    assert_eq!(explained.status, 0, "{}", explained.out);
}

/// What OpenBSD installs as pf.conf, without its comments.
const OPENBSD: &str = "set skip on lo
block return
pass
block return in on ! lo0 proto tcp to port 6000:6010
block return out log proto {tcp udp} user _pbuild
";

#[test]
fn the_rules_that_openbsd_installs_are_taken_with_a_warning() {
    let folder = switch(OPENBSD);
    let explained = artery(&["import", "--explain", &text(&folder)]);
    assert_eq!(explained.status, 0, "{explained:?}");
    let expected = "pf.conf:5: approximated: block return out log proto {tcp udp} user _pbuild\
        \n    unknown user _pbuild";
    assert!(explained.out.contains(expected), "{}", explained.out);
    let (status, out, err) = pfctl(&["-nvf"], &format!("{}/pf.conf", text(&folder)));
    assert_eq!(status, Some(0), "{err}");
    assert_eq!(placed(&err, "pf.conf").len(), 1, "{err}");
    assert!(err.contains("pf.conf:5: warning: unknown user _pbuild"), "{err}");
    assert!(!out.contains("user"), "{out}");
    let printed = artery(&["import", &text(&folder)]);
    let devices = ["--device", "em0=lo", "--device", "em1=lo"];
    let checked = artery_reads(&[&["check"], &devices[..], &["-"]].concat(), &printed.out);
    assert_eq!(checked.status, 0, "{checked:?}");
    assert!(checked.err.contains("pf.conf:5: unknown user _pbuild"), "{}", checked.err);
    // Where the rule needs to know the user, the user must exist.
    for wrong in [
        "pass out proto tcp user _pbuild",
        "block in proto tcp user _pbuild",
        "block out proto tcp user != _pbuild",
    ] {
        let refused = artery(&["import", "--explain", &text(&switch(wrong))]);
        assert!(
            refused.status == 1 && refused.out.contains("unknown user _pbuild"),
            "{wrong}: {}",
            refused.out
        );
    }
}

/// What each of the commands says of the lines of pf.conf that are wrong: its numbers.
fn mistakes(folder: &tempfile::TempDir) -> [Vec<usize>; 4] {
    let name = text(folder);
    let file = format!("{name}/pf.conf");
    let (status, _, told) = pfctl(&["-nf"], &file);
    assert_eq!(status, Some(1), "{told}");
    let refused = |said: &str| -> Vec<usize> {
        let lines = placed(said, "/pf.conf").into_iter();
        lines.filter(|(_, rest)| rest.starts_with("refused")).map(|(line, _)| line).collect()
    };
    let explained = artery(&["import", "--explain", &name]);
    let dry = artery(&["up", "--dry-run", "--etc", &name]);
    assert_eq!((explained.status, dry.status), (1, 1), "{explained:?} {dry:?}");
    let config = format!("Idle -> veb0 :: Veb(PORT em0, PF \"{file}\", PFETC \"{name}\") -> Discard;");
    let checked = artery_reads(&["check", "-"], &config);
    assert_eq!(checked.status, 1, "{checked:?}");
    let all = |said: &str| placed(said, "/pf.conf").into_iter().map(|(line, _)| line).collect();
    [all(&told), refused(&explained.out), refused(&dry.out), all(&checked.err)]
}

#[test]
fn thirty_one_mistakes_are_thirty_one_messages_everywhere() {
    let lines: String = (1..=31).map(|n| format!("foo{n} bar\n")).collect();
    let expected: Vec<usize> = (1..=31).collect();
    assert_eq!(mistakes(&switch(&lines)), [(); 4].map(|()| expected.clone()));
}

#[test]
fn a_mistake_hides_none_below_it() {
    for (rules, expected) in [
        ("foo\nnat on em0 from any to any -> 1.2.3.4\npass\n", vec![1, 2]),
        ("pass on\nblock bar\npass proto nosuch\nset frob\ntable <x\n", vec![1, 2, 3, 4, 5]),
        // Braces and joined lines belong to the statement that they are in.
        ("pass to { 1.2.3.4,\n  foo bar }\npass \\\n  frob\nblock baz\n", vec![1, 4, 5]),
        // A brace that is not closed ends where a statement begins.
        ("pass proto tcp to port { 22 frob\npass\nblock baz\n", vec![1, 3]),
        ("pass to port \"22\nblock baz\n", vec![1, 2]),
        ("anchor x {\n\tpass foo\n\tblock bar\n\tpass\n}\npass baz\n", vec![2, 3, 6]),
        ("anchor x frob {\n\tpass foo\n\tanchor y {\n\t\tblock bar\n\t}\n}\npass baz\n", vec![1, 2, 4, 7]),
    ] {
        let folder = switch(rules);
        let [told, explained, dry, checked] = mistakes(&folder);
        let once = |mut lines: Vec<usize>| {
            lines.dedup();
            lines
        };
        assert_eq!(once(told), expected, "{rules}");
        assert_eq!(once(checked), expected, "{rules}");
        assert_eq!(explained, dry, "{rules}");
        // A statement is named by its first line; no line of it, and none below, is honoured.
        let explained = artery(&["import", "--explain", &text(&folder)]).out;
        let honoured =
            placed(&explained, "/pf.conf").into_iter().filter(|(_, rest)| rest.starts_with("honoured"));
        assert!(honoured.map(|(line, _)| line).all(|line| line < expected[0]), "{rules}: {explained}");
    }
}

/// Folders of all kinds: what is refused, what is not, and why.
fn folders() -> Vec<tempfile::TempDir> {
    let rules = [
        "pass\n",
        OPENBSD,
        "block in on egress\npass out on egress inet from em0:network nat-to (egress)\n",
        "match out on egress inet from !(egress:network) to any nat-to (egress:0)\n\
         block in quick from urpf-failed\n",
        "ext = \"egress\"\nblock in on $ext\npass out on $ext\n",
        "antispoof quick for { em0 em9 }\n",
        "antispoof for (em9)\n",
        "antispoof for vport0\npass\n",
        "pass in on em\npass on veb0\npass on vport\n",
        "pass quick on lo0\npass on lo\n",
        "block in on ! em9\npass in on { em0 em9 }\n",
        "pass out on em1 received-on em9\n",
        "pass in on vport0 from vport0:network to (vport0)\n",
        "pass in on em0 from (em9:network)\n",
        "foo\nbar baz\npass\n",
        "pass in proto tcp user root\nblock out proto tcp user root\n",
        "table <a> persist file \"/etc/spam\"\nblock from <a>\n",
        "set limit table-entries 1\ntable <a> { 10.0.0.1 10.0.0.2 }\n",
        "load anchor x from \"/etc/inner.conf\"\nanchor x\n",
        "anchor \"..\"\n",
        "set loginterface egress\nset skip on em9\npass log\n",
        "queue root on em0 bandwidth 1M\npass\n",
        "pass in on em0 proto tcp to port { smtps dhcpv6-client spamd nosuch }\n",
        "pass in on em0 proto tcp synproxy state\n",
        "set timeout tcp.first 9999999\npass\n",
        "",
    ];
    let switches = [
        "add em0\nadd em1\nadd vport0\nlink1\nup\n",
        "add em0\nadd vport0\n",
        "add em0\nadd em1\nlern em0\nup\n",
    ];
    let mut all = Vec::new();
    for pf in rules {
        for (n, veb) in switches.iter().enumerate() {
            let name = if n == 1 { "hostname.bridge0" } else { "hostname.veb0" };
            let files = [
                (name, *veb),
                ("hostname.vport0", "inet 10.0.0.9/24\n!route add default 10.0.0.1\n"),
                ("pf.conf", pf),
            ];
            let folder = etc(&files);
            std::fs::write(folder.path().join("inner.conf"), "pass on egress\npass frob\n").unwrap();
            all.push(folder);
        }
    }
    all
}

/// The verdicts on the lines of a folder, without messages about the machine.
fn verdicts(said: &str) -> Vec<&str> {
    let is_of_machine = |line: &&str| {
        line.starts_with("port ") || line.contains(": command: ") || line.starts_with("error: ")
    };
    said.lines().filter(|line| !is_of_machine(line)).collect()
}

#[test]
fn what_is_said_of_a_folder_is_what_is_done_with_it() {
    for folder in folders() {
        for lenient in [&[][..], &["--lenient"]] {
            let name = text(&folder);
            let explained = artery(&[&["import", "--explain", &name], lenient].concat());
            let dry = artery(&[&["up", "--dry-run", "--etc", &name], lenient].concat());
            assert_eq!(verdicts(&explained.out), verdicts(&dry.out), "{name}");
            let refused = explained.out.lines().filter(|line| line.contains(": refused: ")).count();
            assert_eq!(explained.status, i32::from(refused > 0), "{}", explained.out);
            let printed = artery(&[&["up", "--print", "--etc", &name], lenient].concat());
            let started = artery(&[&["up", "--etc", &name], lenient].concat());
            let imported = artery(&[&["import", &name], lenient].concat());
            assert_eq!(printed.status, explained.status, "{name}: {printed:?}");
            assert_eq!(imported.status, explained.status, "{name}: {printed:?}");
            // The interfaces are missing here, so that nothing starts: for that reason, or for the lines'.
            assert_eq!(started.status, 1);
            if refused == 0 {
                assert!(started.err.contains("no such interface"), "{}", started.err);
                let devices = ["--device", "em0=lo", "--device", "em1=lo"];
                let devices =
                    if printed.out.contains("FromDevice(em1") { &devices[..] } else { &devices[..2] };
                let checked = artery_reads(&[&["check"], devices, &["-"]].concat(), &printed.out);
                assert_eq!(checked.status, 0, "{}: {}", explained.out, checked.err);
            } else {
                let is_error = |line: &&str| line.starts_with("error: ");
                let count = |outcome: &crate::support::Outcome| outcome.err.lines().filter(is_error).count();
                assert_eq!((count(&started), count(&imported)), (refused, refused), "{}", started.err);
                assert!(!started.err.contains("no such interface"), "{}", started.err);
            }
        }
    }
}
