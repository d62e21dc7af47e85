//! Counters and messages of the elements that check headers.
use artery_engine::{Arg, ArgError, Args, Context, DropReason, Packet};
use std::fmt::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

/// The keyword that says whether to report each failure.
pub(crate) const VERBOSE: Arg =
    Arg::keyword("VERBOSE", "bool", "false", "whether to report every bad packet, not only the first");
/// The keyword that Click needs to count failures one by one.
pub(crate) const DETAILS: Arg = Arg::keyword(
    "DETAILS",
    "bool",
    "false",
    "whether drop_details is wanted; it costs nothing here and always answers",
);

/// One kind of failure: its message, and the drop reason when output 1 is not connected.
pub(crate) type Failure = (&'static str, DropReason);

/// How messages name an element; Click's classes differ.
enum Named {
    NotAtAll,
    ByName,
    ByDeclaration(&'static str),
}

/// Failures of one element, by kind.
pub(crate) struct Failures<const N: usize> {
    what: &'static str,
    /// How messages name the element.
    named: Named,
    kinds: &'static [Failure; N],
    drops: u64,
    verbose: bool,
    shared: Arc<Shared<N>>,
}

/// What the element's copies on all workers count together: bad packets are rare.
struct Shared<const N: usize> {
    was_reported: AtomicBool,
    counts: [AtomicU64; N],
}

impl<const N: usize> Failures<N> {
    /// Reads `VERBOSE` and `DETAILS`; `what` is the subject of messages.
    pub(crate) fn new(
        args: &mut Args<'_>,
        what: &'static str,
        kinds: &'static [Failure; N],
    ) -> Result<Self, ArgError> {
        let _: bool = args.read("DETAILS")?;
        let shared = args.shared_value(|| Shared::<N> {
            was_reported: AtomicBool::new(false),
            counts: [const { AtomicU64::new(0) }; N],
        });
        Ok(Failures { what, named: Named::ByName, kinds, drops: 0, verbose: args.read("VERBOSE")?, shared })
    }

    /// Leaves the element's name out of messages.
    pub(crate) fn without_name(mut self) -> Self {
        self.named = Named::NotAtAll;
        self
    }

    /// Adds the element's class to messages.
    pub(crate) fn with_class(mut self, class: &'static str) -> Self {
        self.named = Named::ByDeclaration(class);
        self
    }

    /// Counts and reports a packet that failed, and sends it by output 1 if that is connected.
    #[cold]
    pub(crate) fn fail_packet(&mut self, kind: usize, packet: Packet, cx: &mut Context<'_>) {
        let (text, reason) = self.kinds[kind];
        if !self.shared.was_reported.swap(true, Relaxed) || self.verbose {
            let name = match self.named {
                Named::NotAtAll => String::new(),
                Named::ByName => format!("{}: ", cx.name()),
                Named::ByDeclaration(class) => format!("{} :: {class}: ", cx.name()),
            };
            cx.print_message(&format!("{name}{} check failed: {text}", self.what));
        }
        self.drops += 1;
        self.shared.counts[kind].fetch_add(1, Relaxed);
        cx.send_or_discard(1, packet, reason);
    }

    /// Packets that failed on this worker.
    pub(crate) fn drops(&self) -> u64 {
        self.drops
    }

    /// A line for each kind of failure, of all workers.
    pub(crate) fn details_text(&self) -> String {
        let mut text = String::new();
        for (count, (kind, _)) in self.shared.counts.iter().zip(self.kinds) {
            writeln!(text, "{}\t{kind}", count.load(Relaxed)).expect("writing to a string can't fail");
        }
        text
    }
}
