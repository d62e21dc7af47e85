//! Explains what FlowBalancer would do with a packet; nothing is counted or changed.
use super::about::KeyFromParts;
use super::balancer_worker::FlowBalancer;
use super::chooser::MemberChooser;
use super::known::FamilyFlows;
use super::service::Service;
use artery_common::flow_text::{PacketSpec, parse_packet};
use artery_common::json::{SCHEMA, Schema, to_json};
use artery_engine::{Context, HandlerError};
use artery_flow::balance::{Choice, Member, MemberId};
use artery_flow::{Flow4, Flow6, KeyedPacket, Scope};
use artery_wire::{EtherAddr, EtherType, Ethernet};
use serde::Serialize;
use std::net::IpAddr;

/// Source and destination MAC address of described packets, which a balancer ignores.
const STATION: EtherAddr = EtherAddr([2, 0, 0, 0, 0, 0xfe]);

#[derive(Serialize)]
struct ExplanationJson {
    #[serde(flatten)]
    schema: Schema,
    /// The service that the packet is for; the fields below exist only with it.
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
    /// Whether the packet's destination is rewritten to the member's address.
    nat: bool,
}

/// A packet of a service, and its member.
struct Assigned {
    service: Service,
    member: Option<MemberId>,
    is_known: bool,
}

/// The handler `explain_json`: `FLOW`, as for IPRouter. Returns a line for each worker, since each has
/// flows of its own.
pub(super) fn explain_packet(
    b: &mut FlowBalancer,
    text: &str,
    choice: &Choice,
    cx: &mut Context<'_>,
) -> Result<String, HandlerError> {
    let frame = match parse_packet(text).map_err(HandlerError::Refused)? {
        PacketSpec::Flow(flow) => flow.build_frame(STATION, STATION).map_err(HandlerError::Refused)?,
        PacketSpec::Frame(bytes) => bytes,
    };
    let ether = Ethernet::new(&frame[..]).ok();
    let packet = ether.as_ref().map_or(&[][..], |ether| ether.payload());
    let FlowBalancer { shared, local, followed, v4, v6, .. } = b;
    let by = MemberChooser { choice, local, followed, seed: &shared.seed, now: cx.now().since_epoch() };
    let assigned = match ether.as_ref().map(|ether| ether.ether_type()) {
        Some(EtherType::IPV4) => assign_member::<Flow4>(v4, &by, packet, &shared.services),
        Some(EtherType::IPV6) => assign_member::<Flow6>(v6, &by, packet, &shared.services),
        _ => None,
    };
    let member = assigned.as_ref().and_then(|assigned| choice.member(assigned.member?.action()));
    Ok(to_json(&ExplanationJson {
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

fn assign_member<K: KeyFromParts>(
    known: &mut FamilyFlows<K>,
    by: &MemberChooser<'_>,
    packet: &[u8],
    services: &[Service],
) -> Option<Assigned> {
    let KeyedPacket { key, .. } = K::parse_packet(packet, Scope::Connection, 0)?;
    let ([_, address], [_, port]) = (key.addresses(), key.ports());
    let service = *services.iter().find(|service| service.is_at(address, port, key.protocol()))?;
    let is_known = known.flows.as_mut().is_some_and(|flows| flows.find(&key).is_some());
    Some(Assigned { service, member: by.likely_member(&mut known.flows, &key), is_known })
}
