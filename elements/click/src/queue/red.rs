use super::nearby_queues;
use artery_common::chance;
use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, Handler, HandlerError, Read, Show,
    StartError, Time, Write, parse_value,
};
use artery_lang::args as text;
use artery_wire::Random;
use std::any::Any;

pub static CLASS: Class = Class {
    name: "RED",
    group: "queue",
    summary: "drops packets by Random Early Detection",
    manual: "
Drops packets before queues overflow, so that senders slow down one by one (Floyd and Jacobson, 1993). It
keeps a running average of how many packets the queues hold together. Up to MIN_THRESH nothing is dropped;
from there to MAX_THRESH the probability grows from 0 to MAX_P, and from there to twice MAX_THRESH on to 1.
Above, all packets are dropped. With GENTLE false this begins above MAX_THRESH. Dropped packets leave by
output 1 if there is one.

The queues are QUEUES, or else the nearest ones: downstream where packets are pushed through the element,
upstream where they are pulled. They are asked for their lengths once for each batch; packets of the batch
that passed before are counted in. Where queues belong to other workers, that takes a call to each of them, so
RED and its queues belong on one.

STABILITY says how slowly the average follows: each packet moves it by one part in 2 to the power of
STABILITY, which is -log2 of the parameter that is called w_q. With 0 the length itself counts. While the
queues are empty, each 20 ms count like a packet.",
    example: "Idle -> RED(5, 50, 0.02) -> Queue(200) -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[
        Arg::required("MIN_THRESH", "packets", "average up to which nothing is dropped"),
        Arg::required("MAX_THRESH", "packets", "average at which MAX_P is reached"),
        Arg::required("MAX_P", "0 to 1", "probability of a drop at MAX_THRESH"),
        Arg::keyword("QUEUES", "queues", "", "names of the queues to watch; the nearest ones if not given"),
        Arg::keyword("STABILITY", "0 to 16", "4", "how slowly the average follows"),
        Arg::keyword("GENTLE", "bool", "true", "whether the probability grows on above MAX_THRESH"),
    ],
    handlers: &[
        Handler::read("min_thresh", "MIN_THRESH", &Show(|r: &mut Red| r.rule.min))
            .and_write(&Write(|r: &mut Red, text, _| {
                r.set_parameters(|rule| parse_value(text).map(|min| rule.min = min))
            }))
            .sets_argument("MIN_THRESH"),
        Handler::read("max_thresh", "MAX_THRESH", &Show(|r: &mut Red| r.rule.max))
            .and_write(&Write(|r: &mut Red, text, _| {
                r.set_parameters(|rule| parse_value(text).map(|max| rule.max = max))
            }))
            .sets_argument("MAX_THRESH"),
        Handler::read("max_p", "MAX_P", &Show(|r: &mut Red| format_decimal(r.rule.max_p, 16)))
            .and_write(&Write(|r: &mut Red, text, _| {
                r.set_parameters(|rule| {
                    parse_probability(text).map(|max_p| rule.max_p = max_p).map_err(HandlerError::refused)
                })
            }))
            .sets_argument("MAX_P"),
        Handler::read("drops", "packets dropped", &Show(|r: &mut Red| r.drops)),
        Handler::read("queues", "the queues, one a line", &Show(|r: &mut Red| r.list_queues())),
        Handler::read(
            "avg_queue_size",
            "the average",
            &Show(|r: &mut Red| format_decimal(r.state.average, SCALE)),
        ),
        Handler::read(
            "stats",
            "present and average length of the queues, and drops",
            &Read(|r: &mut Red, _, cx| Ok(r.stats_text(cx))),
        ),
        Handler::write(
            "reset_counts",
            "sets drops to zero",
            &Write(|r: &mut Red, _, _| {
                r.drops = 0;
                Ok(())
            }),
        )
        .button(),
    ],
    live: true,
    build: |args| Ok(Box::new(Red::new(args)?)),
    ..Class::DEFAULT
};

/// Bits of an average behind the point.
const SCALE: u32 = 10;
/// Certainty: probabilities have 16 bits behind the point.
const ALWAYS: u64 = 1 << 16;
/// What counts like a packet while there is none.
const NANOS_PER_EPOCH: u64 = 20_000_000;
/// After so many of them the average is zero.
const FORGOTTEN: u64 = 100;

