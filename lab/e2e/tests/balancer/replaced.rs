//! Another configuration while connections are in use.

use super::net::{Forward, with_net};
use super::server::echo;
use artery_rig::conf::BALANCER;

#[test]
fn a_router_that_reads_its_file_again_keeps_every_connection() {
    with_net("balancer-replaced", |net| {
        let _servers = net.serve(Forward::Direct, echo)?;
        let mut balancer = net.balance(&[])?;
        let mut load = net.load();
        load.fill(300)?;
        assert_eq!(load.settle().harmed(|_| true), 0);
        // Others come first, by another method, and one is new: only the flows can show which
        // member has which connection.
        let members = "MEMBER web1 $WEB1, MEMBER web2 $WEB2, MEMBER web3 $WEB3, MEMBER web4 $WEB4";
        let others = "MEMBER web5 10.0.2.15, MEMBER web4 $WEB4, MEMBER web3 $WEB3, MEMBER web2 $WEB2, MEMBER \
            web1 $WEB1";
        let text = BALANCER.replace(members, others).replace("METHOD $METHOD", "METHOD xor");
        assert!(text.contains(others));
        balancer.reload_to(&text, "web5")?;
        let fates = load.settle();
        assert_eq!(fates.harmed(|_| true), 0, "{fates:?}");
        load.fill(600)?;
        assert!(load.shares()[&5] > 30, "{:?}", load.shares());
        balancer.reload_to(&BALANCER.replace("MEMBER web4 $WEB4", "MEMBER web6 10.0.2.14"), "web6")?;
        let before = load.shares();
        let fates = load.settle();
        assert_eq!(fates.harmed(|server| server < 4), 0, "{fates:?}");
        // Those whose names are gone lose their flows, also where another has their address.
        assert_eq!(fates.reset.get(&5), before.get(&5), "{fates:?}");
        drop(load);
        balancer.end()
    });
}
