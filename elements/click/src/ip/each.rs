//! Processes a batch in which each packet is checked in place, and nearly all leave by one output.
use artery_engine::{Batch, Context, DropReason, Level, Packet};

/// Sends by output 0 the packets that `look` accepts; passes each other packet, with its error, to
/// `turn_aside`. While all are accepted, which is the rule, no packet is moved one by one.
#[inline]
pub(crate) fn send_each<Wrong>(
    batch: &mut Batch,
    cx: &mut Context<'_>,
    look: impl FnMut(&mut Packet) -> Result<(), Wrong>,
    turn_aside: impl FnMut(Wrong, Packet, &mut Context<'_>),
) {
    process_each(None, batch, cx, look, turn_aside);
}

/// Sends by output 0 the packets that `edit` could edit, and discards the others for the reason it gives.
#[inline]
pub(crate) fn edit_each(
    batch: &mut Batch,
    cx: &mut Context<'_>,
    edit: impl FnMut(&mut Packet) -> Result<(), DropReason>,
) {
    send_each(batch, cx, edit, |reason, packet, cx| cx.discard(packet, reason));
}

/// Like [`send_each`] at a point where packets of monitored ports end.
#[inline]
pub(crate) fn send_each_or_exit<Wrong>(
    level: Level,
    batch: &mut Batch,
    cx: &mut Context<'_>,
    look: impl FnMut(&mut Packet) -> Result<(), Wrong>,
    turn_aside: impl FnMut(Wrong, Packet, &mut Context<'_>),
) {
    process_each(Some(level), batch, cx, look, turn_aside);
}

#[inline]
fn process_each<Wrong>(
    exit: Option<Level>,
    batch: &mut Batch,
    cx: &mut Context<'_>,
    mut look: impl FnMut(&mut Packet) -> Result<(), Wrong>,
    mut turn_aside: impl FnMut(Wrong, Packet, &mut Context<'_>),
) {
    let mut first = None;
    for (number, packet) in batch.iter_mut().enumerate() {
        if let Err(wrong) = look(packet) {
            first = Some((number, wrong));
            break;
        }
    }
    let Some((number, wrong)) = first else {
        if let Some(level) = exit {
            cx.drop_monitored(level, batch);
        }
        return cx.send_all(0, batch);
    };
    let mut wrong = Some(wrong);
    for (at, mut packet) in batch.drain().enumerate() {
        let looked = match at {
            at if at < number => Ok(()),
            at if at == number => wrong.take().map_or(Ok(()), Err),
            _ => look(&mut packet),
        };
        match looked {
            Ok(()) if exit.is_some_and(|level| cx.is_monitored_at(level, &packet)) => {
                cx.discard(packet, DropReason::Monitored);
            }
            Ok(()) => cx.send(0, packet),
            Err(wrong) => turn_aside(wrong, packet, cx),
        }
    }
}
