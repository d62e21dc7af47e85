//! `router_plan`, by which a fleet has routers find the flows that a change will move (docs/fleet.md).

use super::net::{Net, Running, on_the_net};
use crate::support::{SOON, until};
use artery_rig::Result;
use artery_wire::build::{ether, ip4};
use artery_wire::{EtherType, TcpFlags};

const SERVICE: &str = "192.0.2.1:80/tcp=web1=10.0.2.2,web2=10.0.2.3";
const FLOWS: u16 = 100;

/// What `router_plan` is written with: for so many seconds, this service.
fn plan(seconds: u32, service: &str) -> String {
    format!(
        "{seconds} r.toml\nport = [\"eth0=10.0.1.1/24\", \"eth1=10.0.2.1/24\"]\nservice = [\"{service}\"]\n"
    )
}

/// Has client ports from `first` on open a connection each, and waits until all are known.
fn open(net: &Net, router: &Running, first: u16) -> Result<()> {
    let mac = net.r.mac("eth0")?;
    let frame = |port| {
        let packet = ip4().src("10.0.1.2").dst("192.0.2.1").tcp(port, 80).flags(TcpFlags::SYN);
        ether(mac.as_str(), "02:00:00:00:00:07").raw(EtherType(0x0800), packet.bytes()).bytes()
    };
    let before = lines(router, &["flow", "export"])?.len();
    net.a.transmit("eth0", &(first..first + FLOWS).map(frame).collect::<Vec<_>>())?;
    until(SOON, || Ok(lines(router, &["flow", "export"])?.len() == before + usize::from(FLOWS)))
}

/// The flows of an export, without its first line and its last.
fn lines(router: &Running, words: &[&str]) -> Result<Vec<String>> {
    let flows = router.say(words)?;
    Ok(flows.lines().filter(|line| line.contains("\"member\"")).map(str::to_string).collect())
}

fn exceptions(router: &Running) -> Result<Vec<String>> {
    lines(router, &["flow", "export", "--exceptions"])
}

fn of_web1(flows: &[String]) -> usize {
    flows.iter().filter(|flow| flow.contains("\"member\":\"web1\"")).count()
}

#[test]
fn flows_that_a_planned_change_moves_are_exceptions_until_it_is_forgotten_and_nothing_else_changes() {
    on_the_net("command-planned", |net| {
        let router = Running::start(net, &["--service", SERVICE])?;
        let before = router.say(&["show", "config"])?;
        open(net, &router, 1000)?;
        let all = lines(&router, &["flow", "export"])?;
        assert!(of_web1(&all) > 0 && exceptions(&router)?.is_empty());

        let drained = SERVICE.replace("10.0.2.2", "10.0.2.2@0");
        router.say(&["handler", "router_plan", &plan(60, &drained)])?;
        let found = exceptions(&router)?;
        assert_eq!((found.len(), of_web1(&found)), (of_web1(&all), of_web1(&all)), "{found:?}");
        assert_eq!(router.say(&["show", "config"])?, before);
        // Flows go by the present table, and count as exceptions from the first packet on.
        open(net, &router, 2000)?;
        let all = lines(&router, &["flow", "export"])?;
        assert!(of_web1(&all) > of_web1(&found));
        assert_eq!(exceptions(&router)?.len(), of_web1(&all));

        router.say(&["handler", "router_plan", "0"])?;
        assert!(exceptions(&router)?.is_empty());
        // It ends by itself, too.
        router.say(&["handler", "router_plan", &plan(1, &drained)])?;
        assert_eq!(exceptions(&router)?.len(), of_web1(&all));
        until(SOON, || Ok(exceptions(&router)?.is_empty()))?;
        Ok(())
    });
}

#[test]
fn a_plan_that_the_router_could_not_take_is_refused() {
    on_the_net("command-planned-refused", |net| {
        let router = Running::start(net, &["--service", SERVICE])?;
        open(net, &router, 1000)?;
        let strange = plan(60, SERVICE).replace("10.0.1.1/24", "10.0.1.1/99");
        for (value, part) in
            [("x", "SECONDS"), (strange.as_str(), "10.0.1.1/99"), ("60 r.toml\nservice = 7\n", "r.toml")]
        {
            let refusal = router.refused(&["handler", "router_plan", value], 1)?;
            assert!(refusal.contains(part), "{refusal}");
        }
        assert!(exceptions(&router)?.is_empty());
        // While another change waits to be confirmed, none is planned.
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("r.toml").display().to_string();
        let text = plan(0, SERVICE);
        let (_, text) = text.split_once('\n').unwrap();
        std::fs::write(&file, text).unwrap();
        router.apply(&[&file, "--confirm", "60s"])?;
        let refusal = router.refused(&["handler", "router_plan", &plan(60, SERVICE)], 1)?;
        assert!(refusal.contains("artery confirm"), "{refusal}");
        Ok(())
    });
}
