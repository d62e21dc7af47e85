use artery_engine::{
    Arg, ArgError, Args, Batch, Class, Context, Element, Handler, HandlerError, Read, Write, parse_value,
};

pub static CLASS: Class = Class {
    name: "StrideSched",
    group: "queue",
    summary: "pulls from its inputs in proportion to their tickets",
    manual: "
Takes one argument for each input: its tickets. An input with twice the tickets of another is pulled from
twice as often while both have packets; one without tickets is never pulled from. Handlers `tickets0`,
`tickets1` and so on change the tickets of the first eight inputs.",
    example: "Idle -> Queue -> s :: StrideSched(10, 20) -> Unqueue -> Discard;\nIdle -> Queue -> [1]s;",
    ports: "1-/1",
    processing: "l/l",
    args: &[Arg::rest("TICKETS", "integer", "tickets of each input, 0 to 32768")],
    handlers: &[
        Handler::read("tickets0", "tickets of input 0", &Port::<0>::READ).and_write(&Port::<0>::WRITE),
        Handler::read("tickets1", "tickets of input 1", &Port::<1>::READ).and_write(&Port::<1>::WRITE),
        Handler::read("tickets2", "tickets of input 2", &Port::<2>::READ).and_write(&Port::<2>::WRITE),
        Handler::read("tickets3", "tickets of input 3", &Port::<3>::READ).and_write(&Port::<3>::WRITE),
        Handler::read("tickets4", "tickets of input 4", &Port::<4>::READ).and_write(&Port::<4>::WRITE),
        Handler::read("tickets5", "tickets of input 5", &Port::<5>::READ).and_write(&Port::<5>::WRITE),
        Handler::read("tickets6", "tickets of input 6", &Port::<6>::READ).and_write(&Port::<6>::WRITE),
        Handler::read("tickets7", "tickets of input 7", &Port::<7>::READ).and_write(&Port::<7>::WRITE),
        Handler::read("config", "all tickets", &Read(StrideSched::config_text)),
    ],
    build: |args| Ok(Box::new(StrideSched::new(args)?)),
    ..Class::PER_WORKER
};

/// The handlers of one input.
struct Port<const INPUT: usize>;

impl<const INPUT: usize> Port<INPUT> {
    const READ: Read<StrideSched> = Read(|s, _, _| Ok(s.tickets_text(INPUT)));
    const WRITE: Write<StrideSched> = Write(|s, text, _| s.set_tickets(INPUT, text));
}

const MAX_TICKETS: u32 = 1 << 15;
const STRIDE: u32 = 1 << 16;

struct Client {
    tickets: u32,
    /// Virtual time at which it is pulled from next; the smallest goes first.
    pass: u64,
}

struct StrideSched {
    clients: Vec<Client>,
    /// Inputs with tickets, in the order in which they are tried.
    order: Vec<usize>,
    /// Inputs that were tried and go back in line; empty between calls.
    tried: Vec<usize>,
}

fn parse_tickets(text: &str) -> Option<u32> {
    parse_value::<u32>(text).ok().map(|tickets| tickets.min(MAX_TICKETS))
}

impl StrideSched {
    fn new(args: &mut Args<'_>) -> Result<StrideSched, ArgError> {
        let (given, inputs) = (args.rest("TICKETS"), args.inputs());
        if given.len() != inputs {
            return Err(ArgError::wrong(format!("need {inputs} arguments, one per input port")));
        }
        let mut clients = Vec::new();
        for (input, text) in given.iter().enumerate() {
            let wrong = || ArgError::wrong(format!("argument {input} should be number of tickets (integer)"));
            let tickets = parse_tickets(text).ok_or_else(wrong)?;
            clients.push(Client { tickets, pass: u64::from(STRIDE / tickets.max(1)) });
        }
        let mut sched =
            StrideSched { clients, order: Vec::with_capacity(inputs), tried: Vec::with_capacity(inputs) };
        for input in (0..inputs).rev() {
            if sched.clients[input].tickets > 0 {
                sched.insert(input);
            }
        }
        Ok(sched)
    }
    /// Inserts an input by its pass, before others with the same pass.
    fn insert(&mut self, input: usize) {
        let pass = self.clients[input].pass;
        let at = self.order.partition_point(|&other| self.clients[other].pass < pass);
        self.order.insert(at, input);
    }
    /// Tickets of an input, -1 when there is no such input.
    fn tickets_text(&self, input: usize) -> String {
        self.clients.get(input).map_or("-1".to_string(), |client| client.tickets.to_string())
    }
    fn config_text(&mut self, _: &str, _: &mut Context<'_>) -> Result<String, HandlerError> {
        let tickets: Vec<String> = self.clients.iter().map(|client| client.tickets.to_string()).collect();
        Ok(tickets.join(", "))
    }
    fn set_tickets(&mut self, input: usize, text: &str) -> Result<(), HandlerError> {
        let tickets =
            parse_tickets(text).ok_or_else(|| HandlerError::refused("tickets value must be integer"))?;
        let first = self.order.first().map_or(0, |&first| self.clients[first].pass);
        let client = self.clients.get_mut(input);
        let client = client.ok_or_else(|| HandlerError::refused(format!("port {input} out of range")))?;
        let was = std::mem::replace(&mut client.tickets, tickets);
        if tickets == 0 {
            self.order.retain(|&other| other != input);
        } else if was == 0 {
            client.pass = first + u64::from(STRIDE / tickets);
            self.insert(input);
        }
        Ok(())
    }

