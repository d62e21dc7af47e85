//! Packets for services: which member gets one, and what becomes of it on its way there.
use crate::ip_router::{IpRouter, text};
use serde_json::{Value, json};
use std::net::{IpAddr, SocketAddr};

/// The class of elements that share out what services get.
const BALANCER: &str = "FlowBalancer";

/// A packet for a service.
pub(super) struct Served {
    balancer: String,
    /// What the balancer says of the packet (`explain_json`).
    said: Value,
}

/// The service that a packet is for, if there is one.
pub(super) fn find_service(router: &mut IpRouter, packet: &str) -> anyhow::Result<Option<Served>> {
    for balancer in router.of_class(BALANCER)? {
        let mut said = router.query_element(&balancer, "explain_json", packet)?;
        // Each worker has its own flow table; for a new flow all would choose alike.
        let known = said.iter().position(|said| said["is_known"] == true).unwrap_or(0);
        if !said.is_empty() && said[known]["service"].is_string() {
            return Ok(Some(Served { balancer, said: said.swap_remove(known) }));
        }
    }
    Ok(None)
}

impl Served {
    /// The router's explanation with the service's step in front; `plain` is that of a packet for no service.
    pub(super) fn explain_with_router(
        &self,
        router: &mut IpRouter,
        came_by: &str,
        packet: &str,
        plain: Value,
    ) -> anyhow::Result<Value> {
        let Some(question) = self.router_question(came_by, packet) else {
            return Ok(self.end_at_service(plain));
        };
        let mut document = router.query("explain_json", &question)?;
        document["packet"] = plain["packet"].clone();
        if let Some(stages) = document["stages"].as_array_mut() {
            // The IPRouter's stages lack the service: its stage goes behind the arrival, which both have.
            stages.insert(stages.len().min(1), self.service_stage());
        }
        Ok(document)
    }

    /// The query to the router about the packet behind the balancer; None where no member gets it.
    fn router_question(&self, came_by: &str, packet: &str) -> Option<String> {
        let address: IpAddr = text(&self.said, "address").parse().ok()?;
        match self.said["nat"] == true {
            false => Some(format!("{came_by} towards {address} {packet}")),
            true => Some(format!("{came_by} {}", self.translate_destination(address, packet)?)),
        }
    }

    /// The packet with the member's address as its destination; None for a frame that is given by its bytes.
    fn translate_destination(&self, address: IpAddr, packet: &str) -> Option<String> {
        let (source, rest) = packet.split_once('>')?;
        let rest = rest.trim_start();
        let (destination, options) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let own = destination.parse::<SocketAddr>().ok()?.port();
        let port = self.said["port"].as_u64().map_or(own, |port| port as u16);
        Some(format!("{source}> {} {options}", SocketAddr::new(address, port)))
    }

    fn service_stage(&self) -> Value {
        let said = |key| text(&self.said, key);
        let (service, balancer) = (said("service"), &self.balancer);
        let Some(address) = self.said["address"].as_str() else {
            return json!({ "stage": "service", "ok": false,
                "text": format!("{service}, of {balancer}: no member can take it"),
                "service": service, "balancer": balancer });
        };
        let how = match self.said["is_known"] == true {
            true => "whose flow this is".to_string(),
            false => format!("which a new flow gets by {}", said("method")),
        };
        let port = self.said["port"].as_u64().map_or(String::new(), |port| format!(" port {port}"));
        let nat = if self.said["nat"] == true { ", as its destination" } else { "" };
        json!({ "stage": "service", "ok": true,
            "text": format!("{service}, of {balancer}: to {} at {address}{port}{nat}, {how}", said("member")),
            "service": service, "balancer": balancer, "member": said("member"), "address": address,
            "is_known": self.said["is_known"] })
    }

    /// The explanation ends at the service: no member takes the packet, or the stages after it are unknown.
    fn end_at_service(&self, mut plain: Value) -> Value {
        let stage = self.service_stage();
        let is_taken = stage["ok"] == true;
        let arrival = plain["stages"].as_array().and_then(|stages| stages.first().cloned());
        plain["stages"] = arrival.into_iter().chain([stage]).collect();
        plain["verdict"] = match is_taken {
            true => json!({ "kind": "forward", "text": "goes on to the member" }),
            false => {
                json!({ "kind": "discard", "text": "no member of the service can take it",
                    "reason": "no-member" })
            }
        };
        plain
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn served(said: Value) -> Served {
        Served { balancer: "service1".into(), said }
    }

    #[test]
    fn the_router_is_asked_about_what_the_balancer_makes_of_the_packet() {
        let said = json!({ "service": "192.0.2.1:80 tcp", "member": "w1", "address": "10.0.2.5",
            "is_known": false,
            "method": "maglev", "nat": false });
        let packet = "10.1.2.3:9 > 192.0.2.1:80 tcp ttl 9";
        let direct = served(said.clone());
        let found = direct.router_question("eth1", packet).unwrap();
        assert_eq!(found, format!("eth1 towards 10.0.2.5 {packet}"));
        let stage = direct.service_stage();
        assert_eq!(
            stage["text"],
            "192.0.2.1:80 tcp, of service1: to w1 at 10.0.2.5, which a new flow gets by maglev"
        );
        let mut said = said;
        (said["nat"], said["port"], said["is_known"]) = (true.into(), 8080.into(), true.into());
        let nat = served(said);
        assert_eq!(nat.router_question("eth1", packet).unwrap(), "eth1 10.1.2.3:9 > 10.0.2.5:8080 tcp ttl 9");
        assert_eq!(nat.router_question("eth1", "frame 0200"), None);
        assert!(
            nat.service_stage()["text"]
                .as_str()
                .unwrap()
                .ends_with("port 8080, as its destination, whose flow this is")
        );
    }

    #[test]
    fn where_no_member_can_take_it_it_ends_at_the_service() {
        let none =
            served(json!({ "service": "192.0.2.1:80", "is_known": false, "method": "maglev", "nat": false }));
        let plain =
            json!({ "stages": [{ "stage": "arrival", "ok": true }, { "stage": "header", "ok": true }] });
        assert_eq!(none.router_question("eth1", "a > b"), None);
        let ended = none.end_at_service(plain);
        assert_eq!(ended["stages"].as_array().unwrap().len(), 2);
        assert_eq!(ended["verdict"]["reason"], "no-member");
    }
}
