//! The sessions of PPPoE that the kernel has in this network namespace, as `/proc/net/pppoe` lists them.
//!
//! It does not say which interface of PPP a session belongs to.
use artery_wire::EtherAddr;
use std::{fs, io};

const LIST: &str = "/proc/thread-self/net/pppoe";

/// A session, by what its frames have.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ListedSession {
    pub(crate) number: u16,
    pub(crate) peer: EtherAddr,
    /// The name that the interface of its frames had when it began.
    pub(crate) carrier: String,
}

/// The session whose frames an interface carries, if it is the only one there; otherwise how many there are.
pub(crate) fn find_only(carrier: &str) -> io::Result<Result<ListedSession, usize>> {
    let text = match fs::read_to_string(LIST) {
        // The module is not loaded.
        Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
        text => text?,
    };
    let mut there: Vec<_> = parse_list(&text).into_iter().filter(|one| one.carrier == carrier).collect();
    Ok(match (there.pop(), there.len()) {
        (Some(one), 0) => Ok(one),
        (one, others) => Err(others + usize::from(one.is_some())),
    })
}

fn parse_list(text: &str) -> Vec<ListedSession> {
    text.lines().skip(1).filter_map(parse_session).collect()
}

fn parse_session(line: &str) -> Option<ListedSession> {
    let mut words = line.split_whitespace();
    let (number, peer) = (words.next()?, words.next()?.parse().ok()?);
    // The kernel prints the number as it lies in memory, where it is as on the wire.
    let number = u16::try_from(u32::from_str_radix(number, 16).ok()?).ok()?;
    Some(ListedSession { number: u16::from_be(number), peer, carrier: words.next()?.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sessions_are_read_as_the_kernel_lists_them() {
        let number = format!("{:08X}", 0x1234_u16.to_be());
        let text = format!(
            "Id       Address              Device\n{number} 02:00:00:00:00:09     eth1\nodd\n{number} x y\n"
        );
        let peer = EtherAddr([2, 0, 0, 0, 0, 9]);
        let expected = ListedSession { number: 0x1234, peer, carrier: "eth1".to_owned() };
        assert_eq!(parse_list(&text), [expected]);
        assert_eq!(parse_list(""), []);
    }
}
