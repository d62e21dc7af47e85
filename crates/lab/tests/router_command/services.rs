//! Services: connections that servers share, health checks, and what is no connection of theirs.

use crate::net::{Running, on_the_net};
use crate::support::end;
use artery_lab::rig::Result;

#[test]
fn connections_to_a_service_reach_its_server_translated_or_as_they_are() {
    const SERVICE: &str = "192.0.2.1";
    on_the_net("command-service", |net| {
        let service = |member: &str| format!("{SERVICE}:5201/tcp={member}");
        for (options, member) in
            [(&["--nat"][..], "web=10.0.2.2:5201"), (&["--workers", "2"], "web=10.0.2.2")]
        {
            let router = Running::start(net, &[&["--service", &service(member)], options].concat())?;
            let tcp = net.a.iperf3(&net.b, SERVICE, &["-t", "1"])?;
            assert!(tcp.bits_per_second > 1e6, "{options:?}: {tcp:?}");
            let flows = router.say(&["flow", "show"])?;
            assert!(flows.contains(SERVICE) && flows.contains("web"), "{flows}");
            // Hosts behind the router are reached as ever.
            assert_eq!(net.a.ping("10.0.2.2", 3)?.received, 3);
            end(router.process)?;
            // Without translation the server has the address itself.
            if options == ["--nat"] {
                net.b.address("lo", "192.0.2.1/32")?;
            }
        }
        Ok(())
    });
}
