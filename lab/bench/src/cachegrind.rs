//! Valgrind's cachegrind: instructions and misses of simulated caches, where the processor counts none.
//!
//! What a program costs to start and to end is not asked for: it is counted with N and with 2N packets, and
//! the difference is what N packets cost.

use anyhow::{Context as _, ensure};
use std::fmt;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

/// One cache: bytes, ways, bytes of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Size of the cache in bytes.
    pub bytes: usize,
    /// In how many lines of the cache a line of memory can be.
    pub ways: usize,
    /// Bytes of a line.
    pub line: usize,
}

/// The caches of a processor: those for data of the first level, and the last level.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caches {
    /// What people call it.
    pub name: &'static str,
    /// The first level's, for data.
    pub d1: Cache,
    /// The last level's, for data and instructions.
    pub last: Cache,
    /// The first level's for instructions, where it is not valgrind's to choose.
    pub i1: Option<Cache>,
}

const fn cache(bytes: usize, ways: usize) -> Cache {
    Cache { bytes, ways, line: 64 }
}

/// A Pentium Pro: what 1999 had.
pub const PENTIUM_PRO: Caches = Caches {
    name: "PPro",
    d1: Cache { bytes: 8192, ways: 2, line: 32 },
    last: Cache { bytes: 262_144, ways: 4, line: 32 },
    i1: Some(Cache { bytes: 8192, ways: 4, line: 32 }),
};
/// An AMD K8: what the machine with bge0 had in 2008.
pub const K8: Caches = Caches { name: "k8", d1: cache(65_536, 2), last: cache(1 << 20, 16), i1: None };
/// An Intel Xeon L5420.
pub const L5420: Caches = Caches { name: "L5420", d1: cache(32_768, 8), last: cache(6 << 20, 24), i1: None };
/// An Intel Xeon E5-2620 v2, with a last level of 16 MB: cachegrind refuses its true 15.
pub const E5_2620V2: Caches =
    Caches { name: "E5-2620v2", d1: cache(32_768, 8), last: cache(16 << 20, 16), i1: None };

impl Cache {
    /// Whether cachegrind can simulate it: the number of its sets must be a power of two.
    fn is_simple(self) -> bool {
        let set = self.ways * self.line;
        set > 0 && self.bytes.is_multiple_of(set) && (self.bytes / set).is_power_of_two()
    }
}

impl Caches {
    /// This machine's first level and its second: the third is shared with others. None where the
    /// system does not say.
    pub fn here() -> Option<Caches> {
        let of_level = |level: &str, kinds: &[&str]| {
            (0..5).find_map(|index| {
                let folder = format!("/sys/devices/system/cpu/cpu0/cache/index{index}");
                let read = |name: &str| fs::read_to_string(format!("{folder}/{name}")).ok();
                let is = |name: &str, wanted: &[&str]| read(name).is_some_and(|t| wanted.contains(&t.trim()));
                (is("level", &[level]) && is("type", kinds)).then(|| described(read))?
            })
        };
        let d1 = of_level("1", &["Data", "Unified"])?;
        let last = of_level("2", &["Unified", "Data"])?;
        (d1.is_simple() && last.is_simple()).then_some(Caches { name: "host", d1, last, i1: None })
    }

    fn arguments(&self) -> Vec<String> {
        let i1 = self.i1.map(|i1| format!("--I1={i1}"));
        i1.into_iter().chain([format!("--D1={}", self.d1), format!("--LL={}", self.last)]).collect()
    }
}

fn described(read: impl Fn(&str) -> Option<String>) -> Option<Cache> {
    let figure = |name: &str| read(name)?.trim().trim_end_matches('K').parse::<usize>().ok();
    Some(Cache {
        bytes: figure("size")? << 10,
        ways: figure("ways_of_associativity")?,
        line: figure("coherency_line_size")?,
    })
}

impl fmt::Display for Cache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{},{},{}", self.bytes, self.ways, self.line)
    }
}

/// What one packet costs by cachegrind's count.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Count {
    /// Instructions per packet, by cachegrind's count.
    pub instructions: f64,
    /// Misses of the first-level data cache.
    pub d1: f64,
    /// Misses of the last level, for data.
    pub last: f64,
}

