//! What one miss costs: a walk through memory in which every step waits for the one before.

use artery_bench::perf::{fence, forget};
use std::hint::black_box;
use std::time::Instant;

/// Words of a cache line.
const LINE: usize = 16;
/// Lines apart that two lines must be so that no prefetcher brings one for the other.
const APART: usize = 4;
/// Lines of the short walk: few enough for the processor to know all their pages.
const FEW: usize = 512;
/// Number of short walks; the median counts.
const WALKS: usize = 101;

/// Two walks, long and short.
pub(super) struct Chase {
    long: Circle,
    short: Circle,
}

impl Chase {
    /// A long walk through so many bytes.
    pub(super) fn new(bytes: usize) -> Chase {
        Chase { long: Circle::new(bytes / (4 * LINE), LINE), short: Circle::new(FEW, APART * LINE) }
    }

    /// Nanoseconds of a step of the long walk, which misses every smaller cache and the TLB.
    pub(super) fn long(&mut self, steps: u32) -> f64 {
        self.long.walk(steps / 4);
        self.long.walk(steps)
    }

    /// Nanoseconds of a load of a line that the processor was made to forget, of a page that it knows: what a
    /// cold header is. None where it can't be made to.
    pub(super) fn short(&mut self) -> Option<f64> {
        let mut walks: Vec<f64> = (0..WALKS).map(|_| self.short.forgotten()).collect::<Option<_>>()?;
        walks.sort_by(f64::total_cmp);
        Some(walks[WALKS / 2])
    }
}

/// Lines of which each names the next: one circle through all of them.
struct Circle {
    memory: Vec<u32>,
    /// Words from line to line.
    stride: usize,
    at: u32,
}

impl Circle {
    /// Of at least two lines, shuffled by Sattolo's way.
    fn new(lines: usize, stride: usize) -> Circle {
        let lines = lines.max(2);
        let mut memory = vec![0; lines * stride];
        (0..lines).for_each(|line| memory[line * stride] = (line * stride) as u32);
        let mut state = 0x2008_0707_u64;
        for line in (1..lines).rev() {
            // Xorshift: any order that a processor can't foresee will do.
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            memory.swap(line * stride, (state % line as u64) as usize * stride);
        }
        Circle { memory, stride, at: 0 }
    }

    /// Nanoseconds of a step.
    fn walk(&mut self, steps: u32) -> f64 {
        let start = Instant::now();
        for _ in 0..steps {
            self.at = self.memory[self.at as usize];
        }
        black_box(self.at);
        start.elapsed().as_nanos() as f64 / f64::from(steps.max(1))
    }

    /// The same once round, with all lines forgotten.
    fn forgotten(&mut self) -> Option<f64> {
        let lines = self.memory.len() / self.stride;
        let all = self.memory.chunks(self.stride).all(forget);
        fence();
        all.then(|| self.walk(lines as u32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_circle_goes_through_every_line_once() {
        for (lines, stride) in [(2, 16), (3, 64), (100, 16), (1021, 1)] {
            let circle = Circle::new(lines, stride);
            let (mut at, mut steps) = (0, 0);
            loop {
                at = circle.memory[at] as usize;
                assert!(at.is_multiple_of(stride));
                steps += 1;
                if at == 0 {
                    break;
                }
            }
            assert_eq!(steps, lines);
        }
    }

    /// Which takes longer is for the experiment to say: other programs share the caches.
    #[test]
    fn lines_that_are_there_and_lines_that_were_forgotten_take_a_time() {
        let mut chase = Chase::new(1 << 14);
        let hot = chase.long(100_000);
        assert!(hot > 0.1, "{hot}");
        assert!(chase.short().is_none_or(|cold| cold > 0.1));
    }
}