struct Red {
    rule: RedParameters,
    state: RedState,
    random: Random,
    /// The `length` handlers of the queues.
    lengths: Vec<String>,
    drops: u64,
}

/// The parameters from the arguments.
#[derive(Clone, Copy)]
struct RedParameters {
    min: u32,
    max: u32,
    max_p: u64,
    stability: u32,
    gentle: bool,
}

/// The state over the packets so far.
#[derive(Clone, Copy, Default)]
struct RedState {
    /// Of the queues' lengths.
    average: u64,
    /// Packets since the last drop while drops are possible; none while they aren't.
    count: Option<u64>,
    /// What `count` times the probability must exceed for the next drop.
    threshold: u64,
    /// When a packet last met empty queues; None after a packet that met nonempty ones.
    empty: Option<u64>,
}

impl RedParameters {
    fn check_parameters(self) -> Result<RedParameters, &'static str> {
        match self {
            RedParameters { max, .. } if max > 0xffff => Err("MAX_THRESH must be <= 65535"),
            RedParameters { min, max, .. } if min > max => Err("MIN_THRESH must be <= MAX_THRESH"),
            RedParameters { max_p, .. } if max_p > ALWAYS => Err("MAX_P must be between 0 and 1"),
            RedParameters { stability, .. } if stability > 16 => Err("STABILITY must be between 0 and 16"),
            rule => Ok(rule),
        }
    }

    /// The average above which all packets are dropped.
    fn drop_all_threshold(&self) -> u64 {
        if self.gentle && self.max_p < ALWAYS { u64::from(self.max) * 2 } else { self.max.into() }
    }

    /// How probable a drop is at this average, below the end.
    fn drop_probability(&self, average: u64) -> u64 {
        let (min, max) = (u64::from(self.min), u64::from(self.max));
        let above = |least: u64| average.saturating_sub(least << SCALE);
        let share = |above: u64, span: u64| above.checked_div(span).unwrap_or(0);
        if round_scaled(average) <= max {
            share(self.max_p * above(min), (max - min) << SCALE).min(self.max_p)
        } else {
            self.max_p + share((ALWAYS - self.max_p) * above(max), max << SCALE)
        }
    }
}

fn round_scaled(average: u64) -> u64 {
    (average + (1 << (SCALE - 1))) >> SCALE
}

impl RedState {
    /// Whether to drop a packet at this queue length.
    fn should_drop(&mut self, rule: &RedParameters, random: &mut Random, length: u64, now: Time) -> bool {
        self.update_average(rule, length, now);
        let average = round_scaled(self.average);
        if average <= rule.min.into() || average > rule.drop_all_threshold() {
            self.count = None;
            return average > rule.min.into();
        }
        let count = self.count.map_or(0, |count| count + 1);
        self.count = Some(count);
        let drops = count > 0 && count * rule.drop_probability(self.average) > self.threshold;
        if drops {
            self.count = Some(0);
        }
        if drops || count == 0 {
            self.threshold = random.next() % ALWAYS;
        }
        drops
    }

    fn update_average(&mut self, rule: &RedParameters, length: u64, now: Time) {
        if rule.stability == 0 {
            self.average = length << SCALE;
        } else if length > 0 {
            self.average = move_average(length, self.average, rule.stability);
            self.empty = None;
        } else {
            let epoch = now.0 / NANOS_PER_EPOCH;
            let idle = self.empty.map_or(1, |since| epoch.saturating_sub(since));
            self.average = match idle {
                FORGOTTEN.. => 0,
                _ => (0..idle).fold(self.average, |average, _| move_average(0, average, rule.stability)),
            };
            self.empty = Some(epoch);
        }
    }
}

/// The average after one more length, rounded.
fn move_average(length: u64, average: u64, stability: u32) -> u64 {
    let (length, average) = ((length << SCALE) as i64, average as i64);
    (average + ((length + (1 << (stability - 1)) - average) >> stability)) as u64
}

