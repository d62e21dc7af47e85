//! Forged input: each function takes any bytes as input from a user, a file or a connection, processes them
//! as a command does before it connects to a router, and panics on a result that must not occur. Fuzz targets
//! start here.
use crate::router::configuration;
use crate::{bsd, control_socket, flow};

/// A stream of the control socket; its first byte says how much comes at once.
pub fn control(bytes: &[u8]) {
    control_socket::survive(bytes);
}

/// A file for `artery flow import`, in lines of JSON or as a stream of bytes.
pub fn flows(bytes: &[u8]) {
    flow::survive(bytes);
}

/// hostname.veb0, and behind a zero byte hostname.vport0.
pub fn hostname(bytes: &[u8]) {
    bsd::survive(&String::from_utf8_lossy(bytes));
}

/// A configuration file of `artery router`. Its printed form must read as the same.
pub fn configuration(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let Ok(candidate) = configuration::parse("fuzz.toml", &text) else { return };
    let printed = candidate.configuration.to_toml();
    match configuration::parse("printed.toml", &printed) {
        Ok(again) => assert_eq!(again.configuration.to_toml(), printed),
        Err(mistakes) => panic!("{mistakes:?} in what was printed:\n{printed}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    /// Words that mean something to one of them, and bytes between them.
    fn text() -> impl Strategy<Value = Vec<u8>> {
        const WORDS: [&str; 28] = [
            "READ ",
            "WRITEDATA x.y 3",
            "READUNTIL a .",
            "QUIT",
            "LLRPC",
            "\r\n",
            "\n",
            "add vport0",
            "rule block in on eth1 ",
            "static eth1 ",
            "00:00:5e:00:53:01",
            "up",
            "inet 192.0.2.1/24",
            "inet6 2001:db8::1 64",
            "!ip link",
            "\0",
            "port = [\"",
            "eth1=10.0.0.1/24",
            "\"]\n",
            "route = [\"10.0.0.0/8=10.0.0.9",
            "workers = 1\n",
            "{\"client\":\"",
            "198.51.100.7",
            "\",\"idle_ms\":",
            "12",
            " ",
            "=",
            "\"",
        ];
        let piece = prop_oneof![
            4 => prop::sample::select(&WORDS[..]).prop_map(|word| word.as_bytes().to_vec()),
            1 => vec(any::<u8>(), 0..6),
        ];
        vec(piece, 0..20).prop_map(|pieces| pieces.concat())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(200))]

        #[test]
        fn what_nobody_should_write_is_read_or_refused(bytes in text()) {
            [control, flows, hostname, configuration].iter().for_each(|read| read(&bytes));
        }
    }
}
