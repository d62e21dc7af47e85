//! `artery flow import`: all of an export is checked before the first flow goes to the router.
use super::balancer::{Balancer, sum};
use super::chunks::{self, Checked};
use super::lines::{self, Unread};
use crate::output::{Output, print_stdout};
use anyhow::anyhow;
use artery_device::system_message;
use artery_flow::stream::MAGIC;
#[cfg(any(test, feature = "fuzz"))]
use artery_flow::stream::{EventItem, EventReader, write_event};
#[cfg(any(test, feature = "fuzz"))]
use base64::{Engine as _, prelude::BASE64_STANDARD};
use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

/// Has the router take the flows of an export over.
pub(super) fn import(balancer: &mut Balancer, file: Option<&Path>) -> anyhow::Result<u8> {
    let file = file.filter(|path| path.as_os_str() != "-");
    let name = file.map_or("standard input".to_string(), |path| path.display().to_string());
    let unreadable = |error: io::Error| anyhow!("can't read {name}: {}", system_message(&error));
    let wrong = |wrong: String| anyhow!("{name}: {wrong}; nothing was imported");
    let mut source: Box<dyn Read> = match file {
        Some(path) => Box::new(File::open(path).map_err(unreadable)?),
        None => Box::new(io::stdin().lock()),
    };
    let mut bytes = Vec::new();
    source.by_ref().take(1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.first() != Some(&MAGIC[0]) {
        let checked = lines::read(bytes, source).map_err(|unread| match unread {
            Unread::Io(error) => unreadable(error),
            Unread::Wrong(why) => wrong(why),
        })?;
        return import_checked(balancer, &checked);
    }
    source.read_to_end(&mut bytes).map_err(unreadable)?;
    import_checked(balancer, &chunks::check(&bytes).map_err(wrong)?)
}

/// Takes bytes for a file, and for events. A router gets exactly what it reads.
#[cfg(any(test, feature = "fuzz"))]
pub(crate) fn survive(bytes: &[u8]) {
    let mut events = EventReader::of_items(bytes);
    while let Ok(Some(event)) = events.next_event() {
        let mut written = Vec::new();
        if let EventItem::Exists(_, flow) = event {
            write_event(&EventItem::Member(flow.answer.action as u16, "m"), &mut written);
        }
        write_event(&event, &mut written);
        let mut again = EventReader::of_items(&written);
        assert_eq!(std::iter::from_fn(|| again.next_event().ok()?).last(), Some(event));
    }
    let checked = match bytes.first() == Some(&MAGIC[0]) {
        true => chunks::check(bytes).ok(),
        false => lines::check(bytes).ok(),
    };
    for chunk in checked.iter().flat_map(|checked| &checked.chunks) {
        let stream = BASE64_STANDARD.decode(chunk.text()).expect("it was encoded");
        assert!(chunks::check(&stream).is_ok(), "{stream:?}");
    }
}

/// Sends all flows, and says what became of them.
fn import_checked(balancer: &mut Balancer, checked: &Checked<'_>) -> anyhow::Result<u8> {
    warn_of_strangers(balancer, &checked.flows)?;
    let before = balancer.query_workers("exchange", "")?;
    balancer.write_all("import_flows", checked.chunks.iter().map(|chunk| chunk.text()))?;
    let after = balancer.query_workers("exchange", "")?;
    let total: u64 = checked.flows.values().sum();
    print_stdout(&report(total, &before, &after)).map(|()| 0)
}

/// Warns of members that are unknown to the router.
fn warn_of_strangers(balancer: &mut Balancer, flows: &BTreeMap<String, u64>) -> anyhow::Result<()> {
    let members = balancer.query("members", "")?;
    let known: HashSet<&str> = members.lines().filter_map(|line| line.split(' ').next()).collect();
    for (name, count) in flows.iter().filter(|(name, count)| **count > 0 && !known.contains(name.as_str())) {
        Output::for_terminal()
            .print_warning(&format!("this router has no member '{name}': its {count} flows are left out"));
    }
    Ok(())
}

/// What became of the flows, for people.
fn report(total: u64, before: &[serde_json::Value], after: &[serde_json::Value]) -> String {
    let mut text = format!("{total} flows read\n");
    for (n, worker) in after.iter().enumerate() {
        let of = |key: &str| {
            let start = before.get(n).map_or(0, |before| sum(std::slice::from_ref(before), key));
            sum(std::slice::from_ref(worker), key).saturating_sub(start)
        };
        text += &format!(
            "worker {}: {} new, {} newer, {} known before, {} without room, {} of members and {} of services \
             not here\n",
            worker["worker"],
            of("new"),
            of("newer"),
            of("known"),
            of("no_room"),
            of("no_member"),
            of("no_service"),
        );
    }
    if after.len() > 1 {
        text += "each worker has all of them: which will see a flow's packets is not known\n";
    }
    text
}
