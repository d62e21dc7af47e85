//! The interfaces of the machine, and what a router would get of each.
use crate::output::print_stdout;
use artery_device::{Interface, InterfaceSurvey, survey};
use clap::Args;

#[derive(Args)]
pub(crate) struct DevicesOptions {
    /// Show these interfaces only
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,
    /// List as JSON
    #[arg(long)]
    pub(crate) json: bool,
}

pub(crate) fn command(options: &DevicesOptions) -> anyhow::Result<u8> {
    let all = survey();
    if let Some(name) = options.names.iter().find(|name| all.iter().all(|one| &one.interface.name != *name)) {
        // Says what there is instead.
        Interface::find(name)?;
    }
    let wanted: Vec<InterfaceSurvey> = all
        .into_iter()
        .filter(|one| options.names.is_empty() || options.names.contains(&one.interface.name))
        .collect();
    match options.json {
        true => print_stdout(&format!("{:#}\n", json(&wanted)))?,
        false => print_stdout(&text(&wanted))?,
    }
    Ok(0)
}

fn json(all: &[InterfaceSurvey]) -> serde_json::Value {
    let device = |one: &InterfaceSurvey| {
        serde_json::json!({
            "name": one.interface.name,
            "index": one.interface.index,
            "state": state(&one.interface),
            "mtu": one.interface.mtu,
            "address": one.interface.mac.map(address),
            "driver": one.driver,
            "queues": one.queues,
            "offloads": one.offloads,
            "zero_copy": one.zero_copy,
            "gets": one.shared,
            "gets_alone": one.alone,
        })
    };
    let devices: Vec<_> = all.iter().map(device).collect();
    serde_json::json!({ "schema_version": 1, "version": crate::report::VERSION, "devices": devices })
}

/// A table, and what each gets below its row.
fn text(all: &[InterfaceSurvey]) -> String {
    let mut lines = row(["NAME", "STATE", "MTU", "DRIVER", "QUEUES", "ZERO-COPY", "OFFLOADS"]);
    for one in all {
        let zero_copy = one.zero_copy.map_or("?", |has| if has { "yes" } else { "no" });
        let (mtu, queues, offloads) =
            (one.interface.mtu.to_string(), one.queues.to_string(), one.offloads.join(" "));
        let driver = if one.driver.is_empty() { "-" } else { &one.driver };
        let offloads = if offloads.is_empty() { "-" } else { &offloads };
        lines +=
            &row([&one.interface.name, state(&one.interface), &mtu, driver, &queues, zero_copy, offloads]);
        lines += &format!("    FromDevice({0}) gets {1}.\n", one.interface.name, one.shared);
        if one.alone != one.shared {
            lines +=
                &format!("    FromDevice({0}, SNIFFER false) gets {1}.\n", one.interface.name, one.alone);
        }
    }
    lines
}

fn row(cells: [&str; 7]) -> String {
    let [name, state, mtu, driver, queues, zero_copy, offloads] = cells;
    format!("{name:<15} {state:<10} {mtu:>5} {driver:<12} {queues:>6} {zero_copy:<9} {offloads}\n")
}

fn state(interface: &Interface) -> &'static str {
    match (interface.up, interface.running) {
        (false, _) => "down",
        (true, false) => "no-carrier",
        (true, true) => "up",
    }
}

fn address(mac: [u8; 6]) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn one() -> InterfaceSurvey {
        let interface = Interface::find("lo").unwrap();
        InterfaceSurvey {
            interface: Interface { mtu: 65536, up: true, running: true, ..interface },
            driver: String::new(),
            queues: 1,
            offloads: vec!["tx", "tso"],
            zero_copy: Some(false),
            shared: "packet sockets, since so".into(),
            alone: "AF_XDP without copying".into(),
        }
    }

    #[test]
    fn the_table_says_what_an_interface_gets_and_when_it_would_get_another() {
        let expected = "\
NAME            STATE        MTU DRIVER       QUEUES ZERO-COPY OFFLOADS
lo              up         65536 -                 1 no        tx tso
    FromDevice(lo) gets packet sockets, since so.
    FromDevice(lo, SNIFFER false) gets AF_XDP without copying.
";
        assert_eq!(text(&[one()]), expected);
        let same = InterfaceSurvey { alone: one().shared, ..one() };
        assert!(!text(&[same]).contains("SNIFFER"));
    }

    #[test]
    fn json_has_an_object_for_each() {
        let json = json(&[one()]);
        assert_eq!((&json["devices"][0]["name"], &json["devices"][0]["queues"]), (&"lo".into(), &1.into()));
        assert_eq!(json["devices"][0]["state"], "up");
    }
}