/// Counts what one packet costs; `run` makes the command that handles a number of packets.
pub fn each_packet(
    valgrind: &Path,
    caches: &Caches,
    packets: u64,
    run: impl Fn(u64) -> anyhow::Result<Command>,
) -> anyhow::Result<Count> {
    let (once, twice) =
        (count(valgrind, caches, &run(packets)?)?, count(valgrind, caches, &run(2 * packets)?)?);
    let each = |once: u64, twice: u64| (twice as f64 - once as f64) / packets as f64;
    Ok(Count {
        instructions: each(once[0], twice[0]),
        d1: each(once[1], twice[1]),
        last: each(once[2], twice[2]),
    })
}

fn count(valgrind: &Path, caches: &Caches, run: &Command) -> anyhow::Result<[u64; 3]> {
    let mut command = Command::new(valgrind);
    command.args(["--tool=cachegrind", "--cache-sim=yes", "--cachegrind-out-file=/dev/null"]);
    command.args(caches.arguments()).arg(run.get_program()).args(run.get_args());
    let text = String::from_utf8_lossy(&finish(&mut command)?.stderr).into_owned();
    let figures = ["I refs:", "D1 misses:", "LLd misses:"].map(|label| figure(&text, label));
    match figures {
        [Some(instructions), Some(d1), Some(last)] => Ok([instructions, d1, last]),
        _ => anyhow::bail!("valgrind printed no counts:\n{text}"),
    }
}

/// Runs a command to its end; that it fails is an error with what it said.
pub fn finish(command: &mut Command) -> anyhow::Result<Output> {
    let output = command.output().with_context(|| format!("can't run {:?}", command.get_program()))?;
    let stderr = String::from_utf8_lossy(&output.stderr);
    let words: Vec<_> = command.get_args().map(|word| word.to_string_lossy()).collect();
    ensure!(output.status.success(), "{}: the run ended with {}\n{stderr}", words.join(" "), output.status);
    Ok(output)
}

/// The first figure behind `label` in what cachegrind prints, such as `==1== D1 misses: 1,234 ( 1 rd + …)`.
fn figure(text: &str, label: &str) -> Option<u64> {
    let mut lines = text.lines().map(|line| line.split_whitespace().skip(1).collect::<Vec<_>>().join(" "));
    let rest = lines.find_map(|line| line.strip_prefix(label).map(str::to_owned))?;
    rest.split_whitespace().next()?.replace(',', "").parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_read_from_what_cachegrind_prints() {
        let text = "==7== Cachegrind\n==7== I   refs:      1,234,567\n==7== D   refs:  5\n\
            ==7== D1  misses:       89,012  (80,000 rd + 9,012 wr)\n\
            ==7== LLd misses:  1 (1 rd + 0 wr)\n";
        assert_eq!((figure(text, "I refs:"), figure(text, "D1 misses:")), (Some(1_234_567), Some(89_012)));
        assert_eq!((figure(text, "LLd misses:"), figure(text, "LL misses:")), (Some(1), None));
    }

    #[test]
    fn every_processor_of_then_can_be_simulated() {
        for caches in [PENTIUM_PRO, K8, L5420, E5_2620V2] {
            assert!(caches.d1.is_simple() && caches.last.is_simple(), "{}", caches.name);
        }
        assert!(!cache(15 << 20, 20).is_simple(), "the true last level of an E5-2620 v2");
        assert!(!Cache { bytes: 1 << 20, ways: 0, line: 64 }.is_simple());
    }

    #[test]
    fn caches_are_told_to_valgrind_as_it_wants_them() {
        assert_eq!(K8.arguments(), ["--D1=65536,2,64", "--LL=1048576,16,64"]);
        assert_eq!(PENTIUM_PRO.arguments()[0], "--I1=8192,4,32");
    }

    #[test]
    fn a_cache_is_read_from_what_the_system_says() {
        let says = |name: &str| {
            let value = match name {
                "size" => "48K\n",
                "ways_of_associativity" => "12\n",
                _ => "64\n",
            };
            Some(value.to_string())
        };
        assert_eq!(described(says), Some(Cache { bytes: 48 << 10, ways: 12, line: 64 }));
        assert_eq!(described(|_| None), None);
    }
}
