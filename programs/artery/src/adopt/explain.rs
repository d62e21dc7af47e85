//! What a running `artery adopt` says of one packet, as a document.
use artery_adopt::{ExplainedStep, Session};
use artery_common::flow_text::{PacketSpec, parse_packet};
use artery_common::hex::to_hex;
use artery_wire::{EtherAddr, TcpFlags, describe};
use serde_json::{Value, json};

/// Whose frames are explained; it does not matter.
const SENDER: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 0xfe]);

/// Answers `PORT PACKET`, the packet as [`parse_packet`] takes it.
pub(super) fn explain(session: &mut Session, question: &str) -> Result<String, String> {
    let (port, packet) = question.trim().split_once(char::is_whitespace).unwrap_or((question.trim(), ""));
    let links = session.driver().mirror();
    let mac = links.links().find(|link| link.name == port).and_then(|link| link.mac).unwrap_or(SENDER);
    let frame = match parse_packet(packet)? {
        PacketSpec::Flow(flow) => flow.with_default_flags(TcpFlags::ACK).build_frame(mac, SENDER)?,
        PacketSpec::Frame(bytes) => bytes,
    };
    let explained = session.explain(port, &frame)?;
    let stage =
        |step: &ExplainedStep| json!({ "stage": step.stage, "ok": step.is_passed, "text": step.text });
    let document: Value = json!({
        "schema_version": 1,
        "version": crate::report::VERSION,
        "packet": describe::frame(&frame).to_string(),
        "in": port,
        "frame": to_hex(&frame),
        "stages": explained.steps.iter().map(stage).collect::<Vec<_>>(),
        "verdict": {
            "kind": if explained.reason.is_none() { "forward" } else { "kernel" },
            "reason": explained.reason.map(|reason| reason.name()),
            "text": explained.verdict,
        },
    });
    Ok(document.to_string())
}
