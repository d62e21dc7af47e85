//! Changes of members by handlers, which outlive a replacement of the configuration.
use artery_flow::balance::Member;
use std::collections::{HashMap, HashSet};
use std::net::IpAddr;

/// Name, address and port: a member with another one of them is another member.
pub(super) type Identity<'m> = (&'m str, IpAddr, Option<u16>);

pub(super) fn identity(member: &Member) -> Identity<'_> {
    (&member.name, member.address, member.port)
}

/// The members that a balancer with `configured` ones begins with, if it replaces one whose arguments named
/// `before` and that has `running` now. Where arguments now say of a member what they said before, what
/// handlers did to it stays: its weight, or that it was removed. Members that handlers added stay unless one
/// of the arguments has their name.
pub(super) fn carry_changes(configured: &[Member], before: &[Member], running: &[Member]) -> Vec<Member> {
    let (before, running_now) = (by_identity(before), by_identity(running));
    let named = configured.iter().filter_map(|member| match before.get(&identity(member)) {
        Some(same) if *same == member => running_now.get(&identity(member)).copied(),
        _ => Some(member),
    });
    let named: Vec<&Member> = named.collect();
    let names: HashSet<&str> = named.iter().map(|member| &*member.name).collect();
    let was_added = |member: &&Member| !before.contains_key(&identity(member));
    let added = running.iter().filter(was_added).filter(|member| !names.contains(&*member.name));
    named.iter().copied().chain(added).cloned().collect()
}

fn by_identity(members: &[Member]) -> HashMap<Identity<'_>, &Member> {
    members.iter().map(|member| (identity(member), member)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(configured: &[&str], before: &[&str], running: &[&str]) -> Vec<String> {
        let [configured, before, running] = [configured, before, running]
            .map(|list| list.iter().map(|text| text.parse().unwrap()).collect::<Vec<Member>>());
        let kept = carry_changes(&configured, &before, &running);
        kept.iter().map(|member| format!("{} {} {}", member.name, member.address, member.weight)).collect()
    }

    #[test]
    fn what_handlers_changed_stays_where_the_arguments_say_what_they_said() {
        let before = ["a 10.0.0.1", "b 10.0.0.2 weight 2", "c 10.0.0.3"];
        let running = ["a 10.0.0.1 weight 0", "b 10.0.0.2 weight 2", "d 10.0.0.4 weight 3"];
        assert_eq!(kept(&before, &before, &running), ["a 10.0.0.1 0", "b 10.0.0.2 2", "d 10.0.0.4 3"]);
        assert_eq!(kept(&before[1..], &before, &running), ["b 10.0.0.2 2", "d 10.0.0.4 3"]);
        assert_eq!(kept(&before, &before, &["b 10.0.0.9"]), ["b 10.0.0.9 1"], "one in the place of another");
    }

    #[test]
    fn arguments_that_say_something_else_decide() {
        let before = ["a 10.0.0.1", "b 10.0.0.2", "c 10.0.0.3"];
        let running = ["a 10.0.0.1 weight 0", "b 10.0.0.2 weight 0", "d 10.0.0.4"];
        let configured = ["a 10.0.0.1 weight 5", "b 10.0.0.9", "c 10.0.0.3 weight 2", "d 10.0.0.7"];
        let expected = ["a 10.0.0.1 5", "b 10.0.0.9 1", "c 10.0.0.3 2", "d 10.0.0.7 1"];
        assert_eq!(kept(&configured, &before, &running), expected);
        assert_eq!(kept(&["a 10.0.0.1"], &[], &[]), ["a 10.0.0.1 1"]);
    }
}
