//! A connection: the messages that came by it, done in their order, and answered.
use super::answers::Answers;
use super::broken::Broken;
use super::reason::Ignored;
use super::rib::{AllTables, Rib};
use super::update::Update;
use artery_table::load::AnyPrefix;
use artery_table::router::Tables;
use artery_wire::netlink::{HEADER, Messages};
use std::ops::DerefMut;
use std::time::Duration;

/// How many messages came, of each kind, by all connections.
#[derive(Clone, Default)]
pub(crate) struct Received {
    pub(crate) frames: u64,
    pub(crate) routes: u64,
    pub(crate) deleted_routes: u64,
    pub(crate) next_hops: u64,
    pub(crate) deleted_next_hops: u64,
    /// By number of what they are.
    pub(crate) ignored: [u64; Ignored::ALL.len()],
}

/// What the messages of a connection are done with.
pub(super) struct Session<'a, T> {
    pub(super) rib: &'a mut Rib,
    pub(super) tables: AllTables<'a, T>,
    pub(super) answers: &'a mut Answers,
    pub(super) received: &'a mut Received,
    /// Whether numbers of interfaces are those of this host.
    pub(super) is_local: bool,
    pub(super) now: Duration,
}

impl<T: DerefMut<Target = Tables>> Session<'_, T> {
    /// Does what an FPM message asks for. On an error what came before in it is done.
    ///
    /// zebra says that a route has changed by deleting it and adding it in one message; here that is one
    /// change, so that no packet finds none.
    pub(super) fn process_frame(&mut self, payload: &[u8]) -> Result<(), Broken> {
        self.received.frames += 1;
        let mut removed: Vec<AnyPrefix> = Vec::new();
        let done = self.process_messages(payload, &mut removed);
        for prefix in removed {
            self.rib.remove_route(prefix, self.tables, self.now);
        }
        done
    }

    fn process_messages(&mut self, payload: &[u8], removed: &mut Vec<AnyPrefix>) -> Result<(), Broken> {
        let mut messages = Messages(payload);
        loop {
            let rest = messages.0;
            let Some(message) = messages.next() else {
                // Less than the length of a message pads it.
                let is_padding = rest.len() < 4;
                return if is_padding { Ok(()) } else { Err(Broken::Netlink(payload.len() - rest.len())) };
            };
            let bytes = &rest[..HEADER + message.payload.len()];
            match Update::read(&message)? {
                Update::NewRoute { prefix, protocol, path } => {
                    self.received.routes += 1;
                    removed.retain(|other| *other != prefix);
                    let state = self.rib.replace_route(
                        prefix,
                        (protocol, path),
                        self.is_local,
                        self.tables,
                        self.now,
                    );
                    self.answers.push(bytes, state);
                }
                Update::DelRoute(prefix) => {
                    self.received.deleted_routes += 1;
                    removed.push(prefix);
                }
                Update::NewNextHop(id, kind) => {
                    self.received.next_hops += 1;
                    self.rib.change_next_hop(id, Some(kind), self.tables, self.now);
                }
                Update::DelNextHop(id) => {
                    self.received.deleted_next_hops += 1;
                    self.rib.change_next_hop(id, None, self.tables, self.now);
                }
                Update::Ignored(what) => self.received.ignored[what as usize] += 1,
            }
        }
    }
}

/// Takes bytes for a stream of a daemon's, for the router of this name.
#[cfg(feature = "fuzz")]
pub fn survive(bytes: &[u8], resources: &artery_engine::Resources, router: &str) {
    let routers = resources.get::<crate::router::shared::NamedRouters>();
    let router = routers.get(router).expect("there is a router");
    let (mut rib, mut frames, mut answers) =
        (Rib::default(), super::frames::Frames::default(), Answers::default());
    rib.begin_session();
    rib.add_target(&router, "", Duration::ZERO);
    let mut tables = [router.tables()];
    let mut received = Received::default();
    let mut session = Session {
        rib: &mut rib,
        tables: &mut tables,
        answers: &mut answers,
        received: &mut received,
        is_local: false,
        now: Duration::ZERO,
    };
    let _ = frames.read(&mut &bytes[..]);
    while let Ok(Some(payload)) = frames.next_payload() {
        if session.process_frame(payload).is_err() {
            break;
        }
    }
    // The router has no more routes for the next stream than for this one.
    rib.begin_session();
    for prefix in rib.stale() {
        rib.remove_route(prefix, &mut tables, Duration::ZERO);
    }
    assert_eq!(rib.len(), 0);
}
