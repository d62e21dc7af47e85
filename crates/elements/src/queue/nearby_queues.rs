//! Which queues an element that watches them means: those that it names, or the nearest ones on its packets' way.
use artery_engine::{Args, Class, Context};
use artery_lang::flow::travels;
use artery_lang::{Ir, Options, Sources, compile};
use std::collections::HashSet;

/// Whether elements of this class are queues, which tell how many packets they hold.
fn is_queue(class: &Class) -> bool {
    class.group == "queue" && class.handler("length").is_some()
}

/// The full names of queues that an argument names, or what is wrong with one of them.
pub(super) fn named(words: &[String], args: &Args<'_>) -> Result<Vec<String>, String> {
    let full = |name: &String| {
        let element = args.element(name).ok_or_else(|| format!("no element named '{name}'"))?;
        if !is_queue(args.class_of(element)) {
            return Err(format!("'{name}' is not a Storage element"));
        }
        let found = args.elements().find(|(number, _)| *number == element);
        Ok(found.map_or_else(|| name.clone(), |(_, name)| name.to_string()))
    };
    words.iter().map(full).collect()
}

/// The names of the queues nearest to this element: downstream of output 0 where it pushes, else upstream of input 0.
pub(super) fn nearest(cx: &mut Context<'_>) -> Vec<String> {
    let pulls = cx.output_is_pull(0);
    let name = cx.name().to_string();
    let Ok(text) = cx.read_handler("flatconfig", "") else { return Vec::new() };
    let mut sources = Sources::default();
    let file = sources.add("flatconfig", &text);
    // It has been compiled before, so that there is nothing to complain about.
    let (graph, _) = compile(&mut sources, file, &Options::default(), &crate::CLASSES);
    let Some(node) = graph.find(&name) else { return Vec::new() };
    let mut search = Search { graph: &graph, pulls, seen: HashSet::new(), found: Vec::new() };
    search.from(node, 0);
    let mut found = search.found;
    found.sort_unstable();
    found.into_iter().map(|node| graph.nodes[node].name.clone()).collect()
}

struct Search<'a> {
    graph: &'a Ir,
    /// Whether to look upstream.
    pulls: bool,
    /// Ports whose other side has been looked at.
    seen: HashSet<(usize, usize)>,
    found: Vec<usize>,
}

impl Search<'_> {
    /// Looks behind a port, and on until there is a queue on each way.
    fn from(&mut self, node: usize, port: usize) {
        let mut ports = vec![(node, port)];
        while let Some(place) = ports.pop() {
            if self.seen.insert(place) {
                for (node, port) in self.behind(place) {
                    self.visit(node, port, &mut ports);
                }
            }
        }
    }

    /// The ports that one is connected with.
    fn behind(&self, place: (usize, usize)) -> Vec<(usize, usize)> {
        let edges = self.graph.edges.iter();
        match self.pulls {
            true => edges.filter(|edge| edge.to == place).map(|edge| edge.from).collect(),
            false => edges.filter(|edge| edge.from == place).map(|edge| edge.to).collect(),
        }
    }

    fn visit(&mut self, node: usize, port: usize, ports: &mut Vec<(usize, usize)>) {
        let Some(class) = crate::CLASSES.find(&self.graph.nodes[node].class) else { return };
        if is_queue(class) {
            if !self.found.contains(&node) {
                self.found.push(node);
            }
            return;
        }
        let edges = self.graph.edges.iter();
        if self.pulls {
            let inputs = edges.map(|edge| edge.to).filter(|(to, _)| *to == node);
            ports.extend(inputs.filter(|(_, input)| travels(class.flow, *input, port)));
        } else {
            let outputs = edges.map(|edge| edge.from).filter(|(from, _)| *from == node);
            ports.extend(outputs.filter(|(_, output)| travels(class.flow, port, *output)));
        }
    }
}
