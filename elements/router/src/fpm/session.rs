//! A connection: its messages, processed in their order, and the answers.
use super::answers::Answers;
use super::broken::FpmProtocolError;
use super::reason::IgnoredMessage;
use super::rib::{AllTables, Rib};
use super::update::Update;
use artery_l3::router::Tables;
use artery_lpm::load::AnyPrefix;
use artery_netlink::{HEADER, Messages};
use std::ops::DerefMut;
use std::time::Duration;

/// Number of messages of each kind, over all connections.
#[derive(Clone, Default)]
pub(crate) struct Received {
    pub(crate) frames: u64,
    pub(crate) routes: u64,
    pub(crate) deleted_routes: u64,
    pub(crate) next_hops: u64,
    pub(crate) deleted_next_hops: u64,
    /// By number of what they are.
    pub(crate) ignored: [u64; IgnoredMessage::ALL.len()],
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
    /// Processes an FPM message. On an error the netlink messages before it have taken effect.
    ///
    /// zebra changes a route by deleting and adding it in one message; here that is one change, so that no
    /// packet misses the route.
    pub(super) fn process_frame(&mut self, payload: &[u8]) -> Result<(), FpmProtocolError> {
        self.received.frames += 1;
        let mut removed: Vec<AnyPrefix> = Vec::new();
        let done = self.process_messages(payload, &mut removed);
        for prefix in removed {
            self.rib.remove_route(prefix, self.tables, self.now);
        }
        done
    }

    fn process_messages(
        &mut self,
        payload: &[u8],
        removed: &mut Vec<AnyPrefix>,
    ) -> Result<(), FpmProtocolError> {
        let mut messages = Messages(payload);
        loop {
            let rest = messages.0;
            let Some(message) = messages.next() else {
                // Less than the length of a message pads it.
                let is_padding = rest.len() < 4;
                return if is_padding {
                    Ok(())
                } else {
                    Err(FpmProtocolError::Netlink(payload.len() - rest.len()))
                };
            };
            let bytes = &rest[..HEADER + message.payload.len()];
            match Update::parse_message(&message)? {
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

/// Parses bytes as the stream of a daemon, for the router of this name.
#[cfg(feature = "fuzz")]
pub fn survive(bytes: &[u8], resources: &artery_engine::Resources, router: &str) {
    let routers = resources.get::<artery_forward::shared::NamedRouters>();
    let router = routers.get(router).expect("there is a router");
    let (mut rib, mut frames, mut answers) =
        (Rib::default(), super::frames::Frames::default(), Answers::default());
    rib.begin_session();
    rib.add_target(super::target::Target::new(&router, None, &[]), Duration::ZERO);
    let mut tables = [router.lock_tables()];
    let mut received = Received::default();
    let mut session = Session {
        rib: &mut rib,
        tables: &mut tables,
        answers: &mut answers,
        received: &mut received,
        is_local: false,
        now: Duration::ZERO,
    };
    let _ = frames.read_stream(&mut &bytes[..]);
    while let Ok(Some(payload)) = frames.next_payload() {
        if session.process_frame(payload).is_err() {
            break;
        }
    }
    // The next stream must find as few routes in the router as this one.
    rib.begin_session();
    for prefix in rib.stale_prefixes() {
        rib.remove_route(prefix, &mut tables, Duration::ZERO);
    }
    assert_eq!(rib.len(), 0);
}
