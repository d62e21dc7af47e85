//! Frames for packets that a filter sends itself.
use artery_filter::engine::{ReplyDirection, ReplyPacket};

/// A frame that carries an answer behind the link header of the frame that caused it. The Ethernet addresses
/// are swapped if the answer goes back to the sender.
pub(super) fn reply_frame(answer: &ReplyPacket, cause: &[u8], header: usize) -> Option<Vec<u8>> {
    let mut frame = cause.get(..header)?.to_vec();
    if answer.towards == ReplyDirection::Sender {
        let (destination, rest) = frame.split_at_mut_checked(6)?;
        destination.swap_with_slice(rest.get_mut(..6)?);
    }
    frame.extend(&answer.bytes);
    Some(frame)
}
