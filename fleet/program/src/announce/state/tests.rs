use super::*;

const PEER_WAIT: Duration = Duration::from_secs(10);
const SETTLE: Duration = Duration::from_secs(2);

/// A decider at a time of its own, and what it sees.
struct Bench {
    decider: Decider,
    now: Instant,
    router: RouterHealth,
    has_checked: bool,
    agreement: Agreement,
    unreached: Option<Vec<String>>,
    peers: Vec<Joining>,
    leaves: bool,
    is_done: bool,
}

impl Bench {
    /// A machine with two peers that has just started.
    fn new() -> Bench {
        let now = Instant::now();
        Bench {
            decider: Decider::new(Duration::from_millis(250), (PEER_WAIT, SETTLE), now),
            now,
            router: RouterHealth::NotYetAsked,
            has_checked: true,
            agreement: Agreement::Agrees,
            unreached: None,
            peers: Vec::new(),
            leaves: false,
            is_done: false,
        }
    }

    /// One that is announced, and both of its peers are there.
    fn announced() -> Bench {
        let mut bench = Bench::new();
        bench.router = RouterHealth::Answers;
        bench.peers = ["m2", "m3"].map(whole).to_vec();
        assert!(bench.step(0));
        assert!(!bench.step(0));
        assert_eq!(bench.text(), "announced");
        bench
    }

    /// Decides after so many milliseconds.
    fn step(&mut self, milliseconds: u64) -> bool {
        self.now += Duration::from_millis(milliseconds);
        let seen = Seen {
            router: self.router.clone(),
            is_followed: self.router == RouterHealth::Answers,
            has_checked: self.has_checked,
            agreement: self.agreement,
            unreached: self.unreached.clone(),
            peers: &self.peers,
            configured: 2,
            leaves: self.leaves,
            is_done: self.is_done,
        };
        self.decider.decide(&seen, self.now)
    }

    fn text(&self) -> String {
        self.decider.state().to_string()
    }
}

fn whole(machine: &str) -> Joining {
    Joining { machine: machine.to_string(), is_whole: true, has_fallen_short: false }
}

fn lacking(machine: &str, has_fallen_short: bool) -> Joining {
    Joining { machine: machine.to_string(), is_whole: false, has_fallen_short }
}

#[test]
fn a_joiner_waits_for_its_router_then_for_the_exceptions_of_all_peers() {
    let mut bench = Bench::new();
    assert!(!bench.step(0));
    assert_eq!((bench.text().as_str(), bench.decider.wanted()), ("waiting for the router", Wanted::AsItIs));
    bench.router = RouterHealth::Answers;
    bench.peers = vec![whole("m2")];
    assert!(bench.step(20), "all are fetched once the router answers");
    assert_eq!(bench.decider.wanted(), Wanted::AsItIs);
    bench.peers = vec![lacking("m2", false), lacking("m3", false)];
    assert!(!bench.step(20));
    assert_eq!(bench.text(), "waiting for m2, m3");
    bench.peers = vec![whole("m2")];
    bench.step(20);
    assert_eq!(bench.text(), "waiting for 1 peer that was not heard, for 10 s at most");
    bench.peers = vec![whole("m2"), whole("m3")];
    bench.step(20);
    assert_eq!((bench.text().as_str(), bench.decider.wanted()), ("announced", Wanted::Announced));
}

#[test]
fn a_joiner_waits_for_the_fleets_configuration_and_without_etcd_no_longer_than_for_peers() {
    let mut bench = Bench::new();
    bench.router = RouterHealth::Answers;
    bench.peers = ["m2", "m3"].map(whole).to_vec();
    bench.agreement = Agreement::Differs;
    bench.step(0);
    bench.step(60_000);
    assert_eq!(bench.text(), "waiting for the router to take the fleet's configuration");
    let mut bench = Bench { agreement: Agreement::Unknown, ..bench };
    bench.router = RouterHealth::DoesNotAnswer;
    bench.step(20);
    bench.router = RouterHealth::Answers;
    bench.step(0);
    bench.step(9_500);
    assert_eq!(bench.text(), "waiting for etcd, for 1 s at most");
    bench.step(1_000);
    assert_eq!(bench.text(), "announced");
    // What it is given later, it takes while it is announced.
    bench.agreement = Agreement::Differs;
    bench.step(20);
    assert_eq!(bench.text(), "announced");
}

#[test]
fn a_joiner_waits_for_checks_of_members_and_no_longer_than_for_peers() {
    for after in [500, 20_000] {
        let mut bench = Bench::new();
        (bench.router, bench.has_checked) = (RouterHealth::Answers, false);
        bench.peers = ["m2", "m3"].map(whole).to_vec();
        bench.step(0);
        bench.step(400);
        assert_eq!(bench.text(), "waiting for the router to check its members");
        bench.has_checked = after == 500;
        bench.step(after);
        assert_eq!(bench.text(), "announced");
        // A member that is added later does not withdraw the machine.
        bench.has_checked = false;
        bench.step(100);
        assert_eq!(bench.text(), "announced");
    }
}

#[test]
fn peers_that_are_silent_or_can_t_be_fetched_are_waited_for_no_longer_than_said() {
    let mut bench = Bench::new();
    bench.router = RouterHealth::Answers;
    bench.step(0);
    bench.step(9_999);
    assert_eq!(bench.text(), "waiting for 2 peers that were not heard, for 1 s at most");
    // One comes late: a fetch that is under way is waited for, and one that failed is not.
    bench.peers = vec![lacking("m2", false)];
    bench.step(1_000);
    assert_eq!(bench.text(), "waiting for m2");
    bench.peers = vec![lacking("m2", true)];
    bench.step(1_000);
    assert_eq!(bench.text(), "announced");
}

