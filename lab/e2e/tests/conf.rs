//! The configurations in `conf/` are what they are said to be.

use artery_engine::{RouterSettings, Sink, names::Names};
use artery_rig::conf;
use artery_rig::program::checked;
use std::path::Path;

/// Puts a device that is on every machine in the place of those that a configuration names.
fn names(text: &str) -> Names {
    let mut names = Names::default();
    ["eth0", "eth1"]
        .iter()
        .filter(|name| text.contains(**name))
        .for_each(|name| names.map_device(name, "lo"));
    names
}

#[test]
fn every_configuration_is_clean_and_its_arguments_are_right() {
    for (name, text) in conf::ALL {
        let settings = RouterSettings { names: names(text), ..RouterSettings::default() };
        let configured = checked(name, text).and_then(|checked| checked.configure(settings));
        configured.unwrap_or_else(|error| panic!("{name}: {error}"));
    }
}

#[test]
fn the_configuration_in_the_readme_is_clean_and_its_arguments_are_right() {
    let readme = include_str!("../../../README.md");
    let text = readme.split("```click\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let settings = RouterSettings { names: names(text), ..RouterSettings::default() };
    checked("README.md", text).unwrap().configure(settings).unwrap();
}

#[test]
fn no_configuration_is_left_out_of_these_tests() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../conf");
    let mut files: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .filter(|name| name.ends_with(".click"))
        .collect();
    files.sort();
    let mut known = conf::ALL.map(|(name, _)| name);
    known.sort();
    assert_eq!(files, known);
}

#[test]
fn hello_prints_five_packets_and_their_number() {
    let (chatter, output) = (Sink::buffer(), Sink::buffer());
    let settings =
        RouterSettings { chatter: chatter.clone(), output: output.clone(), ..RouterSettings::default() };
    let router = checked("hello.click", conf::HELLO).unwrap().build(settings).unwrap();
    router.start().wait().unwrap();
    let said = chatter.drain_text();
    assert_eq!(said.lines().filter(|line| line.starts_with("hello:   13 | ")).count(), 5, "{said}");
    assert_eq!(output.drain_text().trim(), "5 packets");
}
