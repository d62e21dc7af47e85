//! hostname.pflow0: pflow(4), which exports states of rules with `pflow` to a collector.
use super::etc::{Etc, File, Kind};
use super::hostname::{Line, lines, words};
use super::plan::{Plan, Wishes, shell, shell_verdict};
use super::verdict::{Judged, Place, Verdict};
use crate::ipfix::IpfixSettings;
use crate::options::values::address_with_port;
use std::net::SocketAddr;

/// What the lines of a file say.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Pflow {
    source: Option<SocketAddr>,
    collector: Option<SocketAddr>,
    /// The version of the protocol; 5 if nothing is said, as in OpenBSD.
    version: Option<u16>,
}

/// Checks the files of pflow(4), and adds the export to the plan.
pub(super) fn judge(etc: &Etc, wishes: &Wishes, plan: &mut Plan) {
    let is_pflow = |file: &&File| Kind::of(&file.interface) == Kind::Pflow;
    for (n, file) in etc.interfaces.iter().filter(is_pflow).enumerate() {
        let place = |line| Place { file: etc.folder.join(file.name()).display().to_string(), line };
        let mut pflow = Pflow::default();
        for line in lines(&file.text) {
            let place = place(line.number);
            let verdict = match line.text.strip_prefix('!') {
                Some(text) => {
                    plan.shell.push(shell(&place, text, &file.interface));
                    shell_verdict(wishes.runs_commands, "router")
                }
                None => read_line(&line, &mut pflow).map_or_else(Verdict::Refused, |()| Verdict::Honoured),
            };
            plan.judged.push(Judged { place, text: line.text, verdict });
        }
        let settings = match n {
            0 => pflow.settings(),
            _ => Err("there is one collector; leave out this file".to_string()),
        };
        match settings {
            Ok(settings) => plan.ipfix = Some(settings),
            Err(why) => plan.judged.push(Judged {
                place: place(0),
                text: "(the file)".to_string(),
                verdict: Verdict::Refused(why),
            }),
        }
    }
}

fn read_line(line: &Line, pflow: &mut Pflow) -> Result<(), String> {
    let words = words(&line.text)?;
    let mut words = words.iter().map(String::as_str);
    while let Some(word) = words.next() {
        let mut value = || words.next().ok_or_else(|| format!("'{word}' needs a value"));
        match word {
            "up" => {}
            "description" | "descr" => drop(value()?),
            "flowsrc" => pflow.source = Some(address_with_port::<0>(value()?)?),
            "flowdst" => {
                let text = value()?;
                pflow.collector = Some(text.parse().map_err(|_| {
                    format!("'{text}': write address and port of the collector, as in 192.0.2.9:4739")
                })?);
            }
            "pflowproto" => {
                let text = value()?;
                pflow.version = Some(
                    text.parse().map_err(|_| format!("'{text}' is not a version; write pflowproto 10"))?,
                );
            }
            other => {
                return Err(format!("'{other}' is not known here; flowsrc, flowdst and pflowproto 10 are"));
            }
        }
    }
    Ok(())
}

impl Pflow {
    fn settings(&self) -> Result<IpfixSettings, String> {
        match self.version {
            Some(10) => {}
            version => {
                let version = version.unwrap_or(5);
                return Err(format!("version {version} is not spoken here; write 'pflowproto 10' (IPFIX)"));
            }
        }
        let collector = self.collector.ok_or("no collector; write 'flowdst ADDRESS:PORT'")?;
        IpfixSettings { source: self.source, ..IpfixSettings::to(collector) }.check()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn planned(text: &str) -> (Option<IpfixSettings>, Vec<String>) {
        let file = File { interface: "pflow0".into(), text: text.into() };
        let etc = Etc { folder: "etc".into(), interfaces: vec![file], ..Etc::default() };
        let mut plan = Plan::default();
        judge(&etc, &Wishes::default(), &mut plan);
        (plan.ipfix, plan.judged.iter().filter_map(Judged::refusal).collect())
    }

    #[test]
    fn a_collector_is_where_flowdst_says() {
        let (settings, refused) = planned(
            "flowsrc 10.0.0.1 flowdst 192.0.2.9:2055\npflowproto 10 # IPFIX\ndescription \"to nfsen\"\nup\n",
        );
        let settings = settings.unwrap_or_else(|| panic!("{refused:?}"));
        assert_eq!(settings.collector, "192.0.2.9:2055".parse().unwrap());
        assert_eq!(settings.source, Some("10.0.0.1:0".parse().unwrap()));
        let (settings, _) = planned("flowdst [2001:db8::9]:4739 pflowproto 10");
        assert_eq!(settings.unwrap().collector, "[2001:db8::9]:4739".parse().unwrap());
    }

    #[test]
    fn what_is_wrong_is_refused_with_the_remedy() {
        for (text, wanted) in [
            ("flowdst 192.0.2.9:2055", "etc/hostname.pflow0: version 5 is not spoken here"),
            ("flowdst 192.0.2.9:2055 pflowproto 9", "etc/hostname.pflow0: version 9 is not spoken here"),
            ("pflowproto 10", "etc/hostname.pflow0: no collector; write 'flowdst ADDRESS:PORT'"),
            ("flowdst 192.0.2.9 pflowproto 10", "etc/hostname.pflow0:1: '192.0.2.9': write address and port"),
            ("flowdst 192.0.2.9:1 pflowproto 10\nflowsrc ::1", "differ in family"),
            ("flowdst 192.0.2.9:1 pflowproto 10\nrdomain 1", "etc/hostname.pflow0:2: 'rdomain' is not known"),
            ("pflowproto 10 flowdst", "'flowdst' needs a value"),
        ] {
            let (_, refused) = planned(text);
            assert!(refused.iter().any(|why| why.contains(wanted)), "{text}: {refused:?}");
        }
    }
}
