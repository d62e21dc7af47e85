//! Read and write handlers of FlowBalancer.
use super::balancer_worker::FlowBalancer;
use super::event_lines;
use super::exchange;
use super::explain;
use super::fleet;
use super::owners;
use super::service::Service;
use artery_engine::{Context, Handler, HandlerError, Read, Show, Write};
use artery_flow::FlowKey;
use artery_flow::balance::{Choice, MemberView};
use serde_json::json;
use std::fmt::Write as _;
use std::time::Duration;

pub(super) static HANDLERS: &[Handler] = &[
    Handler::read(
        "members",
        "members, a line each: `NAME ADDRESS[:PORT] [weight N]`, whether it is up, and whether it takes new \
         flows",
        &Show(|b: &mut FlowBalancer| list_members(b)),
    ),
    Handler::write(
        "add_member",
        "`NAME ADDRESS[:PORT] [weight N]`: adds a member",
        &Write(|b: &mut FlowBalancer, text, cx| b.shared.add_member(text, now(cx))),
    )
    .once(),
    Handler::write(
        "remove_member",
        "`NAME`: removes a member; its flows go to others",
        &Write(|b: &mut FlowBalancer, text, cx| b.shared.remove_member(text, now(cx))),
    )
    .once(),
    Handler::write(
        "weight",
        "`NAME N`: sets a member's weight; one of 0 keeps its flows and takes no new ones",
        &Write(|b: &mut FlowBalancer, text, cx| b.shared.set_weight(text, now(cx))),
    )
    .once(),
    Handler::read(
        "method",
        "how members are chosen",
        &Show(|b: &mut FlowBalancer| b.shared.lock_members().settings().method),
    )
    .and_write(&Write(|b: &mut FlowBalancer, text, cx| b.shared.set_method(text, now(cx))))
    .once(),
    Handler::write(
        "plan",
        "`SECONDS`, and then a line each METHOD, SEED and MEMBER as after a planned change: for so many \
         seconds flows that its table gives another member are exceptions, too, and members that it adds \
         are checked. 0 SECONDS forget it, and so does a new configuration",
        &Write(|b: &mut FlowBalancer, text, cx| fleet::plan_change(&b.shared, text, now(cx))),
    )
    .once(),
    Handler::read(
        "plan_json",
        "how far each worker is with what was written to `plan`, a line of JSON for each: whether all flows \
         were compared and all members checked, and the number of the next event of exceptions then",
        &Read(|b: &mut FlowBalancer, _, cx| {
            // The walk over flows has waited for a turn.
            cx.schedule();
            with_members(b, cx, |b, choice, cx| Ok(fleet::progress_json(b, choice, cx.worker())))
        }),
    )
    .join(),
    Handler::write(
        "hold_down",
        "`SECONDS NAME NAME …`: for so many seconds these members are down whatever checks find, since most \
         machines of a fleet don't reach them, and no others are held. Flows that are elsewhere by the \
         table of machines that reach all others are exceptions, too",
        &Write(|b: &mut FlowBalancer, text, cx| fleet::hold_down(&b.shared, text, now(cx))),
    )
    .once(),
    Handler::read(
        "status_json",
        "services, members and method, with a digest of the table that METHOD makes: machines with the same \
         digest choose the same member for every flow. It is null for methods whose choice depends on \
         earlier packets, and while members change",
        &Read(|b: &mut FlowBalancer, _, cx| with_members(b, cx, |b, choice, _| Ok(status_json(b, choice)))),
    )
    .once(),
    Handler::read("flows", "flows that are remembered", &Show(|b: &mut FlowBalancer| count_flows(b))).sum(),
    Handler::read("counts", "what was counted, a line each", &Show(|b: &mut FlowBalancer| counters_text(b))),
    Handler::read(
        "explain_json",
        "`FLOW`, as IPRouter's takes it: which service a packet is for and which member gets it, a line of \
         JSON for each worker. Nothing is counted or changed",
        &Read(|b: &mut FlowBalancer, asked, cx| {
            with_members(b, cx, |b, choice, cx| explain::explain_packet(b, asked, choice, cx))
        }),
    )
    .parameters()
    .join(),
    Handler::read(
        "flows_part",
        "some flows of each worker, for `artery flow export`: without parameters the first, or `WORKER:NEXT` \
         of a part before",
        &Read(|b: &mut FlowBalancer, asked, cx| {
            with_members(b, cx, |b, choice, cx| exchange::export_part(b, asked, cx.worker(), choice, now(cx)))
        }),
    )
    .parameters()
    .join(),
    Handler::write(
        "import_flows",
        "takes some flows in, for `artery flow import`, on all workers, since any of them may see their \
         packets",
        &Write(|b: &mut FlowBalancer, text, cx| {
            with_members(b, cx, |b, choice, cx| exchange::import_flows(b, text, choice, now(cx)))
        }),
    ),
    Handler::write(
        "keep_copies",
        "`OWNER SECONDS [CONFIRMED]`: imported flows of this owner don't become idle for so many seconds; \
         those that no import confirmed in the last CONFIRMED seconds are forgotten, since they have \
         ended there",
        &Write(|b: &mut FlowBalancer, text, cx| owners::keep_copies(b, text, now(cx))),
    ),
    Handler::write(
        "flush_flows",
        "`NAME` or `all`: forgets the flows of a member, or all, bit by bit; `exchange` says when it is done",
        &Write(|b: &mut FlowBalancer, which, cx| {
            cx.schedule();
            with_members(b, cx, |b, choice, _| exchange::begin_flush(b, which, choice))
        }),
    ),
    Handler::read(
        "exchange",
        "flows that were taken in and flushed so far, a line of JSON for each worker",
        &Read(|b: &mut FlowBalancer, _, cx| Ok(exchange::progress_json(b, cx.worker()))),
    )
    .join(),
    Handler::read(
        "flow_events",
        "what happened to flows, for `artery flow follow`, a line of JSON for each worker: with `now` it \
         begins, with `WORKER:NEXT` it goes on from there",
        &Read(|b: &mut FlowBalancer, asked, cx| {
            event_lines::events_json(&mut b.followed.all, asked, cx.worker(), now(cx))
        }),
    )
    .parameters()
    .join(),
    Handler::read(
        "exceptions_part",
        "what `flows_part` says, of exceptions: flows kept by a member other than the one METHOD computes \
         now",
        &Read(|b: &mut FlowBalancer, asked, cx| {
            with_members(b, cx, |b, choice, cx| {
                exchange::export_exceptions(b, asked, cx.worker(), choice, now(cx))
            })
        }),
    )
    .parameters()
    .join(),
    Handler::read(
        "exception_events",
        "what `flow_events` says, of exceptions, as `exceptions_part` has them",
        &Read(|b: &mut FlowBalancer, asked, cx| {
            // What the walk over flows has waited for may have been read.
            cx.schedule();
            with_members(b, cx, |b, choice, cx| {
                exchange::check_pure(choice)?;
                event_lines::exceptions_json(&mut b.followed.exceptions, asked, cx.worker(), now(cx))
            })
        }),
    )
    .parameters()
    .join(),
    Handler::read(
        "exception_items",
        "the same in binary form, as base64 behind the worker's number and that of its next event",
        &Read(|b: &mut FlowBalancer, asked, cx| {
            cx.schedule();
            with_members(b, cx, |b, choice, cx| {
                exchange::check_pure(choice)?;
                event_lines::exception_items(&mut b.followed.exceptions, asked, cx.worker(), now(cx))
            })
        }),
    )
    .parameters()
    .join(),
];

