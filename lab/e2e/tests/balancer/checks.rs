//! Members that are asked whether they are well: servers that stop and start again.

use super::net::SERVICE;
use super::plain::{Plain, graph};
use super::server::{PORT, Server, Talk, http};
use crate::support::Running;
use artery_rig::{Host, Result};
use std::collections::BTreeMap;
use std::io::{self, Read, Write};
use std::net::TcpStream;

/// Connections that are tried at a time.
const TRIED: usize = 40;

/// A server that listens and can't do its work.
fn unwell(stream: &mut TcpStream, _: u8) -> io::Result<()> {
    let _ = stream.read(&mut [0; 1024])?;
    write!(stream, "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")
}

/// Which servers answer how many requests.
fn answers(client: &Host) -> Result<BTreeMap<String, usize>> {
    let ask = || -> io::Result<String> {
        let mut stream = TcpStream::connect((SERVICE, PORT))?;
        stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        Ok(answer.lines().last().unwrap_or("").to_string())
    };
    let answers = client.enter(|| (0..TRIED).map(|_| ask().unwrap()).collect::<Vec<_>>())?;
    let mut counts = BTreeMap::new();
    answers.into_iter().for_each(|answer| *counts.entry(answer).or_insert(0) += 1);
    Ok(counts)
}

/// A member that is checked so is left out while its server has stopped, or does `instead`,
/// and is back afterwards.
fn is_left_out(label: &str, check: &str, instead: Option<Talk>) {
    artery_rig::test(label, |rig| {
        let net = Plain::new(rig, 3)?;
        let router = net.router(rig, "r")?.host;
        // The router's own stack does the asking, by an interface of its own.
        rig.plug(&router, "eth2", &net.right)?;
        router.address("eth2", "10.0.2.2/24")?;
        let mut servers: BTreeMap<u8, Server> = (1..).zip(net.serve(http)?).collect();
        let config = graph(&format!(
            "SERVICE {SERVICE}:80 tcp, MEMBER web1 10.0.2.11, MEMBER web2 10.0.2.12, MEMBER web3 10.0.2.13,
            CHECK {check} every 100ms timeout 500ms fall 2 rise 2"
        ));
        let running = Running::run(&router, &config, &[])?;
        let up = |count: usize| move |said: &str| said.matches(" up,").count() == count;
        running.until_read("members", up(3))?;
        let before = answers(&net.client)?;
        assert!(before.len() == 3 && before.values().all(|count| *count > 0), "{before:?}");

        drop(servers.remove(&2));
        if let Some(talk) = instead {
            servers.insert(2, Server::start(&net.servers[1], 2, talk)?);
        }
        running.until_read("members", |said| up(2)(said) && said.contains("web2 10.0.2.12 down"))?;
        let meanwhile = answers(&net.client)?;
        assert!(meanwhile.len() == 2 && !meanwhile.contains_key("web2"), "{meanwhile:?}");

        drop(servers.remove(&2));
        servers.insert(2, Server::start(&net.servers[1], 2, http)?);
        running.until_read("members", up(3))?;
        let after = answers(&net.client)?;
        assert!(after.len() == 3 && after.contains_key("web2"), "{after:?}");
        running.end()
    });
}

#[test]
fn a_server_that_takes_no_connections_is_left_out_until_it_does() {
    is_left_out("balancer-check-tcp", "tcp", None);
}

#[test]
fn a_server_that_answers_requests_wrongly_is_left_out_until_it_does_well() {
    is_left_out("balancer-check-http", "http / 200", Some(unwell));
}
