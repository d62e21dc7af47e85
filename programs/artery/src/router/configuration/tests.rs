use super::*;

const WHOLE: &str = r#"# A router.
port = [
    "eth1=10.0.1.1/24,fd00:1::1/64,mtu=1400",
    "eth2=10.0.2.1/24",
]
route = ["default=10.0.2.7@3,10.0.2.8"]
fpm = true
neighbor = "eth1=10.0.1.9=02:00:00:00:00:09"
bfd = ["10.0.2.7=50ms*3"]
service = ["192.0.2.1:80/tcp=web1=10.0.1.11"]
check = ["http /health?a=\"1\" every 5s"]
nat = true
no-host = false
workers = 2
awake = 0.5
stats = "5s"
"#;

fn parsed(text: &str) -> Candidate {
    parse("r.toml", text).unwrap_or_else(|mistakes| panic!("{mistakes:?}"))
}

fn mistakes(text: &str) -> Vec<String> {
    parse("r.toml", text).err().unwrap_or_default()
}

#[test]
fn keys_are_options() {
    let options = parsed(WHOLE).options;
    assert_eq!(options.port, ["eth1=10.0.1.1/24,fd00:1::1/64,mtu=1400", "eth2=10.0.2.1/24"]);
    assert_eq!((options.running.workers, options.nat, options.no_host), (2, true, false));
    assert_eq!(options.fpm, Some("127.0.0.1:2620".parse().unwrap()));
    assert_eq!(options.running.awake, Some(std::time::Duration::from_millis(500)));
    assert_eq!(options.neighbor.len(), 1);
}

#[test]
fn every_option_is_a_key_and_stays_what_it_is() {
    let value = |key: &Key| match (key.name.as_str(), key.kind) {
        (_, Kind::Flag) => "true",
        ("affinity", _) => "0",
        ("read-group", _) => "\"root\"",
        ("fpm-hold" | "stats" | "awake" | "control-timeout", _) => "\"5s\"",
        ("workers" | "seed", _) => "1",
        ("psample", _) => "\"1000\"",
        ("metrics" | "fpm" | "ipfix", _) => "\"127.0.0.1:9470\"",
        ("log", _) => "\"json\"",
        ("pflog-max", _) => "\"64K\"",
        ("allow-path", _) => "\"/\"",
        _ => "\"x\"",
    };
    for key in keys(&command()) {
        let needs = match key.name.as_str() {
            "fpm-hold" => "fpm = true\n",
            "pflog" | "pflog-max" | "lenient" => "pf = \"x\"\n",
            _ => "",
        };
        let port = if key.name == "port" { "" } else { "port = [\"e=10.0.1.1/24\"]\n" };
        let candidate = parsed(&format!("{port}{needs}{} = {}\n", key.name, value(&key)));
        let again = parsed(&candidate.configuration.to_toml());
        assert!(candidate.configuration.find(&key.name).is_some(), "{}", key.name);
        assert_eq!(again.configuration, candidate.configuration);
    }
}

#[test]
fn a_configuration_is_written_as_it_is_read() {
    let first = parsed(WHOLE).configuration;
    let written = first.to_toml();
    assert!(written.contains("fpm = \"127.0.0.1:2620\"\n") && written.contains("workers = 2\n"), "{written}");
    assert_eq!(parsed(&written).configuration, first);
    assert!(first.changes(&parsed(&written).configuration).is_empty());
}

#[test]
fn what_changes_is_listed_line_by_line() {
    let text = |from: &str, to: &str| {
        let changes = parsed(from).configuration.changes(&parsed(to).configuration);
        changes.iter().map(Change::text).collect::<String>()
    };
    let from = "port = [\"a=10.0.1.1/24\", \"b=10.0.2.1/24\"]\nnat = true\nworkers = 2\n";
    let to = "port = [\"b=10.0.2.1/24\", \"a=10.0.1.9/24\"]\nroute = [\"10/8=a\", \"11/8=a\"]\n";
    assert_eq!(
        text(from, to),
        "- port = \"a=10.0.1.1/24\"\n+ port = \"a=10.0.1.9/24\"\n+ route = \"10/8=a\"\n+ route = \"11/8=a\"\n\
         - nat = true\n- workers = 2   # at the next start\n"
    );
    assert_eq!(text(from, from), "");
}

#[test]
fn mistakes_are_told_all_at_once_with_line_key_and_remedy() {
    let text = "port = [\"a=10.0.1.1/24\"]\nprot = [\"b=10.0.2.1/24\"]\nnat = \"yes\"\n\nworkers = 0\n\
        [port2]\nx = 1\n";
    let found = mistakes(text);
    for expected in [
        "r.toml:2: unknown key 'prot'; did you mean 'port'?",
        "r.toml:3: nat: write nat = true or nat = false",
        "r.toml:5: workers 0: write a number from 1 to 256",
        "r.toml:6: [port2]: the file has no sections",
    ] {
        assert!(found.iter().any(|mistake| mistake.starts_with(expected)), "{expected}: {found:#?}");
    }
    assert_eq!(found.len(), 4, "{found:#?}");
    let whole = |text: &str| mistakes(&format!("port = [\"a=10.0.1.1/24\"]\n{text}"));
    for (text, expected) in [
        ("port = 3", "r.toml:2: duplicate key"),
        ("route = [", "r.toml:2: "),
        (
            "route = [\n  true]",
            "r.toml:2: route: write a list of texts, as in route = [\"VALUE\", \"VALUE\"]",
        ),
        ("frobnicate = 1", "r.toml:2: unknown key 'frobnicate'; the keys are port, route"),
        ("print = true", "r.toml:2: 'print' is an option of one call"),
        ("host = \"a\"\nno-host = true", "r.toml: the argument 'host <NAME>' cannot be used with 'no-host'"),
        ("pflog = \"/x\"", "pf is needed by another key; write both or none"),
        ("fpm = \"here\"", "r.toml:2: fpm here: write an address, perhaps with a port"),
        ("log = \"xml\"", "r.toml:2: log xml: invalid value 'xml'"),
    ] {
        let found = whole(text);
        assert!(found.iter().any(|mistake| mistake.contains(expected)), "{text}: {found:#?}");
    }
    assert!(mistakes("nat = true")[0].contains("a router needs ports; write port = "));
}

#[test]
fn mistakes_of_options_are_told_of_their_lines() {
    let origin = parsed(WHOLE).origin;
    for (mistake, expected) in [
        ("--port eth2=10.0.2.1/24: no such interface", "r.toml:4: port eth2=10.0.2.1/24: no such interface"),
        (
            "--method, --check and --nat are about services; name one by --service",
            "r.toml: method, check and nat are about services; name one by service",
        ),
        ("--service 192.0.2.1: taken", "r.toml:10: service 192.0.2.1: taken"),
        ("pf.conf:3: syntax error", "pf.conf:3: syntax error"),
    ] {
        assert_eq!(origin.locate(mistake), expected);
    }
}

#[test]
fn a_file_cut_anywhere_or_with_any_byte_changed_makes_no_trouble() {
    for end in (0..WHOLE.len()).filter(|end| WHOLE.is_char_boundary(*end)) {
        drop(parse("r.toml", &WHOLE[..end]));
    }
    for at in 0..WHOLE.len() {
        for byte in [b'"', b'[', b']', b'\n', b'=', b'.', b'\\', 0] {
            let mut bytes = WHOLE.as_bytes().to_vec();
            bytes[at] = byte;
            drop(parse("r.toml", &String::from_utf8_lossy(&bytes)));
        }
    }
}
