//! Why the kernel refuses a request of netlink.
use netlink_packet_core::ErrorMessage;
use std::io;

/// The error that a message says. `ErrorMessage::to_io` of netlink-packet-core 0.9 negates the number and
/// panics, where overflows are checked, for `i32::MIN`, which no kernel says.
pub(crate) fn refusal(message: &ErrorMessage) -> io::Error {
    match message.raw_code().checked_neg() {
        Some(code) if code > 0 => io::Error::from_raw_os_error(code),
        _ => io::ErrorKind::InvalidData.into(),
    }
}

#[cfg(test)]
mod tests {
    use crate::{genetlink, rtnetlink};
    use std::io::ErrorKind;

    #[test]
    fn an_error_number_without_a_positive_one_is_no_panic() {
        let bytes = |code: i32| {
            let header = [20, 0, 0, 0, 2, 0, 0x0e, 0x2b, 0x34, 0x26, 0x14, 0x0e, 0x0c, 0, 0, 0];
            [&header[..], &code.to_ne_bytes()].concat()
        };
        genetlink::survive(&bytes(i32::MIN));
        rtnetlink::survive(&bytes(i32::MIN));
        for nonsense in [i32::MIN, 5] {
            assert_eq!(rtnetlink::read(&bytes(nonsense)).unwrap_err().kind(), ErrorKind::InvalidData);
            assert_eq!(genetlink::read(&bytes(nonsense)).unwrap_err().kind(), ErrorKind::InvalidData);
        }
        assert_eq!(rtnetlink::read(&bytes(-libc::EPERM)).unwrap_err().raw_os_error(), Some(libc::EPERM));
    }
}
