//! Any messages of rtnetlink, as news and as a dump, to the mirror of the kernel's tables. The first byte
//! says which of its parts are dumped.
#![no_main]
use artery_adopt::kernel::{News, RecordKind};
use artery_adopt::mirror::{Mirror, RecordingSink};
use artery_netlink::Messages;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((which, messages)) = data.split_first() else { return };
    let (mut mirror, mut sink) = (Mirror::default(), RecordingSink::default());
    let parts: Vec<RecordKind> = RecordKind::ALL.into_iter().collect();
    let part = parts.get(usize::from(*which) / 2);
    if let Some(part) = part {
        mirror.begin_part(*part);
    }
    for message in Messages(messages) {
        let Some(news) = News::parse_message(&message) else { continue };
        match part {
            Some(_) if which % 2 == 1 => mirror.add_found(news.record, &mut sink),
            _ => mirror.apply_change(news, &mut sink),
        }
    }
    if part.is_some() {
        mirror.end_part(true, &mut sink);
    }
});
