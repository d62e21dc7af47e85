//! `artery pfctl -n`: rules are read, printed and refused as by OpenBSD's pfctl.
use std::io::Write as _;
use std::process::{Command, Stdio};

/// Calls `artery pfctl` on the machine that tests assume: its status, standard output and standard error.
fn pfctl(args: &[&str], input: &str) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_artery"));
    command.arg("pfctl").args(args).env("ARTERY_PF_FIXTURE", "1");
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    // Wrong usage ends it before it reads.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let output = child.wait_with_output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap_or(-1), text(output.stdout), text(output.stderr))
}

const RULES: &str = "if = \"lo0\"\nset skip on $if\npass in on $if proto tcp to port { ssh 81 }\n";

#[test]
fn rules_are_checked_silently_and_printed_when_asked() {
    assert_eq!(pfctl(&["-nf", "-"], RULES), (0, String::new(), String::new()));
    let printed = "if = \"lo0\"\nset skip on { lo0 }\n\
        pass in on lo0 proto tcp from any to any port = 22 flags S/SA\n\
        pass in on lo0 proto tcp from any to any port = 81 flags S/SA\n";
    assert_eq!(pfctl(&["-o", "none", "-nv", "-f", "-"], RULES), (0, printed.into(), String::new()));
    assert_eq!(pfctl(&["-nvqf", "-"], RULES).1, "");
}

#[test]
fn numbers_names_and_macros_are_as_asked() {
    let (_, out, _) = pfctl(&["-nvvPf", "-", "-D", "if=tun1000000"], RULES);
    let found = out.lines().last();
    assert_eq!(found, Some("@1 pass in on tun1000000 proto tcp from any to any port = 81 flags S/SA"));
    let expected = "@0 pass in on tun1000000 proto tcp from any to any port = ssh flags S/SA\n";
    assert!(out.contains(expected), "{out}");
}

#[test]
fn braces_close_as_deep_as_they_open_with_numbers_as_well() {
    let (_, out, err) = pfctl(&["-nvvf", "-"], "anchor \"a\" {\nanchor \"b\" {\nblock from <t>\n}\n}\n");
    let printed = "@0 anchor \"a\" all {\n@0 anchor \"b\" all {\n@0 block drop from <t:0> to any\n  }\n}\n";
    assert_eq!((out.as_str(), err.as_str()), (printed, ""));
}

#[test]
fn mistakes_are_told_with_their_lines_and_nothing_is_loaded() {
    let (status, out, err) =
        pfctl(&["-nvf", "-"], "a = \"1\"\npass\npass on\n\nblock proto tcp from ::1 to 1.2.3.4\n");
    assert_eq!((status, out.as_str()), (1, "a = \"1\"\n"));
    let told =
        "stdin:3: syntax error\n    the line ends too soon\nstdin:5: rule expands to no valid combination\n";
    assert_eq!(err, told);
    let (status, _, err) = pfctl(&["-nf", "/nonexistent/pf.conf"], "");
    assert_eq!((status, err.contains("No such file")), (1, true), "{err}");
    let (status, _, err) = pfctl(&["-u", "/nonexistent/socket", "-f", "-"], "pass\n");
    assert_eq!((status, err.contains("can't reach /nonexistent/socket")), (1, true), "{err}");
}

#[test]
fn older_dialects_are_told_what_is_written_now_which_is_taken() {
    for (older, told, now) in [
        (
            "nat on em0 from 10.0.0.0/8 to any -> 192.0.2.1",
            "at 'on'\n    older pf: write 'match out on IF from SOURCE to DESTINATION nat-to ADDRESS', and a \
             rule that passes it",
            "match out on em0 from 10.0.0.0/8 to any nat-to 192.0.2.1",
        ),
        (
            "rdr pass on em0 proto tcp to any port 80 -> 10.0.0.5",
            "at 'pass'\n    older pf: write 'match in on IF to ADDRESS port PORT rdr-to ADDRESS', and a rule \
             that passes it; 'pass in ...' for 'rdr pass'",
            "pass in on em0 proto tcp to any port 80 rdr-to 10.0.0.5",
        ),
        (
            "binat on em0 from 10.0.0.1 to any -> 192.0.2.1",
            "at 'on'\n    older pf: write 'match on IF from ADDRESS to any binat-to ADDRESS', and a rule \
             that passes it",
            "match on em0 from 10.0.0.1 to any binat-to 192.0.2.1",
        ),
        (
            "no nat on em0 from any to any",
            "at 'no'\n    older pf: write 'pass quick' ahead of the rule that would translate",
            "pass quick on em0",
        ),
        (
            "nat-anchor \"ftp-proxy/*\"",
            "at 'ftp-proxy/*'\n    older pf: write 'anchor', which may have rules of all kinds",
            "anchor \"ftp-proxy/*\"",
        ),
        (
            "scrub in all",
            "at 'scrub'\n    older pf: write 'match in all scrub (no-df)', with the options in parentheses; \
             fragments are put together by 'set reassemble'",
            "match in all scrub (no-df)",
        ),
    ] {
        let (status, _, err) = pfctl(&["-nf", "-"], &format!("{older}\n"));
        assert_eq!((status, err), (1, format!("stdin:1: syntax error\n    {told}\n")), "{older}");
        let (status, _, err) = pfctl(&["-nf", "-"], &format!("{now}\n"));
        assert_eq!((status, err.contains("syntax error")), (0, false), "{now}: {err}");
    }
    let (_, _, err) = pfctl(&["-nf", "-"], "altq on em0 cbq bandwidth 10Mb queue { std }\n");
    assert!(err.ends_with(
        "\n    older pf: write 'queue NAME on IF bandwidth RATE', and 'queue NAME parent NAME bandwidth RATE \
         default'\n"
    ));
    // What is meant as a macro stays one.
    assert_eq!(pfctl(&["-nf", "-"], "nat = \"em0\"\npass on $nat\n").0, 0);
}

#[test]
fn anchors_are_loaded_from_their_files() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("spam.conf");
    std::fs::write(&file, "block from <spam>\nload anchor inner from \"/nonexistent\"\n").unwrap();
    let text = format!("anchor spam\nload anchor spam from \"{}\"\n", file.display());
    let (status, out, err) = pfctl(&["-nvf", "-"], &text);
    assert_eq!(status, 1);
    assert_eq!(out, "anchor \"spam\" all\nblock drop from <spam> to any\n");
    assert!(
        err.contains("Loading anchor spam from")
            && err.contains("spam.conf:2: cannot load anchor spam/inner from \"/nonexistent\": No such file"),
        "{err}"
    );
}

#[test]
fn the_names_of_this_machine_are_found_where_none_are_assumed() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_artery"));
    command.args(["pfctl", "-nvf", "-"]).env_remove("ARTERY_PF_FIXTURE").stdin(Stdio::piped());
    let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"pass inet proto tcp from 127.0.0.1 to self port ssh\n").unwrap();
    let output = child.wait_with_output().unwrap();
    let out = String::from_utf8_lossy(&output.stdout);
    assert!(out.contains("pass inet proto tcp from 127.0.0.1 to 127.0.0.1 port = 22 flags S/SA\n"), "{out}");
}
