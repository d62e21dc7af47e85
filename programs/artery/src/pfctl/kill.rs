//! States and source-tracking entries that a filter deletes: `pfctl -k` and `-K`.
use super::live::{Filters, Scope, sum};
use crate::output::print_stderr;
use anyhow::{Context as _, bail};
use std::net::{IpAddr, ToSocketAddrs as _};

impl Filters {
    /// Ends states: `-k`, once or twice.
    pub(super) fn kill(&mut self, words: &[String], scope: Scope<'_>, is_quiet: bool) -> anyhow::Result<()> {
        let kill = kill_questions(words)?;
        let mut count = 0;
        for question in &kill.questions {
            count += self.count("kill", &format!("{} {question}", scope.interface_word()))?;
        }
        if !is_quiet {
            print_stderr(&format!("killed {count} states{}\n", kill.ends));
        }
        Ok(())
    }

    /// Deletes source-tracking entries: `-K`.
    pub(super) fn kill_sources(&mut self, words: &[String], is_quiet: bool) -> anyhow::Result<()> {
        let networks = words.iter().map(|word| networks(word)).collect::<anyhow::Result<Vec<_>>>()?.concat();
        let count = sum(&self.workers(&format!("kill-sources {}", networks.join(" ")))?);
        if !is_quiet {
            print_stderr(&format!(
                "killed {count} src nodes from 1 sources and {} destinations\n",
                words.len() - 1
            ));
        }
        Ok(())
    }
}

/// States that `-k` means.
struct KillQuestions {
    /// The queries to the filter, in order.
    questions: Vec<String>,
    /// Of how many ends, as pfctl says it.
    ends: String,
}

fn kill_questions(words: &[String]) -> anyhow::Result<KillQuestions> {
    let one = |question: String| Ok(KillQuestions { questions: vec![question], ends: String::new() });
    match words {
        [kind, label] if kind == "label" => one(format!("label {label}")),
        [kind, id] if kind == "id" => {
            let (id, creator) = id.split_once('/').unwrap_or((id, ""));
            let (id, creator) = (id.trim_start_matches("0x"), creator.trim_start_matches("0x"));
            one(format!("id {id} {creator}").trim_end().into())
        }
        [kind, key] if kind == "key" => one(key_question(key)?),
        [source] => {
            let sources = networks(source)?;
            Ok(KillQuestions {
                questions: sources.iter().map(|source| format!("hosts {source}")).collect(),
                ends: format!(" from {} sources and 0 destinations", sources.len()),
            })
        }
        [source, destination] => {
            let (sources, destinations) = (networks(source)?, networks(destination)?);
            let is_six = |network: &str| network.contains(':');
            let to = |source: &str| -> Vec<String> {
                let alike = destinations.iter().filter(|network| is_six(network) == is_six(source));
                alike.map(|destination| format!("hosts {source} {destination}")).collect()
            };
            Ok(KillQuestions {
                questions: sources.iter().flat_map(|source| to(source)).collect(),
                ends: format!(" from {} sources and {} destinations", sources.len(), destinations.len()),
            })
        }
        _ => bail!("-k is given once, or twice: whose states, and to whom"),
    }
}

/// The addresses of a host with the length behind its slash: of a number, or all of a name.
fn networks(word: &str) -> anyhow::Result<Vec<String>> {
    let (host, length) = word.find('/').map_or((word, ""), |slash| word.split_at(slash));
    let mut addresses: Vec<IpAddr> = match host.parse() {
        Ok(address) => vec![address],
        Err(_) => {
            let found = (host, 0).to_socket_addrs();
            let why = || format!("'{host}' is neither an address nor the name of a host");
            found.with_context(why)?.map(|socket| socket.ip()).collect()
        }
    };
    addresses.dedup();
    Ok(addresses.iter().map(|address| format!("{address}{length}")).collect())
}

/// `PROTO A:PORT -> B:PORT`.
fn key_question(key: &str) -> anyhow::Result<String> {
    let wanted = || format!("'{key}' is not a key; write it as in \"tcp 10.0.0.1:80 <- 10.0.0.101:32123\"");
    let words: Vec<&str> = key.split_whitespace().collect();
    let [protocol, a, arrow, b] = words[..] else { bail!(wanted()) };
    let protocol = match protocol {
        "tcp" => "6",
        "udp" => "17",
        "icmp" => "1",
        "ipv6-icmp" => "58",
        number => number,
    };
    let way = match arrow {
        "<-" => "in",
        "->" => "out",
        _ => bail!(wanted()),
    };
    let end = |word: &str| -> anyhow::Result<String> {
        let bracketed = word.strip_suffix(']').and_then(|word| word.split_once('['));
        let (address, port) = bracketed.or_else(|| word.rsplit_once(':')).with_context(wanted)?;
        Ok(format!("{address},{port}"))
    };
    Ok(format!("key {protocol} {} {way} {}", end(a)?, end(b)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn states_are_meant_by_hosts_label_id_or_key() {
        let question = |words: &[&str]| -> anyhow::Result<String> {
            let words: Vec<String> = words.iter().map(|word| word.to_string()).collect();
            let KillQuestions { questions, ends } = kill_questions(&words)?;
            Ok(questions.join("; ") + &ends)
        };
        let hosts = "hosts 10.0.0.1 0.0.0.0/0 from 1 sources and 1 destinations";
        assert_eq!(question(&["10.0.0.1", "0.0.0.0/0"]).unwrap(), hosts);
        assert_eq!(question(&["10.0.0.1", "0/0"]).unwrap(), hosts, "as the system reads numbers");
        assert!(question(&["localhost"]).unwrap().contains("hosts 127.0.0.1"));
        assert_eq!(question(&["id", "0x1f/2"]).unwrap(), "id 1f 2");
        let found = question(&["key", "tcp 10.0.0.1:80 <- 10.0.0.101:32123"]).unwrap();
        assert_eq!(found, "key 6 10.0.0.1,80 in 10.0.0.101,32123");
        assert_eq!(question(&["key", "udp ::1[53] -> ::2[1000]"]).unwrap(), "key 17 ::1,53 out ::2,1000");
        for wrong in [&["key", "tcp 10.0.0.1 <- b"][..], &["key", "tcp"], &["a", "b", "c"]] {
            assert!(question(wrong).is_err(), "{wrong:?}");
        }
    }
}
