//! Frames for what a filter says itself.
use artery_filter::engine::{Answer, Towards};

/// A frame that carries an answer, with the link header of the frame that brought it about: turned round where it goes back to
/// the sender.
pub(super) fn frame(answer: &Answer, cause: &[u8], header: usize) -> Option<Vec<u8>> {
    let mut frame = cause.get(..header)?.to_vec();
    if answer.towards == Towards::Sender {
        let (destination, rest) = frame.split_at_mut_checked(6)?;
        destination.swap_with_slice(rest.get_mut(..6)?);
    }
    frame.extend(&answer.bytes);
    Some(frame)
}
