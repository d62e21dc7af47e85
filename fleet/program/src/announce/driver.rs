//! Makes what is wanted so, and tries again what fails.

use std::time::{Duration, Instant};

use anyhow::Result;

use super::state::Wanted;

/// The pause after a failure.
const RETRY_AFTER: Duration = Duration::from_secs(1);

/// A way to announce this machine, and to withdraw it.
pub(crate) trait Actuator: Send {
    /// Begins to announce or to withdraw; what is still under way is given up.
    fn begin(&mut self, is_announced: bool, now: Instant) -> Result<()>;

    /// What came of it; none while it is under way.
    fn poll(&mut self, now: Instant) -> Option<Result<()>>;

    /// How often an announcement is made again, where others can undo it.
    fn renewal(&self) -> Option<Duration>;
}

pub(crate) struct Driver {
    actuator: Box<dyn Actuator>,
    wanted: Wanted,
    step: Step,
    failure: Option<String>,
}

enum Step {
    Begin,
    UnderWay { is_announced: bool },
    Failed(Instant),
    Done(Instant),
}

impl Driver {
    pub(crate) fn new(actuator: Box<dyn Actuator>) -> Driver {
        Driver { actuator, wanted: Wanted::AsItIs, step: Step::Begin, failure: None }
    }

    /// Whether what is wanted is so.
    pub(crate) fn is_done(&self, wanted: Wanted) -> bool {
        self.wanted == wanted && matches!(self.step, Step::Done(_))
    }

    /// Why it is not so.
    pub(crate) fn failure(&self) -> Option<&str> {
        self.failure.as_deref()
    }

    pub(crate) fn drive(&mut self, wanted: Wanted, now: Instant) {
        self.finish(now);
        if wanted != self.wanted {
            self.turn(wanted);
        }
        if wanted != Wanted::AsItIs && self.is_due(now) {
            self.begin(now);
            self.finish(now);
        }
    }

    /// A withdrawal waits for no announcement, but an announcement for the withdrawal before it.
    fn turn(&mut self, wanted: Wanted) {
        let waits = matches!(self.step, Step::UnderWay { is_announced: false });
        self.wanted = wanted;
        if !waits {
            self.step = Step::Begin;
        }
    }

    fn is_due(&self, now: Instant) -> bool {
        match self.step {
            Step::Begin => true,
            Step::UnderWay { .. } => false,
            Step::Failed(at) => now.duration_since(at) >= RETRY_AFTER,
            Step::Done(at) => {
                let renewal = self.actuator.renewal().filter(|_| self.wanted == Wanted::Announced);
                renewal.is_some_and(|renewal| now.duration_since(at) >= renewal)
            }
        }
    }

    fn begin(&mut self, now: Instant) {
        let is_announced = self.wanted == Wanted::Announced;
        match self.actuator.begin(is_announced, now) {
            Ok(()) => self.step = Step::UnderWay { is_announced },
            Err(error) => self.fail(is_announced, &error, now),
        }
    }

    fn finish(&mut self, now: Instant) {
        let Step::UnderWay { is_announced } = self.step else { return };
        match self.actuator.poll(now) {
            None => {}
            Some(Ok(())) => {
                self.failure = None;
                let is_wanted = is_announced == (self.wanted == Wanted::Announced);
                self.step = if is_wanted { Step::Done(now) } else { Step::Begin };
            }
            Some(Err(error)) => self.fail(is_announced, &error, now),
        }
    }

    fn fail(&mut self, is_announced: bool, error: &anyhow::Error, now: Instant) {
        let failure = format!("{error:#}");
        if self.failure.as_ref() != Some(&failure) {
            let what = if is_announced { "announce" } else { "withdraw" };
            eprintln!("artery-fleet: can't {what} this machine, and tries again: {failure}");
        }
        (self.failure, self.step) = (Some(failure), Step::Failed(now));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};

    use anyhow::anyhow;

    use super::*;

    /// What was begun, and what each poll says.
    #[derive(Default)]
    struct Script {
        begun: Vec<bool>,
        outcome: Option<Result<(), &'static str>>,
    }

    struct Scripted(Arc<Mutex<Script>>);

    impl Actuator for Scripted {
        fn begin(&mut self, is_announced: bool, _: Instant) -> Result<()> {
            self.0.lock().unwrap().begun.push(is_announced);
            Ok(())
        }

        fn poll(&mut self, _: Instant) -> Option<Result<()>> {
            self.0.lock().unwrap().outcome.map(|outcome| outcome.map_err(|error| anyhow!(error)))
        }

        fn renewal(&self) -> Option<Duration> {
            Some(Duration::from_secs(1))
        }
    }

    fn scripted(outcome: Option<Result<(), &'static str>>) -> (Driver, Arc<Mutex<Script>>) {
        let script = Arc::new(Mutex::new(Script { begun: Vec::new(), outcome }));
        (Driver::new(Box::new(Scripted(script.clone()))), script)
    }

    #[test]
    fn nothing_is_done_until_something_is_wanted_and_announcements_are_renewed() {
        let (mut driver, script) = scripted(Some(Ok(())));
        let now = Instant::now();
        driver.drive(Wanted::AsItIs, now);
        assert!(script.lock().unwrap().begun.is_empty());
        driver.drive(Wanted::Announced, now);
        assert!(driver.is_done(Wanted::Announced) && !driver.is_done(Wanted::Withdrawn));
        driver.drive(Wanted::Announced, now + Duration::from_millis(999));
        driver.drive(Wanted::Announced, now + Duration::from_secs(1));
        driver.drive(Wanted::Withdrawn, now + Duration::from_secs(1));
        driver.drive(Wanted::Withdrawn, now + Duration::from_secs(9));
        assert_eq!(script.lock().unwrap().begun, [true, true, false]);
    }

    #[test]
    fn what_fails_is_tried_again_after_a_pause() {
        let (mut driver, script) = scripted(Some(Err("no")));
        let now = Instant::now();
        driver.drive(Wanted::Withdrawn, now);
        assert_eq!((driver.failure(), driver.is_done(Wanted::Withdrawn)), (Some("no"), false));
        driver.drive(Wanted::Withdrawn, now + Duration::from_millis(999));
        assert_eq!(script.lock().unwrap().begun, [false]);
        script.lock().unwrap().outcome = Some(Ok(()));
        driver.drive(Wanted::Withdrawn, now + RETRY_AFTER);
        assert_eq!((driver.failure(), driver.is_done(Wanted::Withdrawn)), (None, true));
    }

    #[test]
    fn a_withdrawal_gives_up_an_announcement_that_is_under_way_and_not_the_other_way_round() {
        let (mut driver, script) = scripted(None);
        let now = Instant::now();
        driver.drive(Wanted::Announced, now);
        driver.drive(Wanted::Withdrawn, now);
        driver.drive(Wanted::Announced, now);
        assert_eq!(script.lock().unwrap().begun, [true, false]);
        script.lock().unwrap().outcome = Some(Ok(()));
        driver.drive(Wanted::Announced, now);
        assert_eq!(script.lock().unwrap().begun, [true, false, true]);
        assert!(driver.is_done(Wanted::Announced));
    }
}
