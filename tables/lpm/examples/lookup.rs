//! Three routes and four addresses: `cargo run -p artery-lpm --example lookup`.
use artery_lpm::RouteTable;
use artery_rcu::Domain;
use artery_storage::Pages;
use std::{error::Error, net::Ipv4Addr, sync::Arc};

fn main() -> Result<(), Box<dyn Error>> {
    let domain = Domain::new();
    let mut table = RouteTable::<u32>::new(&domain, "auto".parse()?, Arc::new(Pages))?;
    for (group, prefix) in (1..).zip(["10.0.0.0/8", "10.1.0.0/16", "192.0.2.0/24"]) {
        table.insert(prefix.parse()?, group)?;
    }
    let (reader, mut worker) = (table.reader(), domain.reader());
    let turn = worker.turn();
    println!("{} routes, 10.1.2.3 goes to {}", table.len(), reader.lookup(&turn, 0x0a01_0203));
    let (addresses, mut groups) = ([0x0a01_0203, 0x0a02_0304, 0xc000_0201, 0xc633_6401], [0; 4]);
    reader.lookup_batch(&turn, &addresses, &mut groups);
    for (address, group) in addresses.iter().zip(groups) {
        println!("{} {group}", Ipv4Addr::from_bits(*address));
    }
    Ok(())
}
