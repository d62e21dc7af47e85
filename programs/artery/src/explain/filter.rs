//! Packet filters around the router: what they do with a packet where it comes in and where it leaves.
use crate::ip_router::{IpRouter, text};
use serde_json::{Value, json};

/// What packet filters have made of a packet up to now.
pub(super) struct FilteredPacket {
    /// The packet as it goes on, in the words of a query.
    pub(super) packet: String,
    /// Where `route-to` sends it.
    pub(super) gateway: Option<String>,
    /// The filters' steps.
    pub(super) stages: Vec<Value>,
    /// The verdict, if a filter ends it.
    pub(super) verdict: Option<Value>,
    tag: u64,
}

impl FilteredPacket {
    /// A packet that no filter has seen.
    pub(super) fn new(packet: &str) -> FilteredPacket {
        FilteredPacket { packet: packet.into(), gateway: None, stages: Vec::new(), verdict: None, tag: 0 }
    }

    /// Asks the filters at a port about its frame, which comes `in` there or goes `out`.
    pub(super) fn ask(
        &mut self,
        router: &mut IpRouter,
        direction: &str,
        port: &str,
        frame: &str,
    ) -> anyhow::Result<()> {
        let mut frame = frame.to_string();
        for filter in router.filters().to_vec() {
            let question = format!("{direction} {port} tag {} {frame}", self.tag);
            let mut said = router.query_element(&filter, "explain_json", &question)?;
            // Each worker has its own states; without one all would decide alike.
            let known = said.iter().position(|said| said["is_known"] == true).unwrap_or(0);
            if said.is_empty() || said[known]["is_here"] != true {
                continue;
            }
            let said = said.swap_remove(known);
            self.stages.push(stage(&filter, direction, &said));
            if said["passes"] != true {
                self.verdict = Some(verdict(&filter, &said));
                return Ok(());
            }
            self.tag = said["tag"].as_u64().unwrap_or(0);
            if said["is_changed"] == true {
                frame = text(&said, "frame");
                self.packet = format!("frame {frame}");
            }
            self.gateway = said["gateway"].as_str().map(str::to_string).or(self.gateway.take());
        }
        Ok(())
    }
}

fn stage(filter: &str, direction: &str, said: &Value) -> Value {
    let mut stage = json!({ "stage": format!("filter {direction}"), "ok": said["passes"],
        "text": format!("{filter}: {}", text(said, "text")),
        "filter": filter, "is_known": said["is_known"] });
    for key in ["rule", "anchor", "rule_text", "gateway"] {
        if !said[key].is_null() {
            stage[key] = said[key].clone();
        }
    }
    stage
}

fn verdict(filter: &str, said: &Value) -> Value {
    match said["reason"].as_str() {
        Some(reason) => json!({ "kind": "discard", "reason": reason,
            "text": format!("Dropped by the packet filter {filter}: {reason}.") }),
        None => json!({ "kind": "hold", "text": format!("Held by the packet filter {filter}.") }),
    }
}
