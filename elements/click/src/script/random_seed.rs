use artery_common::chance::Chance;
use artery_engine::{Arg, Class, Context, Element, Handler, HandlerError, Phase, Read, Write};
use artery_lang::args;
use std::sync::Arc;

pub static CLASS: Class = Class {
    name: "RandomSeed",
    group: "script",
    summary: "makes random choices repeatable",
    manual: "
Starts the router's random numbers at the sequence that belongs to SEED; without one, at an unpredictable
place, as every router starts. Scripts draw from them, and elements that choose at random, such as
RandomSample, take the seed of their own numbers from them when they are made; so a seed that is written later
reaches scripts alone.",
    example: "RandomSeed(1);\nScript(print $(random 10), stop);",
    ports: "0/0",
    args: &[Arg::optional("SEED", "number", "", "which sequence; unpredictable if not given")],
    handlers: &[Handler::read("seed", "the seed, empty when unpredictable", &Read(RandomSeed::read_seed))
        .and_write(&Write(RandomSeed::write_seed))
        .sets_argument("SEED")],
    phase: Phase::Info,
    build: |args| {
        let seed = args.read("SEED")?;
        let chance: Arc<Chance> = args.resource();
        chance.set_seed(seed);
        Ok(Box::new(RandomSeed { chance, seed }))
    },
    ..Class::DEFAULT
};

struct RandomSeed {
    chance: Arc<Chance>,
    seed: Option<u32>,
}

impl RandomSeed {
    fn read_seed(&mut self, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        Ok(self.seed.map(|seed| seed.to_string()).unwrap_or_default())
    }
    fn write_seed(&mut self, text: &str, _: &mut Context<'_>) -> Result<(), HandlerError> {
        let number = || args::parse_unsigned(text.trim_ascii()).ok()?.try_into().ok();
        self.seed = match text.trim_ascii() {
            "" => None,
            _ => Some(number().ok_or_else(|| HandlerError::refused("SEED: parse error"))?),
        };
        self.chance.set_seed(self.seed);
        Ok(())
    }
}

impl Element for RandomSeed {}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn the_seed_is_read_and_written() {
        let mut bench = Bench::new(&CLASS, "7");
        assert_eq!(bench.read("seed", "").as_deref(), Ok("7"));
        bench.write("seed", " 9").unwrap();
        assert_eq!(["seed", "config"].map(|name| bench.read(name, "").unwrap()), ["9", "9"]);
        bench.write("seed", "").unwrap();
        assert_eq!(["seed", "config"].map(|name| bench.read(name, "").unwrap()), ["", ""]);
        assert_eq!(bench.write("seed", "x").unwrap_err().to_string(), "SEED: parse error");
        assert_eq!(Bench::config_error(&CLASS, "-1"), "SEED: invalid number");
    }
}
