use super::info::Info;
use artery_engine::{Arg, ArgError, Class, Phase};
use artery_lang::args;

pub static CLASS: Class = Class {
    name: "AlignmentInfo",
    group: "script",
    summary: "states how packets are aligned in memory; accepted and of no effect",
    manual: "
Each argument is an element's name and pairs of modulus and offset, one an input. Click's align tool writes
this element for machines that can't read words at any address. Headers are read at any address here, so it is
checked and otherwise without effect.",
    example: "n :: Idle -> Discard;\nAlignmentInfo(n 4 2);",
    ports: "0/0",
    args: &[Arg::rest("ELEMENT", "name and numbers", "an element, and modulus and offset for each input")],
    phase: Phase::Info,
    build: |arguments| {
        for text in arguments.rest("ELEMENT") {
            let words = args::split_words(text);
            let Some((name, numbers)) = words.split_first() else { continue };
            if arguments.find_element(name).is_none() {
                return Err(ArgError::wrong(format!("no element named '{name}'")));
            }
            if numbers.len() % 2 != 0 || numbers.iter().any(|word| args::parse_unsigned(word).is_err()) {
                return Err(ArgError::wrong("expected 'ELEMENTNAME [MODULUS OFFSET ...]'"));
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
    fn pairs_of_numbers_are_accepted() {
        Bench::new(&CLASS, "e, e 4 2 4 0");
        assert_eq!(Bench::config_error(&CLASS, "e 4"), "expected 'ELEMENTNAME [MODULUS OFFSET ...]'");
        assert_eq!(Bench::config_error(&CLASS, "nope 4 2"), "no element named 'nope'");
    }
}