fn now(cx: &mut Context<'_>) -> Duration {
    cx.now().since_epoch()
}

/// Calls a function with the present members.
fn with_members<R>(
    b: &mut FlowBalancer,
    cx: &mut Context<'_>,
    act: impl FnOnce(&mut FlowBalancer, &Choice, &mut Context<'_>) -> Result<R, HandlerError>,
) -> Result<R, HandlerError> {
    let balancer = b.shared.balancer();
    act(b, balancer.choice_at(cx.turn()), cx)
}

fn list_members(b: &FlowBalancer) -> String {
    let mut text = String::new();
    for view in b.shared.lock_members().view_members() {
        let up = if view.is_up { "up" } else { "down" };
        let new = if view.takes_new { "takes new flows" } else { "takes no new flows" };
        let _ = writeln!(text, "{} {up}, {new}", view.member);
    }
    text
}

fn status_json(b: &FlowBalancer, choice: &Choice) -> String {
    // All workers take this lock, and the digest takes a moment: it is computed before.
    let digest = b.shared.table_digest(choice);
    let members = b.shared.lock_members();
    let digest = digest.filter(|_| members.generation() == choice.generation());
    let views: Vec<_> = members.view_members().collect();
    let slots = views.iter().map(|view| view.slots).sum::<usize>();
    let share = |of: usize| (slots > 0).then(|| of as f64 / slots as f64);
    let member = |view: &MemberView| {
        json!({
            "name": &*view.member.name, "address": view.member.address, "port": view.member.port,
            "weight": view.member.weight, "up": view.is_up, "checked": view.checked,
            "takes_new": view.takes_new, "share": share(view.slots),
        })
    };
    let line = json!({
        "services": b.shared.services.iter().map(Service::to_string).collect::<Vec<_>>(),
        "method": members.settings().method.to_string(),
        "detection_ms": b.shared.check.as_ref().map(fleet::detection_ms),
        "forward": if b.shared.nat.is_some() { "nat" } else { "direct" },
        "digest": digest.map(|digest| format!("{digest:016x}")),
        "members": views.iter().map(member).collect::<Vec<_>>(),
    });
    format!("{line}\n")
}

fn count_flows(b: &FlowBalancer) -> u64 {
    let v4 = b.v4.flows.as_ref().map_or(0, |flows| flows.len());
    let v6 = b.v6.flows.as_ref().map_or(0, |flows| flows.len());
    u64::from(v4) + u64::from(v6)
}

fn counters_text(b: &FlowBalancer) -> String {
    fn of<K: FlowKey>(known: &super::known::FamilyFlows<K>) -> [(&'static str, u64); 8] {
        let stats = known.flows.as_ref().map(|flows| flows.stats()).unwrap_or_default();
        [
            ("lookups", stats.lookups),
            ("hits", stats.hits),
            ("flows-inserted", stats.inserts),
            ("flows-expired", stats.expired.iter().sum()),
            ("flows-displaced", stats.displaced_young + stats.displaced_imported),
            ("flows-refused", stats.refused_full + stats.refused_crowded),
            ("flows-unproven", stats.young.into()),
            ("flow-bytes", stats.bytes),
        ]
    }
    let both = of(&b.v4).into_iter().zip(of(&b.v6)).map(|((name, v4), (_, v6))| (name, v4 + v6));
    let all = b.counters.named().into_iter().chain(both);
    all.map(|(name, count)| format!("{name} {count}\n")).collect()
}
