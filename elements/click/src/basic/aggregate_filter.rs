use artery_engine::{Arg, ArgError, Args, Batch, Class, Context, DropReason, Element, anno};
use artery_lang::args as text;
use std::ops::RangeInclusive;

pub static CLASS: Class = Class {
    name: "AggregateFilter",
    group: "basic",
    summary: "sorts packets by aggregate annotation",
    manual: "
Each argument is an action and the values of the AGGREGATE annotation that it is for: numbers, or spans such
as `5-10`, or `all` or `-` for all values that no argument names. The action is the number of an output,
`allow` for output 0, or `drop` or `deny`. Where arguments contradict each other the first one counts. Packets
that no argument is for are dropped; so are those whose output is not there.",
    example: "Idle -> f :: AggregateFilter(0 1-10 15, 1 11-14, drop all) -> Discard;\nf[1] -> Discard;",
    ports: "1/-",
    processing: "h/h",
    args: &[Arg::rest("PATTERN", "action and aggregates", "which aggregates go where")],
    build: |args| Ok(Box::new(AggregateFilter::new(args)?)),
    ..Class::PER_WORKER
};

/// Where packets go: an output, or nowhere.
type Action = Option<usize>;

struct AggregateFilter {
    /// In ascending order, without overlaps.
    spans: Vec<(RangeInclusive<u32>, Action)>,
    /// The action for all other aggregates.
    others: Action,
}

impl AggregateFilter {
    fn new(args: &mut Args<'_>) -> Result<AggregateFilter, ArgError> {
        let mut filter = AggregateFilter { spans: Vec::new(), others: None };
        let mut is_complete = false;
        for (number, pattern) in args.rest("PATTERN").to_vec().iter().enumerate() {
            if is_complete {
                args.warn(format!("pattern {number} matches no packets"), None);
                continue;
            }
            let (action, aggregates) = parse_rule(number, pattern)?;
            match aggregates {
                Some(spans) => spans.into_iter().for_each(|span| {
                    if filter.add_span(span.clone(), action) {
                        let (first, last) = span.into_inner();
                        args.warn(
                            format!("pattern {number}: {first}-{last} was filtered otherwise before"),
                            None,
                        );
                    }
                }),
                None => (filter.others, is_complete) = (action, true),
            }
        }
        Ok(filter)
    }

    /// Adds the aggregates of a span that are not there yet; returns whether one was, with another action.
    fn add_span(&mut self, span: RangeInclusive<u32>, action: Action) -> bool {
        let (mut next, last) = (u64::from(*span.start()), u64::from(*span.end()));
        let (mut free, mut contradicts) = (Vec::new(), false);
        let mut add = |from: u64, to: u64| {
            if from <= to {
                free.push((from as u32..=to as u32, action));
            }
        };
        for (there, other) in &self.spans {
            let (from, to) = (u64::from(*there.start()), u64::from(*there.end()));
            if to < next || from > last {
                continue;
            }
            contradicts |= *other != action;
            if from > 0 {
                add(next, from - 1);
            }
            next = to + 1;
        }
        add(next, last);
        self.spans.extend(free);
        self.spans.sort_by_key(|(span, _)| *span.start());
        contradicts
    }

    #[inline]
    fn action_for(&self, aggregate: u32) -> Action {
        let at = self.spans.partition_point(|(span, _)| *span.end() < aggregate);
        self.spans
            .get(at)
            .filter(|(span, _)| span.contains(&aggregate))
            .map_or(self.others, |(_, action)| *action)
    }
}

/// An action and the aggregates it is for; None stands for all others.
#[allow(clippy::type_complexity, reason = "it is taken apart where it is read")]
fn parse_rule(number: usize, pattern: &str) -> Result<(Action, Option<Vec<RangeInclusive<u32>>>), ArgError> {
    let wrong = |why: &str| ArgError::wrong_at(pattern, format!("pattern {number}{why}"));
    let words = text::split_words(pattern);
    let Some((action, aggregates)) = words.split_first() else {
        return Err(ArgError::wrong(format!("empty pattern {number}")));
    };
    let action = match action.as_str() {
        "allow" => Some(0),
        "drop" | "deny" => None,
        output => Some(parse_u32(output).ok_or_else(|| wrong(": expected a port number"))? as usize),
    };
    match aggregates {
        [] => Err(wrong(" has no aggregates")),
        [all] if all == "all" || all == "-" => Ok((action, None)),
        spans => {
            let read = |word: &String| {
                parse_span(word).ok_or_else(|| wrong(&format!(": bad aggregate number '{word}'")))
            };
            Ok((action, Some(spans.iter().map(read).collect::<Result<_, _>>()?)))
        }
    }
}

fn parse_u32(text: &str) -> Option<u32> {
    text::parse_unsigned(text).ok().and_then(|number| u32::try_from(number).ok())
}
fn parse_span(text: &str) -> Option<RangeInclusive<u32>> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some(parse_u32(first)?..=parse_u32(last)?)
}

impl Element for AggregateFilter {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        for packet in batch.drain() {
            match self.action_for(u32::from_ne_bytes(packet.annotation(anno::AGGREGATE))) {
                Some(output) => cx.send_or_discard(output, packet, DropReason::NoOutput),
                None => cx.discard(packet, DropReason::NoMatch),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    fn bench(config: &str) -> Bench {
        Bench::setup(&CLASS, config).outputs(3).build().unwrap()
    }
    /// The output by which a packet of an aggregate leaves.
    fn output(bench: &mut Bench, aggregate: u32) -> Option<usize> {
        bench.push_with(0, b"x", |packet| packet.set_annotation(anno::AGGREGATE, aggregate.to_ne_bytes()));
        (0..3).find(|output| bench.next_sent(*output).is_some())
    }

    #[test]
    fn aggregates_go_where_they_are_told() {
        let mut bench = bench("1 5-10 15, 2 4, deny 0, allow all");
        for (aggregate, to) in [
            (0, None),
            (3, Some(0)),
            (4, Some(2)),
            (5, Some(1)),
            (10, Some(1)),
            (11, Some(0)),
            (15, Some(1)),
            (u32::MAX, Some(0)),
        ] {
            assert_eq!(output(&mut bench, aggregate), to, "{aggregate}");
        }
        bench.expect_dropped(DropReason::NoMatch, 1);
    }

    #[test]
    fn what_nothing_is_said_of_is_dropped_and_so_is_what_has_no_output() {
        let mut bench = bench("7 1");
        assert_eq!((output(&mut bench, 2), output(&mut bench, 1)), (None, None));
        bench.expect_dropped(DropReason::NoMatch, 1);
        bench.expect_dropped(DropReason::NoOutput, 1);
    }

    #[test]
    fn the_first_of_arguments_that_contradict_each_other_counts() {
        let mut bench = bench("1 5-10, 2 0-4294967295, 0 all, 1 77");
        for (aggregate, to) in [(0, 2), (4, 2), (5, 1), (10, 1), (11, 2), (u32::MAX, 2)] {
            assert_eq!(output(&mut bench, aggregate), Some(to), "{aggregate}");
        }
        let warnings = bench.warnings();
        assert!(warnings.contains("pattern 1: 0-4294967295 was filtered otherwise before"), "{warnings}");
        assert!(warnings.contains("pattern 3 matches no packets"), "{warnings}");
    }
}
