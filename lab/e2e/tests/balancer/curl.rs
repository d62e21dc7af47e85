//! What everybody tries first.

use super::net::{Forward, SERVICE, with_net};
use super::server::http;
use artery_rig::Result;
use std::collections::BTreeMap;
use std::time::Duration;

#[test]
fn curl_is_answered_by_all_servers_while_they_come_and_go() {
    with_net("balancer-curl", |net| {
        let _servers = net.serve(Forward::Direct, http)?;
        let balancer = net.balance(&[])?;
        let url = format!("http://{SERVICE}/[1-600]");
        let command =
            net.client.command(["curl", "-sS", "--fail", "--max-time", "10", "--rate", "100/s", &url]);
        let mut curl = command.spawn()?;
        let seen = |name: &str| curl.wait_for(name, Duration::from_secs(10));
        ["web1", "web2", "web3", "web4"].iter().try_for_each(|name| seen(name))?;
        balancer.write("add_member", "web5 10.0.2.15")?;
        seen("web5")?;
        // A member that is drained first is removed without harm.
        balancer.write("weight", "web1 0")?;
        wait_for_answers(&mut curl, 50)?;
        let at_removal = curl.stdout_so_far().len();
        balancer.write("remove_member", "web1")?;
        let output = curl.wait(Duration::from_secs(30))?;
        assert!(output.succeeded(), "{}", output.stderr);
        let mut counts = BTreeMap::new();
        output.stdout.lines().for_each(|line| *counts.entry(line).or_insert(0) += 1);
        println!("curl: {counts:?}");
        assert_eq!((counts.len(), counts.values().sum::<u32>()), (5, 600), "{counts:?}");
        assert!(!output.stdout[at_removal..].contains("web1"));
        balancer.end()
    });
}

/// Waits for so many more answers.
fn wait_for_answers(curl: &mut artery_rig::Process, more: usize) -> Result<()> {
    let enough = curl.stdout_so_far().lines().count() + more;
    while curl.is_running() && curl.stdout_so_far().lines().count() < enough {
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}
