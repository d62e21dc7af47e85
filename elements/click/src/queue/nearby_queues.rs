//! The queues that an element monitors: those that it names, or the nearest ones on its packets' paths.
use artery_engine::{Args, Class, Classes, Context};
use artery_lang::flow::flows_between;
use artery_lang::{Ir, Options, Sources, compile};
use std::collections::HashSet;

/// Whether elements of this class are queues with a length handler.
fn is_queue(class: &Class) -> bool {
    class.group == "queue" && class.handler("length").is_some()
}

/// The full names of the queues in an argument, or the error about one of them.
pub(super) fn find_named(words: &[String], args: &Args<'_>) -> Result<Vec<String>, String> {
    let full = |name: &String| {
        let element = args.find_element(name).ok_or_else(|| format!("no element named '{name}'"))?;
        if !is_queue(args.class_of(element)) {
            return Err(format!("'{name}' is not a Storage element"));
        }
        let found = args.elements().find(|(number, _)| *number == element);
        Ok(found.map_or_else(|| name.clone(), |(_, name)| name.to_string()))
    };
    words.iter().map(full).collect()
}

/// The names of the queues nearest to this element: downstream of output 0 where it pushes, else
/// upstream of input 0.
pub(super) fn find_nearest(cx: &mut Context<'_>) -> Vec<String> {
    let pulls = cx.output_is_pull(0);
    let (name, classes) = (cx.name().to_string(), cx.classes());
    let Ok(text) = cx.read_handler("flatconfig", "") else { return Vec::new() };
    let mut sources = Sources::default();
    let file = sources.add_file("flatconfig", &text);
    // It was compiled before, so there are no errors to report.
    let (graph, _) = compile(&mut sources, file, &Options::default(), &classes);
    let Some(node) = graph.find_node(&name) else { return Vec::new() };
    let mut search = Search { graph: &graph, classes, pulls, seen: HashSet::new(), found: Vec::new() };
    search.from(node, 0);
    let mut found = search.found;
    found.sort_unstable();
    found.into_iter().map(|node| graph.nodes[node].name.clone()).collect()
}

struct Search<'a> {
    graph: &'a Ir,
    classes: Classes,
    /// Whether to search upstream.
    pulls: bool,
    /// Ports whose other side was searched.
    seen: HashSet<(usize, usize)>,
    found: Vec<usize>,
}

impl Search<'_> {
    /// Searches beyond a port, until there is a queue on each path.
    fn from(&mut self, node: usize, port: usize) {
        let mut ports = vec![(node, port)];
        while let Some(place) = ports.pop() {
            if self.seen.insert(place) {
                for (node, port) in self.connected_ports(place) {
                    self.visit_node(node, port, &mut ports);
                }
            }
        }
    }

    /// The ports that one is connected with.
    fn connected_ports(&self, place: (usize, usize)) -> Vec<(usize, usize)> {
        let edges = self.graph.edges.iter();
        match self.pulls {
            true => edges.filter(|edge| edge.to == place).map(|edge| edge.from).collect(),
            false => edges.filter(|edge| edge.from == place).map(|edge| edge.to).collect(),
        }
    }

    fn visit_node(&mut self, node: usize, port: usize, ports: &mut Vec<(usize, usize)>) {
        let Some(class) = self.classes.find_class(&self.graph.nodes[node].class) else { return };
        if is_queue(class) {
            if !self.found.contains(&node) {
                self.found.push(node);
            }
            return;
        }
        let edges = self.graph.edges.iter();
        if self.pulls {
            let inputs = edges.map(|edge| edge.to).filter(|(to, _)| *to == node);
            ports.extend(inputs.filter(|(_, input)| flows_between(class.flow, *input, port)));
        } else {
            let outputs = edges.map(|edge| edge.from).filter(|(from, _)| *from == node);
            ports.extend(outputs.filter(|(_, output)| flows_between(class.flow, port, *output)));
        }
    }
}