#[test]
fn a_router_that_fails_is_withdrawn_at_once_and_announced_again_after_a_whole_fetch() {
    let mut bench = Bench::announced();
    bench.router = RouterHealth::DoesNotAnswer;
    bench.step(1);
    assert_eq!(bench.text(), "withdrawn: the router does not answer");
    assert_eq!(bench.decider.wanted(), Wanted::Withdrawn);
    bench.router = RouterHealth::Answers;
    assert!(bench.step(1), "all are fetched again");
    bench.peers = vec![lacking("m2", false), whole("m3")];
    bench.step(2_000);
    assert_eq!((bench.text().as_str(), bench.decider.wanted()), ("waiting for m2", Wanted::Withdrawn));
    bench.peers = vec![whole("m2"), whole("m3")];
    bench.step(1);
    assert_eq!(bench.text(), "announced");
    bench.router = RouterHealth::Refuses("no 'b'".to_string());
    bench.step(1);
    assert_eq!(bench.text(), "withdrawn: the router refuses: no 'b'");
}

#[test]
fn a_router_that_fails_over_and_over_must_answer_for_a_while() {
    let mut bench = Bench::announced();
    for _ in 0..5 {
        bench.router = RouterHealth::DoesNotAnswer;
        bench.step(200);
        bench.router = RouterHealth::Answers;
        bench.step(200);
        bench.step(500);
        assert_eq!(bench.text(), "waiting for the router to answer steadily");
        assert_eq!(bench.decider.wanted(), Wanted::Withdrawn);
    }
    bench.step(500);
    assert_eq!(bench.text(), "announced");
}

#[test]
fn a_machine_that_is_drained_is_withdrawn_and_joins_again_when_it_is_no_longer() {
    let mut bench = Bench::announced();
    bench.unreached = Some(vec!["web1".to_string()]);
    assert!(!bench.step(1));
    assert_eq!(bench.text(), "drained: this machine alone does not reach web1");
    assert_eq!(bench.decider.wanted(), Wanted::Withdrawn);
    bench.router = RouterHealth::DoesNotAnswer;
    bench.step(1);
    assert_eq!(bench.text(), "withdrawn: the router does not answer");
    bench.router = RouterHealth::Answers;
    bench.step(1);
    bench.unreached = None;
    assert!(bench.step(1), "all are fetched again");
    bench.step(2_000);
    assert_eq!((bench.text().as_str(), bench.decider.wanted()), ("announced", Wanted::Announced));
    // A leaver leaves in any case.
    bench.unreached = Some(vec!["web1".to_string()]);
    bench.leaves = true;
    bench.step(1);
    assert_eq!(bench.text(), "draining: withdrawing");
}

#[test]
fn silent_peers_withdraw_nothing() {
    let mut bench = Bench::announced();
    bench.peers = vec![lacking("m2", true)];
    bench.step(1);
    bench.peers.clear();
    bench.step(100_000);
    assert_eq!((bench.text().as_str(), bench.decider.wanted()), ("announced", Wanted::Announced));
}

#[test]
fn what_an_earlier_process_left_stays_unless_the_router_does_not_come() {
    let mut bench = Bench::new();
    bench.router = RouterHealth::DoesNotAnswer;
    bench.step(999);
    assert_eq!(bench.decider.wanted(), Wanted::AsItIs);
    bench.step(1);
    assert_eq!(bench.decider.wanted(), Wanted::Withdrawn);
    // Once it has answered, it gets no such time.
    let mut bench = Bench::new();
    bench.router = RouterHealth::Answers;
    bench.step(100);
    bench.router = RouterHealth::DoesNotAnswer;
    bench.step(1);
    assert_eq!(bench.decider.wanted(), Wanted::Withdrawn);
}

#[test]
fn a_leaver_withdraws_waits_for_the_network_and_hands_over_whatever_its_router_does() {
    let mut bench = Bench::announced();
    bench.leaves = true;
    assert!(!bench.step(1));
    assert_eq!((bench.text().as_str(), bench.decider.wanted()), ("draining: withdrawing", Wanted::Withdrawn));
    bench.step(5_000);
    assert_eq!(bench.text(), "draining: withdrawing", "it is not done yet");
    bench.is_done = true;
    bench.step(1);
    bench.router = RouterHealth::DoesNotAnswer;
    bench.step(1_999);
    assert_eq!(bench.text(), "draining: withdrawn, waiting for the network");
    bench.step(1);
    assert_eq!(bench.text(), "draining: handing over");
    bench.router = RouterHealth::Answers;
    bench.step(60_000);
    assert_eq!(bench.text(), "draining: handing over");
    assert_eq!(bench.decider.wanted(), Wanted::Withdrawn);
}

#[test]
fn what_an_earlier_process_left_stays_while_a_router_may_be_silent() {
    let mut bench = Bench::new();
    bench.decider = Decider::new(Duration::from_secs(5), (PEER_WAIT, SETTLE), bench.now);
    bench.router = RouterHealth::DoesNotAnswer;
    bench.step(4999);
    assert_eq!(bench.decider.wanted(), Wanted::AsItIs);
    bench.step(1);
    assert_eq!(bench.decider.wanted(), Wanted::Withdrawn);
}
