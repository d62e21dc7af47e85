//! Interfaces of PPP, with the sessions of PPPoE that the operator says they are.
use artery_adopt::blockers::{Port, PortTunnel};
use std::str::FromStr;

/// `--pppoe PPP=PORT`: the interface of PPP, and the one whose only session it is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedSession {
    name: String,
    carrier: String,
}

impl FromStr for NamedSession {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<NamedSession, &'static str> {
        let names = text.split_once('=').filter(|(name, carrier)| !name.is_empty() && !carrier.is_empty());
        let (name, carrier) = names.ok_or("write it as ppp0=eth1")?;
        Ok(NamedSession { name: name.to_owned(), carrier: carrier.to_owned() })
    }
}

/// Notes in ports which sessions they are.
pub(super) fn name_sessions(ports: &mut [Port], sessions: &[NamedSession]) -> anyhow::Result<()> {
    for (at, NamedSession { name, carrier }) in sessions.iter().enumerate() {
        let others = &sessions[..at];
        anyhow::ensure!(
            others.iter().all(|other| other.name != *name && other.carrier != *carrier),
            "--pppoe {name}={carrier}: name each interface once; of several sessions at one, the kernel does \
             not say which is which"
        );
        let is_ppp = |port: &&mut Port| port.name == *name && matches!(port.tunnel, Some(PortTunnel::Ppp(_)));
        let Some(port) = ports.iter_mut().find(is_ppp) else {
            anyhow::bail!(
                "--pppoe {name}={carrier}: {name} is not an interface of PPP among the ports; name it there"
            );
        };
        port.tunnel = Some(PortTunnel::Ppp(Some(carrier.clone())));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(words: &[&str]) -> Result<Option<PortTunnel>, String> {
        let ppp0 =
            Port { index: 7, name: "ppp0".into(), tunnel: Some(PortTunnel::Ppp(None)), ..Port::default() };
        let mut ports = [Port { name: "eth1".into(), ..Port::default() }, ppp0];
        let sessions: Vec<NamedSession> = words.iter().map(|word| word.parse().unwrap()).collect();
        name_sessions(&mut ports, &sessions).map_err(|error| error.to_string())?;
        let [_, ppp0] = ports;
        Ok(ppp0.tunnel)
    }

    #[test]
    fn a_port_is_the_session_that_it_is_said_to_be() {
        assert_eq!(noted(&[]), Ok(Some(PortTunnel::Ppp(None))));
        assert_eq!(noted(&["ppp0=eth1"]), Ok(Some(PortTunnel::Ppp(Some("eth1".to_owned())))));
        let refused = noted(&["eth1=eth0"]).unwrap_err();
        assert!(refused.contains("eth1 is not an interface of PPP among the ports"), "{refused}");
        let refused = noted(&["ppp0=eth1", "ppp1=eth1"]).unwrap_err();
        assert!(refused.contains("name each interface once"), "{refused}");
        for wrong in ["ppp0", "=eth1", "ppp0=", ""] {
            assert_eq!(wrong.parse::<NamedSession>(), Err("write it as ppp0=eth1"));
        }
    }
}
