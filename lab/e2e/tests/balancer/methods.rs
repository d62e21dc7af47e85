//! What it costs connections that servers come, go and die, by method, with and without a table of flows.

use super::load::{Fates, Load};
use super::net::{Forward, Net, with_net};
use super::server::echo;
use artery_rig::Result;

/// Connections that are in use at a time.
const OPEN: usize = 300;

/// What happens to servers, one after the other.
const EVENTS: [&str; 4] = ["added", "drained", "removed", "killed"];

/// What came of the events under a method.
struct Costs {
    method: &'static str,
    state: bool,
    /// By event: connections of servers that live which were reset or stalled, of how many.
    living: [(usize, usize); 4],
    /// The same of the server that has gone, or died.
    gone: [(usize, usize); 4],
}

impl Costs {
    fn share(&self, event: usize) -> f64 {
        self.living[event].0 as f64 / self.living[event].1 as f64
    }
}

/// Lets servers come, go and die while connections are in use.
fn costs(net: &Net, method: &'static str, state: bool) -> Result<Costs> {
    let balancer = net.balance(&[&format!("METHOD={method}"), &format!("STATE={state}")])?;
    let mut load = net.load();
    let mut costs = Costs { method, state, living: [(0, 0); 4], gone: [(0, 0); 4] };
    let mut note = |load: &mut Load, event: usize, gone: u8| {
        let before = load.shares();
        let fates = load.settle();
        let of = |is_meant: &dyn Fn(u8) -> bool| {
            let all = before.iter().filter(|(server, _)| is_meant(**server)).map(|(_, count)| count).sum();
            (fates.harmed(is_meant), all)
        };
        costs.living[event] = of(&|server| server != gone);
        costs.gone[event] = of(&|server| server == gone);
        fates
    };
    load.fill(OPEN)?;
    sound(&load.settle());
    balancer.write("add_member", "web5 10.0.2.15")?;
    note(&mut load, 0, 0);
    load.fill(OPEN)?;
    balancer.write("weight", "web1 0")?;
    note(&mut load, 1, 0);
    load.fill(OPEN)?;
    balancer.write("remove_member", "web2")?;
    note(&mut load, 2, 2);
    load.fill(OPEN)?;
    let before = load.shares();
    net.cut(3, true)?;
    let cut = load.settle_but(3);
    assert_eq!(cut.harmed(|server| server != 3), 0, "{method}: {cut:?}");
    assert_eq!(cut.stalled.get(&3), before.get(&3), "{method}: {cut:?}");
    balancer.write("remove_member", "web3")?;
    let killed = note(&mut load, 3, 3);
    assert!(killed.stalled.is_empty(), "who had a server that died gets to know: {killed:?}");
    net.cut(3, false)?;
    drop(load);
    balancer.end()?;
    println!("{}", line(&costs));
    Ok(costs)
}

fn sound(fates: &Fates) {
    assert_eq!(fates.harmed(|_| true), 0, "{fates:?}");
}

fn line(costs: &Costs) -> String {
    let state = if costs.state { "with flows" } else { "without" };
    let mut line = format!("{:12} {state:10}", costs.method);
    for (event, name) in EVENTS.iter().enumerate() {
        let ((harmed, of), (gone, _)) = (costs.living[event], costs.gone[event]);
        line += &format!("  {name}: {harmed:3} of {of:3}");
        if costs.gone[event].1 > 0 {
            line += &format!(" + {gone:2} of its own");
        }
    }
    line
}

#[test]
fn with_a_table_of_flows_no_connection_of_a_living_server_is_harmed_whatever_the_method() {
    with_net("balancer-state", |net| {
        let _servers = net.serve(Forward::Direct, echo)?;
        for method in ["maglev", "resilient", "hash", "xor", "least-loaded"] {
            let costs = costs(net, method, true)?;
            assert_eq!(costs.living.map(|(harmed, _)| harmed), [0; 4], "{method}");
            for event in [2, 3] {
                let (harmed, all) = costs.gone[event];
                assert!(harmed == all && all > 0, "{method}: all flows leave the server that is gone");
            }
        }
        Ok(())
    });
}

#[test]
fn without_one_the_method_of_2008_resets_most_connections_and_the_others_as_many_as_they_say() {
    with_net("balancer-stateless", |net| {
        let _servers = net.serve(Forward::Direct, echo)?;
        let [maglev, resilient, hash, xor] =
            ["maglev", "resilient", "hash", "xor"].map(|method| costs(net, method, false));
        let (maglev, resilient, hash, xor) = (maglev?, resilient?, hash?, xor?);
        // Four of five, give or take four standard deviations.
        assert!((0.70..0.90).contains(&xor.share(0)), "{}", line(&xor));
        assert!(xor.share(2) > 0.5, "{}", line(&xor));
        // What the new one gets, and little more.
        assert!((0.10..0.32).contains(&maglev.share(0)), "{}", line(&maglev));
        assert!(maglev.share(2) < 0.08, "{}", line(&maglev));
        assert!((0.15..0.70).contains(&hash.share(0)), "{}", line(&hash));
        assert_eq!((resilient.living[0].0, resilient.living[2].0), (0, 0), "{}", line(&resilient));
        Ok(())
    });
}
