use artery_common::chance;
use artery_engine::{
    Arg, ArgError, ArgValue, Args, Batch, Class, Context, DropReason, Element, Field, Handler, HandlerError,
    Packet, Read, Show, Write, names::Names, parse_value,
};
use artery_wire::Random;
use std::any::Any;

pub static CLASS: Class = Class {
    name: "RandomSample",
    group: "basic",
    summary: "lets packets pass with some probability",
    manual: "
Lets every packet pass with probability P, also given as SAMPLE, or as its complement DROP. The others leave
by output 1, or are dropped when there is none. While it is not ACTIVE all pass.",
    example: "Idle -> s :: RandomSample(0.1) -> Discard;\ns[1] -> Discard;",
    ports: "1/1-2",
    processing: "a/ah",
    args: &[
        Arg::optional("P", "0 to 1", "", "probability that a packet passes"),
        Arg::keyword("SAMPLE", "0 to 1", "", "the same as P"),
        Arg::keyword("DROP", "0 to 1", "", "probability that a packet does not pass"),
        Arg::keyword("ACTIVE", "bool", "true", "whether to sample; otherwise all pass"),
    ],
    handlers: &[
        Handler::read(
            "sampling_prob",
            "probability that a packet passes",
            &Show(|s: &mut Sample| s.pass.to_decimal()),
        )
        .and_write(&Write(|s: &mut Sample, text, _| parse_probability(text).map(|p| s.pass = p))),
        Handler::read(
            "drop_prob",
            "probability that it does not",
            &Show(|s: &mut Sample| s.pass.complement().to_decimal()),
        )
        .and_write(&Write(|s: &mut Sample, text, _| {
            parse_probability(text).map(|p| s.pass = p.complement())
        })),
        Handler::field("active", "whether to sample", &Field(|s: &mut Sample| &mut s.active)),
        Handler::read("drops", "packets that did not pass", &Show(|s: &mut Sample| s.drops)).sum(),
        Handler::read("config", "the arguments as they are now", &Read(Sample::config)),
    ],
    live: true,
    build: |args| Ok(Box::new(Sample::new(args)?)),
    ..Class::PER_WORKER
};

/// A probability in units of 2^-28, as precise as Click's.
#[derive(Clone, Copy)]
struct Probability(u32);

const ONE: u32 = 1 << 28;

impl ArgValue for Probability {
    fn parse(text: &str, names: &Names) -> Result<Probability, String> {
        let number = f64::parse(text, names).ok().filter(|p| (0.0..=1.0).contains(p));
        number.map(Probability::from_f64).ok_or_else(|| "a probability between 0 and 1".to_string())
    }
}

impl Probability {
    fn from_f64(number: f64) -> Probability {
        Probability((number * f64::from(ONE)).round() as u32)
    }
    fn complement(self) -> Probability {
        Probability(ONE - self.0)
    }
    /// The shortest decimal that means the same.
    fn to_decimal(self) -> String {
        let number = f64::from(self.0) / f64::from(ONE);
        let means_the_same = |text: &String| text.parse().is_ok_and(|n| Probability::from_f64(n).0 == self.0);
        (0..9)
            .map(|places| format!("{number:.places$}"))
            .find(means_the_same)
            .unwrap_or(format!("{number:.9}"))
    }
}

fn parse_probability(text: &str) -> Result<Probability, HandlerError> {
    parse_value(text).map_err(|_| HandlerError::refused("Must be given a number between 0.0 and 1.0"))
}

struct Sample {
    pass: Probability,
    active: bool,
    drops: u64,
    random: Random,
}

