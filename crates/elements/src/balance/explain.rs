//! What FlowBalancer says it would do with a packet; nothing is counted or changed by that.
use super::about::Between;
use super::flow_balancer::FlowBalancer;
use super::known::{Chooser, Known};
use super::service::Service;
use crate::router::flow_text::{Described, described};
use crate::router::show_routes::{SCHEMA, Schema, json};
use artery_engine::{Context, HandlerError};
use artery_table::balance::{Choice, Member, MemberId};
use artery_table::flow::{Flow4, Flow6, Scope, Seen};
use artery_wire::{EtherAddr, EtherType, Ethernet};
use serde::Serialize;
use std::net::IpAddr;

/// Who sends described packets, and to whom: a balancer looks at neither.
const STATION: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 0xfe]);

#[derive(Serialize)]
struct ExplanationJson {
    #[serde(flatten)]
    schema: Schema,
    /// The service that the packet is for; the rest is said of such packets only.
    service: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    member: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    address: Option<IpAddr>,
    /// The member's port, where that is another than the service's.
    #[serde(skip_serializing_if = "Option::is_none")]
    port: Option<u16>,
    /// Whether this worker remembers the flow.
    is_known: bool,
    method: String,
    /// Whether the packet gets the member's address in the place of the service's.
    nat: bool,
}

/// A packet of a service, and who gets it.
struct Assigned {
    service: Service,
    member: Option<MemberId>,
    is_known: bool,
}

/// The handler `explain_json`: `FLOW`, as IPRouter's takes it. A line for each worker, which each have flows
/// of their own.
pub(super) fn explain_packet(
    b: &mut FlowBalancer,
    text: &str,
    choice: &Choice,
    cx: &mut Context<'_>,
) -> Result<String, HandlerError> {
    let frame = match described(text).map_err(HandlerError::Refused)? {
        Described::Flow(flow) => flow.frame(STATION, STATION).map_err(HandlerError::Refused)?,
        Described::Frame(bytes) => bytes,
    };
    let ether = Ethernet::new(&frame[..]).ok();
    let packet = ether.as_ref().map_or(&[][..], |ether| ether.payload());
    let FlowBalancer { shared, local, follow, v4, v6, .. } = b;
    let by = Chooser { choice, local, follow, seed: &shared.seed, now: cx.now().since_epoch() };
    let assigned = match ether.as_ref().map(|ether| ether.ether_type()) {
        Some(EtherType::IPV4) => assign_member::<Flow4>(v4, &by, packet, &shared.services),
        Some(EtherType::IPV6) => assign_member::<Flow6>(v6, &by, packet, &shared.services),
        _ => None,
    };
    let member = assigned.as_ref().and_then(|assigned| choice.member(assigned.member?.action()));
    Ok(json(&ExplanationJson {
        schema: SCHEMA,
        service: assigned.as_ref().map(|assigned| assigned.service.to_string()),
        member: member.map(|member| member.name.to_string()),
        address: member.map(|member| member.address),
        port: member.and_then(|member: &Member| member.port),
        is_known: assigned.is_some_and(|assigned| assigned.is_known),
        method: choice.method().to_string(),
        nat: shared.nat.is_some(),
    }) + "\n")
}

fn assign_member<K: Between>(
    known: &mut Known<K>,
    by: &Chooser<'_>,
    packet: &[u8],
    services: &[Service],
) -> Option<Assigned> {
    let Seen { key, .. } = K::of(packet, Scope::Connection, 0)?;
    let ([_, address], [_, port]) = (key.addresses(), key.ports());
    let service = *services.iter().find(|service| service.is_at(address, port, key.protocol()))?;
    let is_known = known.flows.as_mut().is_some_and(|flows| flows.find(&key).is_some());
    Some(Assigned { service, member: by.likely(&mut known.flows, &key), is_known })
}
