//! Any messages of rtnetlink, as news and as a dump, to the mirror of the kernel's tables. The first byte
//! says which of its parts are dumped.
#![no_main]
use artery_adopt::kernel::{News, Part};
use artery_adopt::mirror::{Mirror, Plain};
use artery_wire::netlink::Messages;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((which, messages)) = data.split_first() else { return };
    let (mut mirror, mut sink) = (Mirror::default(), Plain::default());
    let parts: Vec<Part> = Part::ALL.into_iter().collect();
    let part = parts.get(usize::from(*which) / 2);
    if let Some(part) = part {
        mirror.begin(*part);
    }
    for message in Messages(messages) {
        let Some(news) = News::read(&message) else { continue };
        match part {
            Some(_) if which % 2 == 1 => mirror.found(news.record, &mut sink),
            _ => mirror.hear(news, &mut sink),
        }
    }
    if part.is_some() {
        mirror.end(true, &mut sink);
    }
});