impl Sample {
    fn new(args: &mut Args<'_>) -> Result<Sample, ArgError> {
        let (p, sample): (Option<Probability>, Option<Probability>) = (args.read("P")?, args.read("SAMPLE")?);
        let drop: Option<Probability> = args.read("DROP")?;
        let pass = match (sample.or(p), drop) {
            (_, Some(_)) if sample.is_some() => {
                return Err(ArgError::wrong("give at most one of SAMPLE and DROP"));
            }
            (_, Some(drop)) => drop.complement(),
            (Some(pass), None) => pass,
            (None, None) => return Err(ArgError::wrong("give the sampling probability: P, SAMPLE or DROP")),
        };
        Ok(Sample { pass, active: args.read("ACTIVE")?, drops: 0, random: chance::new_random(args) })
    }
    fn config(&mut self, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(format!("SAMPLE {}, ACTIVE {}", self.pass.to_decimal(), self.active))
    }
    #[inline]
    fn draw_pass(&mut self) -> bool {
        self.random.next_u32() >> 4 < self.pass.0
    }
    fn sample_packet(&mut self, packet: Packet, cx: &mut Context<'_>) -> Option<Packet> {
        if self.draw_pass() {
            return Some(packet);
        }
        self.drops += 1;
        cx.send_or_discard(1, packet, DropReason::Sampled);
        None
    }
}

impl Element for Sample {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        if self.active {
            batch.filter_map(|packet| self.sample_packet(packet, cx));
        }
        cx.send_all(0, batch);
    }

    fn take_state(&mut self, old: &mut dyn Any, _cx: &mut Context<'_>) {
        if let Some(old) = old.downcast_ref::<Sample>() {
            self.drops = old.drops;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn about_as_many_pass_as_the_probability_says() {
        let mut bench = Bench::new(&CLASS, "0.25");
        let mut passed = 0;
        for _ in 0..400 {
            (0..10).for_each(|_| bench.push(0, b"x"));
            passed += bench.drain_sent(0).len();
            bench.drain_sent(1);
        }
        // Eight standard deviations around the mean.
        assert!((780..1220).contains(&passed), "{passed}");
        assert_eq!(bench.read("drops", "").unwrap(), (4000 - passed).to_string());
    }

    #[test]
    fn certainties_are_certain() {
        let mut bench = Bench::setup(&CLASS, "DROP 1").outputs(1).build().unwrap();
        (0..100).for_each(|_| bench.push(0, b"x"));
        bench.expect_dropped(DropReason::Sampled, 100);
        bench.write("drop_prob", "0").unwrap();
        (0..100).for_each(|_| bench.push(0, b"x"));
        assert_eq!(bench.drain_sent(0).len(), 100);
    }

    #[test]
    fn drops_are_kept_when_the_arguments_change() {
        let mut bench = Bench::new(&CLASS, "0");
        bench.push(0, b"x");
        bench.drain_sent(1);
        bench.write("config", "SAMPLE 0.25, ACTIVE false").unwrap();
        assert_eq!(bench.read("config", "").unwrap(), "SAMPLE 0.25, ACTIVE false");
        assert_eq!(bench.read("drops", "").unwrap(), "1");
    }

    #[test]
    fn all_pass_while_inactive() {
        let mut bench = Bench::new(&CLASS, "0, ACTIVE false");
        bench.push(0, b"x");
        bench.expect(0, b"x");
    }

    #[test]
    fn handlers_print_probabilities_as_they_were_written() {
        let mut bench = Bench::new(&CLASS, "SAMPLE 0.1");
        assert_eq!(bench.read("sampling_prob", "").unwrap(), "0.1");
        assert_eq!(bench.read("drop_prob", "").unwrap(), "0.9");
        bench.write("sampling_prob", "0.125").unwrap();
        assert_eq!(bench.read("config", "").unwrap(), "SAMPLE 0.125, ACTIVE true");
        assert!(bench.write("drop_prob", "1.5").is_err());
    }

    #[test]
    fn refuses_what_is_no_probability() {
        assert_eq!(Bench::config_error(&CLASS, "1.5"), "P: parse error");
        let found = Bench::config_error(&CLASS, "SAMPLE 0.1, DROP 0.9");
        assert_eq!(found, "give at most one of SAMPLE and DROP");
        assert!(Bench::config_error(&CLASS, "").contains("P, SAMPLE or DROP"));
    }
}
