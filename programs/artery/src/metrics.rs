//! Metrics in the text format of Prometheus or as OpenMetrics, and the HTTP server for them.
mod exposition;
mod http;
mod router;

pub(crate) use exposition::{Exposition, Kind};
pub(crate) use http::Http;
pub(crate) use router::of_router;

use crate::control_socket::Listeners;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;

/// Where metrics are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum MetricsAddress {
    Tcp(SocketAddr),
    Unix(PathBuf),
}

impl FromStr for MetricsAddress {
    type Err = String;
    fn from_str(text: &str) -> Result<MetricsAddress, String> {
        let path = text.strip_prefix("unix:").or_else(|| text.starts_with('/').then_some(text));
        match path {
            Some("") => Err("write a path after 'unix:'".to_string()),
            Some(path) => Ok(MetricsAddress::Unix(path.into())),
            None => text.parse().map(MetricsAddress::Tcp).map_err(|_| {
                "write an address and a port, such as 127.0.0.1:9470 or [::1]:9470, or unix:PATH".to_string()
            }),
        }
    }
}

/// Opens the sockets that serve metrics. No client is answered before they are served.
pub(crate) fn listen(addresses: &[MetricsAddress]) -> anyhow::Result<Listeners> {
    let mut listeners = Listeners::default();
    for address in addresses {
        match address {
            MetricsAddress::Tcp(address) => listeners.add_tcp(*address)?,
            MetricsAddress::Unix(path) => listeners.add_unix(path, None)?,
        }
    }
    Ok(listeners)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_are_at_an_address_or_a_path() {
        let parsed = |text: &str| text.parse::<MetricsAddress>();
        assert_eq!(parsed("[::1]:80"), Ok(MetricsAddress::Tcp("[::1]:80".parse().unwrap())));
        assert_eq!(parsed("unix:m"), Ok(MetricsAddress::Unix("m".into())));
        assert_eq!(parsed("/run/m"), Ok(MetricsAddress::Unix("/run/m".into())));
        for wrong in ["", "9470", "localhost:9470", "unix:", "10.0.0.1"] {
            assert!(parsed(wrong).is_err(), "{wrong}");
        }
    }
}
