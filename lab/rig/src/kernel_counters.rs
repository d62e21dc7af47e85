//! The kernel's counters of protocols.

use super::error::{Result, RigError};
use super::host::Host;

impl Host {
    /// A counter of a protocol, by the name that nstat(8) gives it: `IpForwDatagrams`, `Ip6OutForwDatagrams`,
    /// `TcpOutRsts`.
    pub fn kernel_counter(&self, name: &str) -> Result<u64> {
        let (output, process) = self.command(["cat", "/proc/net/snmp", "/proc/net/snmp6"]).finish()?;
        let value = value_of(&output.stdout, name);
        value.ok_or_else(|| RigError::Unreadable(process.failure(), "a counter of that name"))
    }
}

/// `/proc/net/snmp` has a line of names and one of values for each protocol, `snmp6` a line for each counter.
fn value_of(text: &str, name: &str) -> Option<u64> {
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let value = match line.split_once(": ") {
            Some((protocol, names)) => {
                let values = lines.next()?.split_once(": ")?.1;
                let mut pairs = names.split(' ').zip(values.split(' '));
                pairs.find(|(column, _)| name.strip_prefix(protocol) == Some(column)).map(|(_, value)| value)
            }
            None => line.strip_prefix(name).filter(|value| value.starts_with(char::is_whitespace)),
        };
        if let Some(value) = value {
            return value.trim().parse().ok();
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_of_both_files_are_found_by_their_whole_names() {
        let text = "Ip: Forwarding ForwDatagrams\nIp: 1 7\nIcmp: InMsgs InEchos\nIcmp: 3 4\n\
                    Ip6OutForwDatagramsMore\t1\nIp6OutForwDatagrams   \t9\n";
        let found = |name: &str| value_of(text, name);
        assert_eq!([found("IpForwDatagrams"), found("IcmpInEchos")], [Some(7), Some(4)]);
        assert_eq!([found("Ip6OutForwDatagrams"), found("IpInEchos")], [Some(9), None]);
    }
}
