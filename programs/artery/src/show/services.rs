//! `artery show services`.
use super::table::Table;
use crate::control_socket::Client;
use crate::ip_router::{elements, list, text};
use anyhow::{Context as _, bail};
use serde_json::{Value, json};

const CLASS: &str = "FlowBalancer";

/// What all balancers of the router say.
pub(super) fn document(client: &mut Client) -> anyhow::Result<Value> {
    let mut balancers = Vec::new();
    for element in elements(client)?.into_iter().filter(|element| element.class == CLASS) {
        let said = client.query(&format!("{}.status_json", element.name), "")?;
        let mut balancer: Value = serde_json::from_str(&said)
            .with_context(|| format!("what {} says by status_json makes no sense", element.name))?;
        balancer["element"] = element.name.into();
        balancers.push(balancer);
    }
    if balancers.is_empty() {
        bail!("this router has no services; 'artery router --service' and FlowBalancers have some");
    }
    Ok(json!({ "schema_version": 1, "version": crate::report::VERSION, "balancers": balancers }))
}

/// A row for each member, and a line with the digest of each balancer.
pub(super) fn table(document: &Value) -> String {
    let mut table = Table::headed("SERVICE | METHOD | MEMBER | ADDRESS | WEIGHT: | STATE | SHARE:");
    let mut digests = String::new();
    for balancer in list(document, "balancers") {
        let services: Vec<&str> = list(balancer, "services").iter().filter_map(Value::as_str).collect();
        let (services, method) = (services.join(", "), text(balancer, "method"));
        if let Some(digest) = balancer["digest"].as_str() {
            digests += &format!("{services}: the table of {method} has digest {digest}\n");
        }
        let members = list(balancer, "members");
        if members.is_empty() {
            let nothing = || String::new();
            table.row([services, method, nothing(), nothing(), nothing(), nothing(), nothing()]);
            continue;
        }
        for (n, member) in members.iter().enumerate() {
            let of_first = |text: &str| if n == 0 { text.to_string() } else { String::new() };
            let cells = [
                of_first(&services),
                of_first(&method),
                text(member, "name"),
                address(member),
                text(member, "weight"),
                state(member).to_string(),
                member["share"].as_f64().map_or(String::new(), |share| format!("{:.1}%", share * 100.0)),
            ];
            if n == 0 { table.row(cells) } else { table.more(cells) }
        }
    }
    table.drain_text() + &digests
}

fn address(member: &Value) -> String {
    let (address, port) = (text(member, "address"), text(member, "port"));
    match (port.is_empty(), address.contains(':')) {
        (true, _) => address,
        (false, true) => format!("[{address}]:{port}"),
        (false, false) => format!("{address}:{port}"),
    }
}

fn state(member: &Value) -> &'static str {
    match (member["up"] == true, member["takes_new"] == true) {
        (true, true) => "up",
        (true, false) => "drained",
        (false, true) => "down, as all are",
        (false, false) => "down",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn members_have_rows_and_tables_digests() {
        let member = |name: &str, address: &str, port: Option<u16>, weight: u32, share: Option<f64>| {
            json!({ "name": name, "address": address, "port": port, "weight": weight, "up": true,
                "takes_new": weight > 0, "share": share })
        };
        let document = json!({ "schema_version": 1, "balancers": [
            { "element": "s1", "services": ["192.0.2.1:80 tcp"], "method": "maglev", "digest": "00ff",
              "members": [member("web1", "10.0.0.1", Some(8080), 2, Some(1.0)),
                member("web2", "10.0.0.2", None, 0, Some(0.0))] },
            { "element": "s2", "services": ["2001:db8::1"], "method": "least-loaded", "digest": null,
              "members": [member("six", "2001:db8:1::1", Some(80), 1, None)] },
            { "element": "s3", "services": ["192.0.2.3"], "method": "hash", "digest": null, "members": [] },
        ]});
        let expected = "\
SERVICE           METHOD        MEMBER  ADDRESS             WEIGHT  STATE     SHARE
192.0.2.1:80 tcp  maglev        web1    10.0.0.1:8080            2  up       100.0%
                                web2    10.0.0.2                 0  drained    0.0%
2001:db8::1       least-loaded  six     [2001:db8:1::1]:80       1  up            -
192.0.2.3         hash          -       -                        -  -             -
192.0.2.1:80 tcp: the table of maglev has digest 00ff
";
        assert_eq!(table(&document), expected);
    }
}
