use super::info::Info;
use artery_engine::{Arg, Class, Phase};

pub static CLASS: Class = Class {
    name: "ClickyInfo",
    group: "script",
    summary: "holds styles for Click's graphical front end; accepted and of no effect",
    manual: "
Its arguments say how Clicky, the program that draws configurations of Click, is to draw this one. They are
neither read nor checked.",
    example: "ClickyInfo(STYLE #q { color: red });\nIdle -> q :: Queue -> Discard;",
    ports: "0/0",
    args: &[Arg::rest("INFO", "text", "anything"), Arg::keyword("STYLE", "text", "", "a style sheet")],
    phase: Phase::Info,
    build: |_| Ok(Box::new(Info)),
    ..Class::DEFAULT
};

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn anything_is_accepted() {
        for text in ["", "STYLE #q { color: red }", "a, \"b\", 1 2 3"] {
            Bench::new(&CLASS, text);
        }
    }
}