impl Red {
    fn new(args: &mut Args<'_>) -> Result<Red, ArgError> {
        let max_p: String = args.read("MAX_P")?;
        let rule = RedParameters {
            min: args.read("MIN_THRESH")?,
            max: args.read("MAX_THRESH")?,
            max_p: parse_probability(&max_p).map_err(|why| ArgError::wrong_at(max_p, why))?,
            stability: args.read("STABILITY")?,
            gentle: args.read("GENTLE")?,
        };
        let queues = args.read::<Option<String>>("QUEUES")?.unwrap_or_default();
        let queues = nearby_queues::find_named(&text::split_words(&queues), args)
            .map_err(|why| ArgError::wrong_at(queues, why))?;
        let rule = rule.check_parameters().map_err(ArgError::wrong)?;
        Ok(Red {
            rule,
            state: RedState::default(),
            random: chance::new_random(args),
            lengths: length_handlers(queues),
            drops: 0,
        })
    }

    /// Changes the parameters if the result is valid.
    fn set_parameters(
        &mut self,
        change: impl FnOnce(&mut RedParameters) -> Result<(), HandlerError>,
    ) -> Result<(), HandlerError> {
        let mut rule = self.rule;
        change(&mut rule)?;
        self.rule = rule.check_parameters().map_err(HandlerError::refused)?;
        Ok(())
    }

    /// The packets in all queues. A queue whose handler fails counts as empty.
    fn total_queue_length(&self, cx: &mut Context<'_>) -> u64 {
        let mut length = |handler: &String| cx.read_handler(handler, "").ok()?.trim().parse::<u64>().ok();
        self.lengths.iter().filter_map(&mut length).sum()
    }

    fn list_queues(&self) -> String {
        let names = self.lengths.iter().filter_map(|handler| handler.strip_suffix(".length"));
        names.map(|name| format!("{name}\n")).collect()
    }

    fn stats_text(&self, cx: &mut Context<'_>) -> String {
        let (length, average) = (self.total_queue_length(cx), format_decimal(self.state.average, SCALE));
        format!("{length} current queue\n{average} avg queue\n{} drops\n", self.drops)
    }
}

/// The handlers that return queue lengths.
fn length_handlers(queues: Vec<String>) -> Vec<String> {
    queues.into_iter().map(|name| format!("{name}.length")).collect()
}

fn parse_probability(text: &str) -> Result<u64, String> {
    text::parse_fixed(text.trim(), 16).map_err(|_| {
        format!("'{}' is not a valid probability; MAX_P wants a number from 0 to 1", text.trim())
    })
}

/// A number with fraction bits, in as few decimals as distinguish it.
fn format_decimal(number: u64, bits: u32) -> String {
    let one = (1u64 << bits) as f64;
    let exact = number as f64 / one;
    let is_said = |text: &String| text.parse().is_ok_and(|said: f64| (said * one).round() as u64 == number);
    (0..6).map(|places| format!("{exact:.places$}")).find(is_said).unwrap_or_else(|| format!("{exact:.6}"))
}

