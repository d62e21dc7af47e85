//! Members and a worker that picks from them.
use artery_flow::balance::{
    BalanceError, Balancer, Flow, Local, Member, MemberId, Members, Method, Settings,
};
use artery_rcu::{Domain, Reader};
use artery_wire::Random;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

pub(crate) const NOW: Duration = Duration::from_secs(1000);

pub(crate) struct Rig {
    pub(crate) domain: Arc<Domain>,
    pub(crate) members: Members,
    pub(crate) local: Local,
    balancer: Balancer,
    reader: Reader,
}

impl Rig {
    pub(crate) fn new(settings: Settings) -> Rig {
        let domain = Domain::new();
        let members = Members::new(&domain, settings).unwrap();
        let (balancer, reader) = (members.balancer(), domain.reader());
        Rig { domain, members, local: Local::new(0), balancer, reader }
    }
    /// Members m0, m1 … of these weights.
    pub(crate) fn with(method: Method, weights: &[u32]) -> Rig {
        let mut rig = Rig::new(Settings { method, ..Settings::default() });
        let list = weights.iter().enumerate().map(|(n, weight)| member(n, *weight)).collect();
        rig.members.replace_members(list, NOW).unwrap();
        rig
    }
    pub(crate) fn add(&mut self, text: &str) -> Result<MemberId, BalanceError> {
        self.members.add_member(text.parse().unwrap(), NOW)
    }
    /// Says whether the checks of a member pass; nothing changes without such a member.
    pub(crate) fn set_up(&mut self, name: &str, is_up: bool) {
        self.members.update_health(|member| (*member.name == *name).then_some(is_up), NOW);
    }
    /// Who takes a new flow.
    pub(crate) fn pick(&mut self, flow: Flow, now: Duration) -> Option<MemberId> {
        self.balancer.choice_at(&self.reader.turn()).pick_member(&mut self.local, flow, now)
    }
    /// Who most likely has a flow.
    pub(crate) fn guess(&mut self, flow: Flow, now: Duration) -> Option<MemberId> {
        self.balancer.choice_at(&self.reader.turn()).guess_member(&self.local, flow, now)
    }
    /// The digest of the table.
    pub(crate) fn digest(&mut self) -> Option<u64> {
        self.balancer.choice_at(&self.reader.turn()).table_digest()
    }
    /// The digests of tables beside the present one.
    pub(crate) fn other_digests(&mut self) -> Vec<Option<u64>> {
        let turn = self.reader.turn();
        self.balancer.choice_at(&turn).others().iter().map(|other| other.table_digest()).collect()
    }
    /// Numbers of members that another table has, by name.
    pub(crate) fn id_elsewhere(&mut self, name: &str) -> Option<MemberId> {
        let turn = self.reader.turn();
        self.balancer.choice_at(&turn).others().first()?.find_named(name)
    }
    /// The member that the table has for a flow.
    pub(crate) fn table_member(&mut self, flow: Flow) -> Option<MemberId> {
        self.balancer.choice_at(&self.reader.turn()).table_member(flow)
    }
    /// Whether a member sends from there.
    pub(crate) fn has_member_at(&mut self, address: IpAddr, at: u16, port: Option<u16>) -> bool {
        self.balancer.choice_at(&self.reader.turn()).has_member_at(address, at, port)
    }
    /// The name of who takes a new flow.
    pub(crate) fn name(&mut self, flow: Flow, now: Duration) -> Option<Arc<str>> {
        let turn = self.reader.turn();
        let choice = self.balancer.choice_at(&turn);
        let id = choice.pick_member(&mut self.local, flow, now)?;
        Some(choice.member(id.action()).expect("who takes a flow lives").name.clone())
    }
    /// The member that a known flow has.
    pub(crate) fn member(&mut self, id: MemberId) -> Option<Member> {
        self.balancer.choice_at(&self.reader.turn()).member(id.action()).cloned()
    }
    /// The member of a name that flows can have.
    pub(crate) fn named(&mut self, name: &str) -> Option<MemberId> {
        self.balancer.choice_at(&self.reader.turn()).find_named(name)
    }
    /// All members that flows can have.
    pub(crate) fn living(&mut self) -> Vec<String> {
        let turn = self.reader.turn();
        self.balancer.choice_at(&turn).members().map(|(_, member)| member.to_string()).collect()
    }
    pub(crate) fn id(&self, name: &str) -> MemberId {
        self.members.view_member(name).unwrap().id
    }
}

/// Called m0, m1 …
pub(crate) fn member(number: usize, weight: u32) -> Member {
    let address = std::net::Ipv4Addr::from(0x0a00_0001 + number as u32);
    Member { weight, ..Member::new(&format!("m{number}"), address.into()) }
}

/// Flows of any addresses.
pub(crate) fn flows(count: usize) -> Vec<Flow> {
    let mut random = Random::new(7);
    (0..count).map(|_| Flow { hash: random.next(), xor: random.next() as u32 }).collect()
}

/// A hash that no two numbers have, as a flow.
pub(crate) fn flow(number: u64) -> Flow {
    let hash = Random::new(number).next();
    Flow { hash, xor: hash as u32 }
}

/// For each of the flows, in order, the name of its member.
pub(crate) fn names(rig: &mut Rig, flows: &[Flow]) -> Vec<Option<Arc<str>>> {
    flows.iter().map(|flow| rig.name(*flow, NOW)).collect()
}
