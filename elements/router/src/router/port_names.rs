//! The host's interfaces of ports, as arguments give them.
use artery_engine::{ArgError, Args};

/// Ports, each with the interface of the host that stands for it.
pub(crate) type PortNames = Vec<(String, String)>;

/// The arguments PORT, each `PORT INTERFACE`.
pub(crate) fn parse_port_names(args: &Args<'_>) -> Result<PortNames, ArgError> {
    let read = |text: &String| match text.split_whitespace().collect::<Vec<_>>()[..] {
        [port, interface] => Ok((port.to_string(), args.names().device_name(interface).to_string())),
        _ => Err(ArgError::wrong_at(text, format!("PORT {text}: write PORT INTERFACE, as in eth1 hp-eth1"))),
    };
    args.rest("PORT").iter().map(read).collect()
}
