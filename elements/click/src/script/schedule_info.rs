use super::info::{Info, parse_pair};
use artery_engine::{Arg, ArgError, Args, Class, Phase};
use artery_lang::args;

pub static CLASS: Class = Class {
    name: "ScheduleInfo",
    group: "script",
    summary: "says how often tasks run, compared with others",
    manual: "
Each argument is an element's name and a number: an element with 2 runs four times as often as one with 0.5.
Elements that are not listed have 1. The name of a compound element scales all elements inside it. Inside a
compound, names are those of its elements.",
    example: "i :: InfiniteSource -> Discard; j :: InfiniteSource -> Discard;\nScheduleInfo(i 2, j 0.5);",
    ports: "0/0",
    args: &[Arg::rest("ELEMENT", "name and number", "an element or compound, and its share of turns")],
    phase: Phase::Info,
    build: |args| {
        for text in args.rest("ELEMENT").to_vec() {
            if !text.is_empty() {
                let wrong = || ArgError::wrong("expected 'ELEMENTNAME PARAM'");
                let (name, share) = parse_pair(&text).ok_or_else(wrong)?;
                assign_share(args, &name, args::parse_fixed(&share, SHARE_BITS).map_err(|_| wrong())?);
            }
        }
        Ok(Box::new(Info))
    },
    ..Class::DEFAULT
};

/// Bits behind the point of a share; 1 is 1024 tickets.
const SHARE_BITS: u32 = 10;

/// Sets the share of element `name`, or scales those of the compound `name`.
fn assign_share(args: &mut Args<'_>, name: &str, share: u64) {
    if let Some(element) = args.find_element(name) {
        return args.set_tickets(element, share_to_tickets(share));
    }
    let compound = format!("{}{name}/", args.prefix());
    let inside: Vec<usize> =
        args.elements().filter(|(_, name)| name.starts_with(&compound)).map(|(element, _)| element).collect();
    for element in inside {
        let scaled = u64::from(args.tickets(element)).saturating_mul(share) >> SHARE_BITS;
        args.set_tickets(element, share_to_tickets(scaled));
    }
}

fn share_to_tickets(share: u64) -> u32 {
    share.clamp(1, 32768) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn an_element_gets_tickets_in_proportion() {
        let mut bench = Bench::new(&CLASS, "e 2.5");
        assert_eq!(bench.read("tickets", "").as_deref(), Ok("2560"));
        let mut bench = Bench::new(&CLASS, "e 1000");
        assert_eq!(bench.read("tickets", "").as_deref(), Ok("32768"));
    }
}
