//! Random changes, beside a list of members that is looked through.
use super::rig::{NOW, Rig, flow, member};
use artery_flow::balance::{Down, MemberId, Method, Settings};
use proptest::prelude::*;
use std::collections::BTreeMap;

#[derive(Clone, Copy, Debug)]
enum Change {
    Add(usize, u32),
    Remove(usize),
    Weight(usize, u32),
    Up(usize, bool),
    Method(usize),
    Down(Down),
    Open(bool),
}

fn change() -> impl Strategy<Value = Change> {
    let (name, weight) = (0..8usize, 0..4u32);
    prop_oneof![
        4 => (name.clone(), weight.clone()).prop_map(|(name, weight)| Change::Add(name, weight)),
        3 => name.clone().prop_map(Change::Remove),
        2 => (name.clone(), weight).prop_map(|(name, weight)| Change::Weight(name, weight)),
        3 => (name, any::<bool>()).prop_map(|(name, is_up)| Change::Up(name, is_up)),
        1 => (0..Method::ALL.len()).prop_map(Change::Method),
        1 => prop_oneof![Just(Down::Moves), Just(Down::Stays)].prop_map(Change::Down),
        1 => any::<bool>().prop_map(Change::Open),
    ]
}

#[derive(Clone, Copy, Debug)]
struct Known {
    id: MemberId,
    weight: u32,
    is_up: bool,
}

struct Model {
    members: BTreeMap<usize, Known>,
    settings: Settings,
}

impl Model {
    fn fails_open(&self) -> bool {
        let is_any_up = self.members.values().any(|known| known.is_up && known.weight > 0);
        let is_any = self.members.values().any(|known| known.weight > 0);
        self.settings.fails_open && !is_any_up && is_any
    }
    fn takes_new(&self, known: &Known) -> bool {
        known.weight > 0 && (known.is_up || self.fails_open())
    }
    fn keeps_known(&self, known: &Known) -> bool {
        known.is_up || self.fails_open() || self.settings.down == Down::Stays
    }

    /// Makes a change here and there, and says whether anything is different.
    fn change(&mut self, rig: &mut Rig, change: Change) -> bool {
        let name = |number: usize| format!("m{number}");
        let before = self.settings;
        match change {
            Change::Add(number, weight) => {
                let id = rig.members.add_member(member(number, weight), NOW);
                assert_eq!(id.is_ok(), !self.members.contains_key(&number));
                let Ok(id) = id else { return false };
                self.members.insert(number, Known { id, weight, is_up: true });
                return true;
            }
            Change::Remove(number) => {
                let was = self.members.remove(&number).is_some();
                assert_eq!(rig.members.remove(&name(number), NOW).is_ok(), was);
                return was;
            }
            Change::Weight(number, weight) => {
                let known = self.members.get_mut(&number);
                assert_eq!(rig.members.set_weight(&name(number), weight, NOW).is_ok(), known.is_some());
                return known.is_some_and(|known| std::mem::replace(&mut known.weight, weight) != weight);
            }
            Change::Up(number, is_up) => {
                let known = self.members.get_mut(&number);
                rig.set_up(&name(number), is_up);
                return known.is_some_and(|known| std::mem::replace(&mut known.is_up, is_up) != is_up);
            }
            Change::Method(number) => self.settings.method = Method::ALL[number],
            Change::Down(down) => self.settings.down = down,
            Change::Open(fails_open) => self.settings.fails_open = fails_open,
        }
        rig.members.update_settings(self.settings, NOW).unwrap();
        self.settings != before
    }

    /// Compares all that can be seen.
    fn check(&self, rig: &mut Rig, ever: &[MemberId]) {
        for id in ever {
            let known = self.members.values().find(|known| known.id == *id);
            let expected = known.filter(|known| self.keeps_known(known)).map(|known| known.weight);
            assert_eq!(rig.member(*id).map(|member| member.weight), expected, "{id:?}");
        }
        let takers: Vec<MemberId> =
            self.members.values().filter(|known| self.takes_new(known)).map(|known| known.id).collect();
        for number in 0..64 {
            let id = rig.pick(flow(number), NOW);
            assert!(id.map_or(takers.is_empty(), |id| takers.contains(&id)), "{id:?} of {takers:?}");
        }
        for view in rig.members.view_members().collect::<Vec<_>>() {
            let known = self.members.values().find(|known| known.id == view.id).expect("it is known");
            assert_eq!((view.takes_new, view.is_up), (self.takes_new(known), known.is_up));
            assert!(view.takes_new || view.slots == 0);
            assert_eq!(rig.named(&view.member.name), self.keeps_known(known).then_some(view.id));
        }
        assert_eq!(rig.members.len(), self.members.len());
    }

    /// Others with the same members, made at once, choose the same.
    fn check_twin(&self, rig: &mut Rig) {
        let mut twin = Rig::new(self.settings);
        let list = self.members.iter().rev().map(|(number, known)| member(*number, known.weight)).collect();
        twin.members.replace_members(list, NOW).unwrap();
        let known = |name: &str| self.members.iter().find(|(number, _)| *name == *format!("m{number}"));
        twin.members.update_health(|member| known(&member.name).map(|(_, known)| known.is_up), NOW);
        for number in 0..64 {
            assert_eq!(rig.name(flow(number), NOW), twin.name(flow(number), NOW));
        }
        assert!(rig.digest().is_some());
        assert_eq!(rig.digest(), twin.digest());
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn workers_see_what_a_look_at_the_list_says(
        method in 0..Method::ALL.len(),
        changes in prop::collection::vec(change(), 1..60),
    ) {
        let settings = Settings { method: Method::ALL[method], ..Settings::default() };
        let mut rig = Rig::new(settings);
        let mut model = Model { members: BTreeMap::new(), settings };
        let mut ever = Vec::new();
        for change in changes {
            let generation = rig.members.generation();
            let is_different = model.change(&mut rig, change);
            prop_assert_eq!(rig.members.generation(), generation + u32::from(is_different));
            ever.extend(model.members.values().map(|known| known.id));
            ever.sort_unstable();
            ever.dedup();
            model.check(&mut rig, &ever);
        }
        if matches!(model.settings.method, Method::Maglev(_) | Method::Hash | Method::Xor) {
            model.check_twin(&mut rig);
        }
    }

    #[test]
    fn of_buckets_only_those_of_who_goes_change_hands(changes in prop::collection::vec(change(), 1..60)) {
        let settings = Settings { method: Method::RESILIENT, ..Settings::default() };
        let mut rig = Rig::new(settings);
        let mut model = Model { members: BTreeMap::new(), settings };
        for change in changes.into_iter().filter(|change| !matches!(change, Change::Method(_))) {
            let before: Vec<_> = (0..64).map(|number| rig.pick(flow(number), NOW)).collect();
            model.change(&mut rig, change);
            for (number, before) in before.iter().enumerate() {
                let takes = |id: MemberId| {
                    model.members.values().any(|known| known.id == id && model.takes_new(known))
                };
                if let Some(before) = before.filter(|id| takes(*id)) {
                    prop_assert_eq!(rig.pick(flow(number as u64), NOW), Some(before));
                }
            }
        }
    }
}
