//! How much of the processors' time the host of a virtual machine gave to others.

use std::fs;

/// The accounts of all processors at some time.
pub(crate) struct Steal(Option<Ticks>);

#[derive(Clone, Copy, Debug, PartialEq)]
struct Ticks {
    stolen: u64,
    all: u64,
}

impl Steal {
    pub(crate) fn begin() -> Steal {
        Steal(now())
    }

    /// Percent since then; 0 where the kernel does not say.
    pub(crate) fn percent(&self) -> f64 {
        let (Some(before), Some(after)) = (self.0, now()) else { return 0.0 };
        let stolen = after.stolen.saturating_sub(before.stolen);
        100.0 * stolen as f64 / after.all.saturating_sub(before.all).max(1) as f64
    }
}

fn now() -> Option<Ticks> {
    ticks(&fs::read_to_string("/proc/stat").ok()?)
}

/// From proc_stat(5): user, nice, system, idle, iowait, irq, softirq, steal; what guests use is
/// in the first two.
fn ticks(text: &str) -> Option<Ticks> {
    let line = text.lines().find(|line| line.starts_with("cpu "))?;
    let figures: Vec<u64> = line.split_whitespace().skip(1).map_while(|figure| figure.parse().ok()).collect();
    Some(Ticks { stolen: *figures.get(7)?, all: figures[..8].iter().sum() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stolen_time_is_the_eighth_figure_of_all_processors() {
        let text = "cpu  10 20 30 40 0 0 0 5 7 7\ncpu0 1 1 1 1 1 1 1 1 1 1\n";
        assert_eq!(ticks(text), Some(Ticks { stolen: 5, all: 105 }));
        assert_eq!(ticks("cpu  1 2 3\n"), None);
        assert_eq!(ticks(""), None);
    }

    #[test]
    fn it_is_a_part_of_all_time() {
        assert!((0.0..=100.0).contains(&Steal::begin().percent()));
    }
}
