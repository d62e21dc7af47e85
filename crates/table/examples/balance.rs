//! What balancing costs and moves: `cargo run --release -p artery-table --example balance [MEMBERS]`.
use artery_rcu::Domain;
use artery_table::balance::{Choice, Flow, Local, Member, Members, Method, Settings};
use artery_table::synthetic::Random;
use std::error::Error;
use std::hint::black_box;
use std::net::Ipv4Addr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const FLOWS: usize = 1 << 20;

fn main() -> Result<(), Box<dyn Error>> {
    let count: u32 = std::env::args().nth(1).map_or(Ok(10), |text| text.parse())?;
    let mut random = Random::new(1);
    let flows: Vec<Flow> =
        (0..FLOWS).map(|_| Flow { hash: random.next(), xor: random.next() as u32 }).collect();
    println!(
        "{count} members, {FLOWS} flows; moved is in percent of all flows, {:.2} at least",
        100.0 / f64::from(count)
    );
    println!(
        "{:>12} {:>9} {:>9} {:>11} {:>11} {:>11}",
        "method", "gone", "back", "pick (ns)", "known (ns)", "change (us)"
    );
    for method in Method::ALL {
        println!("{}", row(method, count, &flows)?);
    }
    Ok(())
}

fn member(number: u32) -> Member {
    Member::new(&format!("server{number}"), Ipv4Addr::from(0x0a00_0001 + number).into())
}

fn row(method: Method, count: u32, flows: &[Flow]) -> Result<String, Box<dyn Error>> {
    let (domain, now) = (Domain::new(), Duration::from_secs(1));
    let mut members = Members::new(&domain, Settings { method, ..Settings::default() })?;
    members.replace((0..count).map(member).collect(), now)?;
    let (balancer, mut reader, mut local) = (members.balancer(), domain.reader(), Local::new(0));
    let gone = member(count / 2);

    let (before, pick) = picks(balancer.at(&reader.turn()), &mut local, flows);
    let known = known(balancer.at(&reader.turn()), &before);
    let begin = Instant::now();
    members.remove(&gone.name, now)?;
    let change = begin.elapsed();
    let (after, _) = picks(balancer.at(&reader.turn()), &mut local, flows);
    members.add(gone.clone(), now)?;
    let (again, _) = picks(balancer.at(&reader.turn()), &mut local, flows);

    let moved = |from: &[Arc<str>], to: &[Arc<str>]| {
        100.0 * from.iter().zip(to).filter(|(from, to)| from != to).count() as f64 / from.len() as f64
    };
    let names = |choice: &Choice, actions: &[u32]| -> Vec<Arc<str>> {
        let name = |action: &u32| {
            choice.member(*action).map_or_else(|| gone.name.clone(), |member| member.name.clone())
        };
        actions.iter().map(name).collect()
    };
    let turn = reader.turn();
    let choice = balancer.at(&turn);
    let [before, after, again] = [before, after, again].map(|actions| names(choice, &actions));
    // Of the others, each packet or the flows before decide.
    let is_by_hash =
        matches!(method, Method::Maglev(_) | Method::Resilient { .. } | Method::Hash | Method::Xor);
    let percent = |from, to| if is_by_hash { format!("{:.2}", moved(from, to)) } else { "-".to_string() };
    let (gone, back) = (percent(&before, &after), percent(&after, &again));
    let name = method.name();
    Ok(format!(
        "{name:>12} {gone:>9} {back:>9} {pick:>11.2} {known:>11.2} {:>11.0}",
        change.as_secs_f64() * 1e6
    ))
}

/// Whom each flow goes to, and how many nanoseconds it took to say so.
fn picks(choice: &Choice, local: &mut Local, flows: &[Flow]) -> (Vec<u32>, f64) {
    let now = Duration::from_secs(1);
    let mut best = Duration::MAX;
    let mut actions = vec![0; flows.len()];
    for _ in 0..5 {
        let begin = Instant::now();
        for (flow, action) in flows.iter().zip(&mut actions) {
            *action = choice.pick(local, *flow, now).map_or(0, |id| id.action());
        }
        best = best.min(begin.elapsed());
    }
    (actions, best.as_secs_f64() * 1e9 / flows.len() as f64)
}

/// How many nanoseconds it takes to say that a known flow's member lives.
fn known(choice: &Choice, actions: &[u32]) -> f64 {
    let mut best = Duration::MAX;
    for _ in 0..5 {
        let begin = Instant::now();
        let living = actions.iter().filter(|action| choice.member(**action).is_some()).count();
        assert_eq!(black_box(living), actions.len());
        best = best.min(begin.elapsed());
    }
    best.as_secs_f64() * 1e9 / actions.len() as f64
}