impl Element for Red {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        if batch.is_empty() {
            return;
        }
        let (now, length, pulled) = (cx.now(), self.total_queue_length(cx), cx.output_is_pull(0));
        let (mut sent, mut behind) = (0, batch.len() as u64);
        for packet in batch.drain() {
            behind -= 1;
            // As if packets came one by one: the later ones are still in the queues upstream, and the earlier
            // ones in the queues downstream.
            let met = length + if pulled { behind } else { sent };
            if self.state.should_drop(&self.rule, &mut self.random, met, now) {
                self.drops += 1;
                cx.send_or_discard(1, packet, DropReason::Sampled);
            } else {
                sent += 1;
                cx.send(0, packet);
            }
        }
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        if self.lengths.is_empty() {
            self.lengths = length_handlers(nearby_queues::find_nearest(cx));
        }
        if self.lengths.is_empty() {
            let help = "connect a queue behind it, or in front of it where packets are pulled, or name one \
                by QUEUES";
            return Err(StartError::new("no nearby Queues").with_help(help));
        }
        Ok(())
    }

    /// Keeps the average; for the same element with other arguments also its counts and queues.
    fn take_state(&mut self, old: &mut dyn Any, cx: &mut Context<'_>) {
        let Some(old) = old.downcast_mut::<Red>() else { return };
        self.state = old.state;
        if !cx.is_replacing() {
            self.drops = old.drops;
            if self.lengths.is_empty() {
                self.lengths = std::mem::take(&mut old.lengths);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Sink;
    use artery_engine::router::{Finished, Router, RouterSettings};
    use artery_lang::{Options, Sources, check, compile};

    const RULE: RedParameters =
        RedParameters { min: 10, max: 50, max_p: ALWAYS / 10, stability: 0, gentle: true };

    /// Runs a configuration to its end, in simulated time.
    fn run(text: &str) -> Result<Finished, String> {
        run_with(text, 64)
    }
    fn run_with(text: &str, burst: usize) -> Result<Finished, String> {
        let mut sources = Sources::default();
        let file = sources.add_file("test", text);
        let (ir, diagnostics) = compile(&mut sources, file, &Options::default(), &crate::TEST_CLASSES);
        let (processing, more) = check(&ir, &crate::TEST_CLASSES);
        assert!(diagnostics.is_empty() && more.is_empty(), "{diagnostics:?} {more:?}");
        let settings = RouterSettings {
            chatter: Sink::buffer(),
            frames: (2048, 4),
            burst,
            simulated: Some(Time::new(1000, 0)),
            ..RouterSettings::default()
        };
        let router = Router::build(&ir, &processing, crate::TEST_CLASSES, settings);
        Ok(router.map_err(|problems| problems[0].message.clone())?.start().wait().unwrap())
    }
    fn number(router: &mut Finished, name: &str) -> u64 {
        router.read_handler(name, "").unwrap().parse().unwrap()
    }

    /// How many of 10,000 packets are dropped at this queue length.
    fn drops(length: u32, config: &str) -> u64 {
        let text = format!(
            "InfiniteSource(LIMIT {length}) -> q :: Queue(100) -> Unqueue(ACTIVE false) -> Discard;
             i :: InfiniteSource(LIMIT 10000, ACTIVE false) -> red :: RED({config}, QUEUES q) -> Discard;
             DriverManager(wait_time 0.1, write i.active true, wait_time 1, stop)"
        );
        // One by one: those of a batch that passed count as waiting, and here no queue gets them.
        number(&mut run_with(&text, 1).unwrap(), "red.drops")
    }

    #[test]
    fn the_probability_grows_between_the_thresholds_and_to_certainty_beyond() {
        let at = |length: u64| RULE.drop_probability(length << SCALE);
        assert_eq!((at(10), at(30), at(50)), (0, RULE.max_p / 2, RULE.max_p));
        assert_eq!((at(75), at(100)), (RULE.max_p + (ALWAYS - RULE.max_p) / 2, ALWAYS));
        let step = RedParameters { min: 50, ..RULE };
        assert_eq!((step.drop_probability(50 << SCALE), step.drop_all_threshold()), (0, 100));
        assert_eq!(
            (
                RedParameters { gentle: false, ..RULE }.drop_all_threshold(),
                RedParameters { max_p: ALWAYS, ..RULE }.drop_all_threshold()
            ),
            (50, 50)
        );
    }

    #[test]
    fn packets_are_dropped_as_probable_as_it_is() {
        let config = "10, 30, 0.1, STABILITY 0";
        assert_eq!(drops(10, config), 0);
        // The gap between two drops is anything up to the inverse of the probability, here 1/20.
        assert!((850..1050).contains(&drops(20, config)));
        // 0.55, and every second packet at least.
        assert!((6400..7400).contains(&drops(45, config)));
        assert_eq!((drops(61, config), drops(31, "10, 30, 0.1, STABILITY 0, GENTLE false")), (10000, 10000));
        assert_eq!(drops(0, "0, 0, 0"), 0);
    }

    #[test]
    fn the_average_follows_slowly_and_falls_while_queues_are_empty() {
        let rule = RedParameters { stability: 4, ..RULE };
        let mut state = RedState::default();
        let at = |epoch: u64| Time(epoch * NANOS_PER_EPOCH);
        state.update_average(&rule, 16, at(1000));
        assert_eq!(format_decimal(state.average, SCALE), "1");
        (0..200).for_each(|_| state.update_average(&rule, 16, at(1000)));
        assert_eq!(round_scaled(state.average), 16);
        let full = state.average;
        state.update_average(&rule, 0, at(1000));
        let once = state.average;
        state.update_average(&rule, 0, at(1000));
        assert!(once < full && state.average == once, "no time has passed");
        state.update_average(&rule, 0, at(1020));
        assert_eq!(state.average, (0..20).fold(once, |average, _| move_average(0, average, 4)));
        state.update_average(&rule, 0, at(2000));
        assert_eq!(state.average, 0);
    }

    #[test]
    fn a_queue_downstream_stays_below_the_end_in_batches_too() {
        let text =
            "InfiniteSource(LIMIT 1000, STOP true) -> red :: RED(5, 10, 0.5, STABILITY 0, GENTLE false)
                    -> Counter -> q :: Queue(1000) -> Unqueue(ACTIVE false) -> Discard; \
             red[1] -> out :: Counter -> Discard;";
        let mut router = run(text).unwrap();
        let (length, drops) = (number(&mut router, "q.length"), number(&mut router, "red.drops"));
        assert_eq!((length, length + drops, number(&mut router, "out.count")), (11, 1000, drops));
        assert_eq!(router.read_handler("red.queues", "").unwrap(), "q\n");
        let stats = format!("11 current queue\n11 avg queue\n{drops} drops\n");
        assert_eq!(router.read_handler("red.stats", "").unwrap(), stats);
    }

    #[test]
    fn pulled_packets_look_at_queues_upstream() {
        let text = "InfiniteSource(LIMIT 100) -> q :: Queue(1000) -> Null -> red :: RED(5, 10, 1, STABILITY \
            0) -> u :: Unqueue(ACTIVE false)
                    -> c :: Counter -> Discard; \
            DriverManager(wait_time 1, write u.active true, wait_time 1, stop)";
        let mut router = run(text).unwrap();
        let (passed, drops) = (number(&mut router, "c.count"), number(&mut router, "red.drops"));
        assert_eq!(passed + drops, 100);
        // Those that leave 11 and more behind them are dropped, and those that leave up to 5 are not.
        assert!((6..=11).contains(&passed), "{passed}");
        assert_eq!(router.read_handler("red.queues", "").unwrap(), "q\n");
    }

    #[test]
    fn the_nearest_queues_on_all_ways_are_found() {
        let text = "Idle -> red :: RED(5, 50, 0.02) -> s :: Switch -> a :: Queue -> Unqueue -> far :: Queue \
            -> Discard;
                    s[1] -> Null -> b :: SimpleQueue -> Discard; s[2] -> Discard;
                    red[1] -> other :: Queue -> Discard; DriverManager(stop)";
        assert_eq!(run(text).unwrap().read_handler("red.queues", "").unwrap(), "a\nb\n");
        let named = "q :: Queue; Idle -> q -> Discard; Idle -> red :: RED(5, 50, 0.02, QUEUES q) -> Discard; \
            DriverManager(stop)";
        assert_eq!(run(named).unwrap().read_handler("red.queues", "").unwrap(), "q\n");
        let refused = |text: &str| run(text).err().unwrap();
        assert_eq!(refused("Idle -> RED(5, 50, 0.02) -> Discard;"), "no nearby Queues");
        let found = refused("i :: Idle -> RED(5, 50, 0.02, QUEUES i) -> Discard;");
        assert_eq!(found, "'i' is not a Storage element");
        assert_eq!(refused("Idle -> RED(5, 50, 0.02, QUEUES lost) -> Discard;"), "no element named 'lost'");
    }

    #[test]
    fn arguments_change_while_it_runs_and_queues_stay() {
        let text = "Idle -> red :: RED(5, 50, 0.02) -> q :: Queue -> Discard;
                    DriverManager(write red.min_thresh 7, write red.max_p 0.5, write red.max_thresh 3,
                                  write red.config \"$(red.config), STABILITY 9\", stop)";
        let mut router = run(text).unwrap();
        let read: Vec<String> = ["min_thresh", "max_thresh", "max_p", "queues"]
            .map(|name| router.read_handler(&format!("red.{name}"), "").unwrap())
            .into();
        assert_eq!(read, ["7", "50", "0.5", "q\n"]);
    }

    #[test]
    fn decimals_are_as_few_as_say_it() {
        let texts = [(1310, 16), (ALWAYS, 16), (6554, 16), (1, 10), (1536, 10)]
            .map(|(n, bits)| format_decimal(n, bits));
        assert_eq!(texts, ["0.01999", "1", "0.1", "0.001", "1.5"]);
    }
}
