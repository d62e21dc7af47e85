//! Gateways that are watched by BFD, of `artery router`: the option, what can be wrong
//! with it, and its configuration.
use super::Plan;
use crate::options::values::seconds;
use artery_l3::bfd::SessionSettings;
use artery_l3::router::Tables;
use std::fmt::Write as _;
use std::net::IpAddr;

/// A gateway that is watched.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Watched {
    option: String,
    address: IpAddr,
    port: Option<String>,
    settings: SessionSettings,
}

/// Parses the value of `--bfd`: `GATEWAY[%PORT][=INTERVAL[*MULTIPLIER]]`.
pub(super) fn read(text: &str) -> Result<Watched, String> {
    let option = format!("--bfd {text}");
    let wrong = |why: String| format!("{option}: {why}");
    let (gateway, times) =
        text.split_once('=').map_or((text, None), |(gateway, times)| (gateway, Some(times)));
    let (address, port) = match gateway.split_once('%') {
        Some((address, port)) => (address, Some(port.to_string())),
        None => (gateway, None),
    };
    let address = address.parse().map_err(|_| {
        wrong(format!(
            "'{gateway}' is not a valid gateway; write --bfd 10.0.2.254 or --bfd fe80::1%eth2=50ms*3"
        ))
    })?;
    let settings = times.map_or(Ok(SessionSettings::default()), settings).map_err(wrong)?;
    Ok(Watched { option, address, port, settings })
}

/// Parses the times, `INTERVAL[*MULTIPLIER]`.
fn settings(text: &str) -> Result<SessionSettings, String> {
    let (interval, multiplier) =
        text.split_once('*').map_or((text, None), |(interval, multiplier)| (interval, Some(multiplier)));
    let interval = seconds(interval).map_err(|_| {
        format!(
            "'{interval}' is not a valid interval; write a time such as 50ms or 1s, and perhaps a \
             multiplier as in 50ms*3"
        )
    })?;
    let multiplier = match multiplier {
        None => SessionSettings::default().multiplier,
        Some(text) => text.parse().map_err(|_| {
            format!("'{text}' is not a valid multiplier; write a number from 1 to 255, as in 50ms*3")
        })?,
    };
    SessionSettings::new(interval, multiplier).map_err(|error| error.to_string())
}

/// Adds what contradicts the router's ports, or is given twice, to `mistakes`.
pub(super) fn judge(plan: &Plan, tables: &Tables, mistakes: &mut Vec<String>) {
    let mut known = Vec::new();
    for watched in &plan.bfd {
        let port = watched.port.as_ref().map(|name| {
            tables.find_port(name).ok_or_else(|| {
                let names: Vec<String> = tables.ports().into_iter().map(|port| port.name).collect();
                format!("'{name}' is not a port of the router; its ports are {}", names.join(", "))
            })
        });
        let found = port.transpose().and_then(|port| {
            tables.port_of_gateway(watched.address, port).map_err(|error| error.to_string())
        });
        let why = match found {
            Err(why) => why,
            Ok(port) if known.contains(&(port, watched.address)) => {
                "the gateway is watched already; give each one --bfd".to_string()
            }
            Ok(port) => {
                known.push((port, watched.address));
                continue;
            }
        };
        mistakes.push(format!("{}: {why}", watched.option));
    }
}

/// The element, if a gateway is watched. It stands in front of the router's inputs.
pub(super) fn text(plan: &Plan) -> String {
    if plan.bfd.is_empty() {
        return String::new();
    }
    let ports = plan.ports.len();
    let sessions = plan.bfd.iter().map(|watched| {
        let port = watched.port.as_ref().map_or(String::new(), |port| format!("%{port}"));
        let SessionSettings { interval, multiplier } = watched.settings;
        let interval = interval.as_secs_f64() * 1000.0;
        format!(",\n    SESSION {}{port} INTERVAL {interval}ms MULTIPLIER {multiplier}", watched.address)
    });
    let mut text = format!(
        "
// The paths to these gateways are watched by BFD. Its packets come to the router, and those that it sends are
// for neighbors on the link of the port that their paint names.
bfd :: BFD(ip{});
",
        sessions.collect::<String>()
    );
    for n in 0..ports {
        let _ = writeln!(text, "bfd[{n}] -> [{n}] ip;");
    }
    let _ = writeln!(text, "bfd[{ports}] -> [{}] ip;", ports + 1);
    text
}

/// The input for packets that are addressed to the router itself.
pub(super) fn entrance(plan: &Plan) -> &'static str {
    if plan.bfd.is_empty() { "ip" } else { "bfd" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_gateway_may_have_a_port_an_interval_and_a_multiplier() {
        let of = |text: &str| {
            let Watched { address, port, settings, .. } = read(text).unwrap();
            (address.to_string(), port, settings.interval, settings.multiplier)
        };
        let ms = Duration::from_millis;
        assert_eq!(of("10.0.2.254"), ("10.0.2.254".into(), None, ms(300), 3));
        assert_eq!(of("fe80::1%eth2=50ms"), ("fe80::1".into(), Some("eth2".into()), ms(50), 3));
        assert_eq!(of("fd00::1=1.5*5"), ("fd00::1".into(), None, ms(1500), 5));
    }

    #[test]
    fn what_is_wrong_is_named_with_the_remedy() {
        for (wrong, expected) in [
            ("", "--bfd : '' is not a valid gateway; write --bfd 10.0.2.254 or --bfd fe80::1%eth2=50ms*3"),
            ("eth1", "'eth1' is not a valid gateway"),
            ("10.0.2.9=", "'' is not a valid interval; write a time such as 50ms or 1s"),
            ("10.0.2.9=fast", "'fast' is not a valid interval"),
            (
                "10.0.2.9=10ms",
                "--bfd 10.0.2.9=10ms: the interval 10ms is out of range; use one from 50ms to 60s",
            ),
            ("10.0.2.9=2m", "the interval 120s is out of range"),
            ("10.0.2.9=50ms*0", "the multiplier is 0; use one from 1 to 255"),
            (
                "10.0.2.9=50ms*256",
                "'256' is not a valid multiplier; write a number from 1 to 255, as in 50ms*3",
            ),
        ] {
            let error = read(wrong).unwrap_err();
            assert!(error.contains(expected), "{wrong}: {error}");
        }
    }
}
