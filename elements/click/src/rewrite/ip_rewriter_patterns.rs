use super::pattern::{NamedPatterns, Pattern};
use crate::script::info::Info;
use artery_engine::{Arg, ArgError, Class, Phase};
use artery_lang::args as text;

pub static CLASS: Class = Class {
    name: "IPRewriterPatterns",
    group: "rewrite",
    summary: "gives names to patterns of rewriters",
    manual: "
Each argument is a name and a pattern: `NAME SADDR SPORT DADDR DPORT`, or `NAME SADDR DADDR`. IPRewriter and
its kin can use the name instead of the pattern, and share among each other which ports or addresses of it are
used in turn. Names are known in the compound element that they are given in, and inside it.",
    example: "IPRewriterPatterns(out 1.0.0.1 1024-65535# - -);\n\
        Idle -> rw :: IPRewriter(pattern out 0 1) -> Discard;\nrw[1] -> Discard;",
    ports: "0/0",
    args: &[Arg::rest("NAME", "name and pattern", "a name, and the pattern it stands for")],
    phase: Phase::Info,
    build: |args| {
        let mut seen: Vec<&str> = Vec::new();
        for argument in args.rest("NAME") {
            let (name, pattern) = text::shift_word(argument);
            if seen.contains(&name) {
                args.record_error(ArgError::wrong_at(argument, format!("pattern '{name}' already defined")));
                continue;
            }
            seen.push(name);
            match Pattern::parse_words(&text::split_words(pattern), args.names()) {
                Ok(pattern) => args.resource::<NamedPatterns>().define_pattern(args.prefix(), name, pattern),
                Err(why) => args.record_error(ArgError::wrong_at(argument, why)),
            }
        }
        Ok(Box::new(Info))
    },
    ..Class::DEFAULT
};

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn patterns_are_checked() {
        Bench::setup(&CLASS, "a 1.0.0.1 - - -, b - 2.0.0.2").inputs(0).outputs(0).build().unwrap();
        let refused = |config: &str| {
            Bench::setup(&CLASS, config).inputs(0).outputs(0).build().err().unwrap()[0].to_string()
        };
        assert_eq!(refused("a 1.0.0.1 - - -, a - - - -"), "pattern 'a' already defined");
        assert_eq!(refused("a 1.0.0.1 x - -"), "bad source port");
    }

    #[test]
    fn rewriters_know_the_names() {
        let patterns = Bench::setup(&CLASS, "a 1.0.0.1 5000 - -").inputs(0).outputs(0).build().unwrap();
        let rewriter = Bench::setup(&super::super::classes::IP, "pattern a 0 0").sharing_with(&patterns);
        let mut rewriter = rewriter.build().unwrap();
        assert_eq!(rewriter.read("patterns", "").unwrap(), "1.0.0.1 5000 - -\n");
    }
}