    /// Pulls one packet from the first input that has some; those tried go back in line.
    fn pull_one(&mut self, into: &mut Batch, cx: &mut Context<'_>) -> bool {
        let (mut n, mut found) = (0, false);
        while n < self.order.len() && !found {
            let input = self.order[n];
            found = !cx.upstream_idle(input) && cx.pull(input, 1, into) > 0;
            let client = &mut self.clients[input];
            client.pass += u64::from(STRIDE / client.tickets);
            n += 1;
        }
        let mut tried = std::mem::take(&mut self.tried);
        tried.extend(self.order.drain(..n));
        tried.drain(..).for_each(|input| self.insert(input));
        self.tried = tried;
        found
    }
}

impl Element for StrideSched {
    fn pull(&mut self, _output: usize, max: usize, into: &mut Batch, cx: &mut Context<'_>) {
        for _ in 0..max {
            if !self.pull_one(into, cx) {
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    fn bench(config: &str, inputs: usize) -> Bench {
        let mut bench = Bench::setup(&CLASS, config).inputs(inputs).build().unwrap();
        (0..inputs).for_each(|input| (0..60).for_each(|_| bench.offer(input, [input as u8])));
        bench
    }
    fn counts(bench: &mut Bench, n: usize) -> [usize; 3] {
        let packets = bench.pull(0, n);
        [0, 1, 2].map(|input| packets.iter().filter(|packet| packet.data() == [input]).count())
    }

    #[test]
    fn inputs_are_pulled_from_in_proportion_to_their_tickets() {
        let mut bench = bench("3, 2, 1", 3);
        assert_eq!(counts(&mut bench, 60), [30, 20, 10]);
    }

    #[test]
    fn equal_inputs_start_with_the_first() {
        let mut bench = bench("1, 1", 2);
        assert_eq!(bench.pull(0, 1)[0].data(), [0]);
        assert_eq!(counts(&mut bench, 21), [10, 11, 0]);
    }

    #[test]
    fn empty_inputs_are_skipped() {
        let mut bench = bench("1, 1, 1000", 3);
        assert_eq!(counts(&mut bench, 60)[2], 60);
        assert_eq!(counts(&mut bench, 20), [10, 10, 0]);
    }

    #[test]
    fn an_input_without_tickets_waits_until_it_has_some() {
        let mut bench = bench("1, 0", 2);
        assert_eq!(counts(&mut bench, 20), [20, 0, 0]);
        bench.write("tickets1", "3").unwrap();
        bench.write("tickets0", "1").unwrap();
        let [first, second, _] = counts(&mut bench, 40);
        assert!((9..=11).contains(&first), "{first} {second}");
        assert_eq!(bench.read("config", "").unwrap(), "1, 3");
        assert_eq!(bench.read("tickets7", "").unwrap(), "-1");
        assert_eq!(bench.write("tickets7", "1").unwrap_err().to_string(), "port 7 out of range");
    }

    #[test]
    fn refuses_what_does_not_fit_its_inputs() {
        let refused = |config| Bench::setup(&CLASS, config).inputs(2).build().err().unwrap()[0].to_string();
        assert_eq!(refused("1"), "need 2 arguments, one per input port");
        assert_eq!(refused("1, x"), "argument 1 should be number of tickets (integer)");
    }
}
