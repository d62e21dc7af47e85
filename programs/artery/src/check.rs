//! Commands that check a configuration without running it: check, flatten, graph.
use crate::classes::classes;
use crate::config_input::ConfigInput;
use crate::load::{Loaded, load};
use crate::options::values::{device, number};
use crate::options::{ReadingOptions, map_devices};
use crate::output::{Output, print_stderr, print_stdout};
use artery_device::Interface;
use artery_engine::names::{NameEntry, Names};
use artery_engine::{Home, Plan, Router, RouterSettings};
use artery_lang::{Ir, Node, args};
use artery_wire::EtherAddr;
use clap::{Args, ValueEnum};
use std::collections::BTreeSet;

#[derive(Args)]
pub(crate) struct CheckOptions {
    #[command(flatten)]
    pub(crate) reading: ReadingOptions,
    /// Number of workers to place the parts on
    #[arg(short = 'j', long, value_name = "N", default_value_t = 1, value_parser = number::<1, 256>)]
    pub(crate) workers: u16,
    /// Call this machine's device MACHINE what the configuration calls CONFIG
    #[arg(long, value_name = "CONFIG=MACHINE", value_parser = device)]
    pub(crate) device: Vec<(String, String)>,
    /// Say nothing of the placement
    #[arg(short = 'q', long)]
    pub(crate) quiet: bool,
}

#[derive(Args)]
pub(crate) struct DrawOptions {
    #[command(flatten)]
    pub(crate) reading: ReadingOptions,
}

#[derive(Args)]
pub(crate) struct GraphOptions {
    #[command(flatten)]
    pub(crate) reading: ReadingOptions,
    /// The language to draw in
    #[arg(long, value_enum, default_value_t = GraphFormat::Dot)]
    pub(crate) format: GraphFormat,
}

/// Languages that graphs are drawn in.
#[derive(Clone, Copy, ValueEnum)]
pub(crate) enum GraphFormat {
    /// The language of Graphviz
    Dot,
}

/// Shows everything that is wrong with a configuration, and where its parts would run.
pub(crate) fn check(options: &CheckOptions) -> anyhow::Result<u8> {
    let (input, mut loaded) = read(&options.reading)?;
    let voice = Output::for_terminal();
    let mut plan = None;
    if !loaded.has_errors() {
        let mut settings = RouterSettings { workers: options.workers.into(), ..RouterSettings::default() };
        settings.names.set_device_lookup(Interface::mac_of);
        map_devices(&options.device, &mut settings);
        let missing = stand_in_for_missing(&loaded.ir, &options.device, &mut settings.names);
        if !missing.is_empty() {
            voice.print_note(&format!(
                "{}: this machine has no interface {}; what only it can tell was not checked",
                input.name(),
                missing.join(", ")
            ));
        }
        match Router::configure(&loaded.ir, &loaded.processing, classes(), settings) {
            Ok((found, warnings)) => {
                plan = Some(found);
                loaded.problems = warnings;
            }
            Err(problems) => loaded.problems = problems,
        }
    }
    print_stderr(&voice.format_faults(&loaded));
    loaded.say_unused_variables(voice);
    let name = input.name();
    let Some(plan) = plan else {
        voice.print_error(&format!("{name}: {}", loaded.error_count_in_words()));
        return Ok(1);
    };
    if plan.is_empty() {
        voice.print_warning(&format!("{name}: configuration has no elements"));
    } else if !options.quiet {
        print_stdout(&placement(&plan))?;
    }
    Ok(0)
}

/// Interfaces of the configuration that this machine lacks. A configuration may be for another machine: each
/// gets an Ethernet address of its own, so that all else can be checked.
fn stand_in_for_missing(ir: &Ir, mapped: &[(String, String)], names: &mut Names) -> Vec<String> {
    let takes_device = |node: &&Node| ["FromDevice", "ToDevice"].contains(&node.class.as_str());
    let device = |node: &Node| {
        let first = args::split(&node.config).into_iter().next()?;
        let named = args::split_keyword(&first).filter(|(keyword, _)| *keyword == "DEVNAME");
        args::parse_word(named.map_or(first.as_str(), |(_, name)| name))
    };
    let devices: BTreeSet<String> = ir.nodes.iter().filter(takes_device).filter_map(device).collect();
    let mut missing = Vec::new();
    for (n, device) in (0_u16..).zip(devices) {
        let here = mapped.iter().find(|(name, _)| *name == device).map_or(&device, |(_, here)| here);
        if Interface::find(here).is_err() {
            let [high, low] = n.to_be_bytes();
            let ether = Some(EtherAddr([2, 0, 0, 0, high, low]));
            names.define_name(&device, NameEntry { ether, ..NameEntry::default() });
            missing.push(here.clone());
        }
    }
    missing
}

/// Which parts of the graph run where, and why.
fn placement(plan: &Plan) -> String {
    let mut text = format!("{} on {}\n", count(plan.len(), "element"), count(plan.workers(), "worker"));
    for part in plan.connected_parts() {
        let names: Vec<&str> = part.iter().map(|&node| plan.name(node)).collect();
        let (place, why) = match plan.home(part[0]) {
            Home::Every => ("every worker".to_string(), "all its elements can be copied".to_string()),
            Home::Worker(worker) => (format!("worker {worker}"), why_single(plan, &part)),
        };
        text += &format!("{place}: {}\n  {why}\n", names.join(", "));
    }
    text
}

fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

/// Why a part runs on one worker.
fn why_single(plan: &Plan, part: &[usize]) -> String {
    if plan.workers() == 1 {
        return "there is one worker".to_string();
    }
    if part.iter().any(|&node| plan.is_placed(node)) {
        return "the configuration places it there".to_string();
    }
    let single = part.iter().filter(|&&node| !plan.class(node).per_worker);
    let names: Vec<String> =
        single.map(|&node| format!("{} :: {}", plan.name(node), plan.class(node).name)).collect();
    format!("no copies can be made of {}", names.join(", "))
}

/// Prints a configuration with compounds and variables expanded.
pub(crate) fn flatten(options: &DrawOptions) -> anyhow::Result<u8> {
    draw(&options.reading, |loaded| artery_lang::print_flat(&loaded.ir))
}

/// Prints a drawing of a configuration.
pub(crate) fn graph(options: &GraphOptions) -> anyhow::Result<u8> {
    match options.format {
        GraphFormat::Dot => draw(&options.reading, |loaded| artery_lang::dot(&loaded.ir, &loaded.processing)),
    }
}

fn draw(options: &ReadingOptions, text: impl Fn(&Loaded) -> String) -> anyhow::Result<u8> {
    let (_, loaded) = read(options)?;
    print_stderr(&Output::for_terminal().format_faults(&loaded));
    if loaded.has_errors() {
        return Ok(1);
    }
    print_stdout(&text(&loaded))?;
    Ok(0)
}

fn read(options: &ReadingOptions) -> anyhow::Result<(ConfigInput, Loaded)> {
    let (input, reading) = options.reading()?;
    let text = input.read().map_err(anyhow::Error::msg)?;
    let loaded = load(&input.name(), &text, &reading);
    Ok((input, loaded))
}
