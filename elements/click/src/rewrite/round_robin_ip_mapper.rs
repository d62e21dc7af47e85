use super::pattern::{Mapper, NamedPatterns, Rule};
use crate::script::info::Info;
use artery_engine::{Arg, ArgError, Class, Phase};
use artery_lang::args as text;
use std::sync::atomic::AtomicU32;

pub static CLASS: Class = Class {
    name: "RoundRobinIPMapper",
    group: "rewrite",
    summary: "gives flows of rewriters one of several patterns in turn",
    manual: "
Each argument is a pattern and two outputs: `SADDR SPORT DADDR DPORT FOUTPUT ROUTPUT`, or
`NAME FOUTPUT ROUTPUT` with a name of IPRewriterPatterns. A rewriter whose argument names this element gives
each new flow the next one of them that has room. FlowBalancer shares flows out by better ways.",
    example: "map :: RoundRobinIPMapper(- - 1.0.0.1 - 0 1, - - 1.0.0.2 - 0 1);\n\
        Idle -> rw :: IPRewriter(map) -> Discard;\nrw[1] -> Discard;",
    ports: "0/0",
    args: &[Arg::rest("PATTERN", "pattern and outputs", "a pattern, and the outputs of packets and replies")],
    // After the patterns that it names, before the rewriters that name it.
    phase: Phase::Privileged,
    build: |args| {
        let mut rules = Vec::new();
        for argument in args.rest("PATTERN") {
            match Rule::parse_rule(&text::split_words(argument), args) {
                Ok(rule) => rules.push(rule),
                Err(why) => args.record_error(ArgError::wrong_at(argument, why)),
            }
        }
        if rules.is_empty() {
            return Err(ArgError::wrong("no patterns given"));
        }
        args.resource::<NamedPatterns>()
            .define_mapper(args.name(), Mapper { rules, next: AtomicU32::new(0) });
        Ok(Box::new(Info))
    },
    ..Class::DEFAULT
};

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn patterns_must_be_given_and_right() {
        let refused = |config: &str| {
            Bench::setup(&CLASS, config).inputs(0).outputs(0).build().err().unwrap()[0].to_string()
        };
        assert_eq!(refused(""), "no patterns given");
        assert_eq!(refused("- - x - 0 1"), "bad destination address");
        Bench::setup(&CLASS, "- - 1.0.0.1 - 0 1, - - 1.0.0.2 - 0 1").inputs(0).outputs(0).build().unwrap();
    }
}
