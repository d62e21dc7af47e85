//! What one miss costs: a walk through memory in which every step waits for the one before.

use std::hint::black_box;
use std::time::Instant;

/// Words of a cache line.
const LINE: usize = 16;

/// Nanoseconds of a load that misses every cache: of a step from line to line, in a random circle through `bytes`.
/// What it takes to find the page is in it.
pub(super) fn nanos_of_a_miss(bytes: usize, steps: u32) -> f64 {
    let lines = (bytes / (4 * LINE)).max(2);
    let memory = circle(lines);
    let mut at = walk(&memory, 0, steps / 4);
    let start = Instant::now();
    at = walk(&memory, at, steps);
    let nanos = start.elapsed().as_nanos() as f64;
    black_box(at);
    nanos / f64::from(steps.max(1))
}

#[inline(never)]
fn walk(memory: &[u32], mut at: u32, steps: u32) -> u32 {
    for _ in 0..steps {
        at = memory[at as usize * LINE];
    }
    at
}

/// Lines of which each names the next: one circle through all of them, by Sattolo's way of shuffling.
fn circle(lines: usize) -> Vec<u32> {
    let mut memory = vec![0; lines * LINE];
    (0..lines).for_each(|line| memory[line * LINE] = line as u32);
    let mut state = 0x2008_0707_u64;
    for line in (1..lines).rev() {
        // Xorshift: any order that a processor can't foresee will do.
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        memory.swap(line * LINE, (state % line as u64) as usize * LINE);
    }
    memory
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_circle_goes_through_every_line_once() {
        for lines in [2, 3, 100, 1021] {
            let memory = circle(lines);
            let (mut at, mut steps) = (0, 0);
            loop {
                at = memory[at as usize * LINE];
                steps += 1;
                if at == 0 {
                    break;
                }
            }
            assert_eq!(steps, lines);
        }
    }

    #[test]
    fn a_step_takes_time() {
        assert!(nanos_of_a_miss(1 << 16, 10_000) > 0.1);
    }
}
