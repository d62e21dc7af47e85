use super::neighbors::{
    ArpLimits, CAPACITY, CAPACITY_SLIM_FACTOR, ENTRY_CAPACITY, ENTRY_PACKET_CAPACITY, TIMEOUT,
};
use super::shared_table::{NamedTables, SharedTable};
use artery_engine::names::Names;
use artery_engine::{
    ArgError, Args, Batch, Class, Context, DropReason, Element, Handler, Phase, Read, StartError, Write,
};
use std::any::Any;
use std::sync::Arc;

pub static CLASS: Class = Class {
    name: "ARPTable",
    group: "ether",
    summary: "holds what several ARPQueriers know",
    manual: "
Has no ports. ARPQueriers whose TABLE argument names it keep their addresses, and packets that wait for one,
here instead of each in a table of its own; its limits apply to all of them together.",
    example: "neighbors :: ARPTable(TIMEOUT 60);
Idle -> q :: ARPQuerier(10.0.0.1, 02:00:00:00:00:01, TABLE neighbors) -> Discard;
Idle -> [1] q;",
    ports: "0/0",
    args: &[CAPACITY, ENTRY_CAPACITY, ENTRY_PACKET_CAPACITY, CAPACITY_SLIM_FACTOR, TIMEOUT],
    handlers: &[
        Handler::read(
            "table",
            "a line for each address: IP address, whether it is known, Ethernet address, age in seconds",
            &Read(|t: &mut ArpTableElement, _, cx| Ok(t.table.describe_table(cx))),
        ),
        Handler::read(
            "drops",
            "packets dropped while they waited",
            &Read(|t: &mut ArpTableElement, _, cx| {
                Ok(t.table.with_table(cx, |_| t.table.drop_count()).to_string())
            }),
        ),
        Handler::read(
            "count",
            "addresses",
            &Read(|t: &mut ArpTableElement, _, cx| Ok(t.table.count_text(cx))),
        ),
        Handler::read(
            "length",
            "packets that wait",
            &Read(|t: &mut ArpTableElement, _, cx| Ok(t.table.length_text(cx))),
        ),
        Handler::write(
            "insert",
            "`IP ETH`: records an address",
            &Write(|t: &mut ArpTableElement, text, cx| t.table.write_insert(text, &t.names, cx)),
        ),
        Handler::write(
            "delete",
            "`IP`: forgets an address",
            &Write(|t: &mut ArpTableElement, text, cx| t.table.write_delete(text, &t.names, cx)),
        ),
        Handler::write(
            "clear",
            "forgets everything",
            &Write(|t: &mut ArpTableElement, _, cx| {
                t.table.with_table(cx, |table| table.clear());
                Ok(())
            }),
        )
        .button(),
    ],
    // ARPQueriers look it up while they are created.
    phase: Phase::Info,
    build: |args| Ok(Box::new(ArpTableElement::new(args)?)),
    ..Class::DEFAULT
};

struct ArpTableElement {
    table: Arc<SharedTable>,
    /// For addresses that handlers write.
    names: Names,
}

impl ArpTableElement {
    fn new(args: &mut Args<'_>) -> Result<ArpTableElement, ArgError> {
        let limits = ArpLimits::from_args(args)?;
        let domain = args.domain().clone();
        let table = args.shared_value(|| SharedTable::new(limits, &domain));
        args.resource::<NamedTables>().insert(args.name(), &table);
        Ok(ArpTableElement { table, names: args.names().clone() })
    }
}

impl Element for ArpTableElement {
    fn push(&mut self, _input: usize, batch: &mut Batch, cx: &mut Context<'_>) {
        cx.discard_all(batch, DropReason::NoOutput);
    }

    fn start(&mut self, cx: &mut Context<'_>) -> Result<(), StartError> {
        self.table.start_timer(cx)
    }

    fn run_task(&mut self, cx: &mut Context<'_>) -> bool {
        self.table.expire_and_rearm(cx)
    }

    fn take_state(&mut self, old: &mut dyn Any, _: &mut Context<'_>) {
        if let Some(old) = old.downcast_mut::<ArpTableElement>() {
            self.table.restore_from(&old.table);
        }
    }

    fn stop(&mut self, cx: &mut Context<'_>) {
        self.table.discard_waiting(cx);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;
    use std::time::Duration;

    #[test]
    fn addresses_are_inserted_read_deleted_and_expire() {
        let mut bench = Bench::new(&CLASS, "TIMEOUT 10");
        bench.write("insert", "10.0.0.2 2:0:0:0:0:a").unwrap();
        bench.write("insert", "10.0.0.3 2:0:0:0:0:b").unwrap();
        bench.advance_time(Duration::from_millis(2500));
        bench.write("delete", "10.0.0.3").unwrap();
        let lines = "10.0.0.2 1 02-00-00-00-00-0A 2.500000\n10.0.0.3 0 FF-FF-FF-FF-FF-FF 0.000000\n";
        assert_eq!(bench.read("table", "").unwrap(), lines);
        assert_eq!(bench.read("count", "").unwrap(), "2");
        bench.advance_time(Duration::from_secs(30));
        assert_eq!(bench.read("count", "").unwrap(), "0");
    }

    #[test]
    fn wrong_values_are_refused() {
        let mut bench = Bench::new(&CLASS, "");
        assert!(bench.write("insert", "10.0.0.2").is_err());
        assert!(bench.write("insert", "nobody 2:0:0:0:0:a").is_err());
        assert!(bench.write("delete", "").is_err());
        let found = Bench::config_error(&CLASS, "CAPACITY_SLIM_FACTOR 0");
        assert_eq!(found, "CAPACITY_SLIM_FACTOR cannot be zero");
    }

    #[test]
    fn a_new_table_takes_over_what_the_old_one_knows() {
        let mut old = Bench::new(&CLASS, "");
        old.write("insert", "10.0.0.2 2:0:0:0:0:a").unwrap();
        let mut new = Bench::new(&CLASS, "");
        new.take_state(&mut old);
        assert_eq!(new.read("count", "").unwrap(), "1");
        // On another worker the old table's element may be at work for a moment longer.
        old.write("insert", "10.0.0.3 2:0:0:0:0:b").unwrap();
        assert_eq!(new.read("count", "").unwrap(), "2");
    }
}
