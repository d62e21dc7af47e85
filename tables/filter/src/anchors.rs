//! The tree of anchors: which rule set a path names, and what `anchor` rules call.
//!
//! A path is names with `/` between them; the empty one is the main rule set. Rules in braces are loaded
//! into the anchor that they stand in, those without a name into one whose name begins with `_` and that no
//! other rule can call.
use crate::names::Tags;
use crate::rule::{Action, AnchorCall, Rule, Ruleset};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// All loaded rule sets by path.
#[derive(Clone, Debug, Default)]
pub struct Anchors {
    rulesets: BTreeMap<String, LoadedRuleset>,
    /// The tags of all rules, and of those before: states and packets have them by number.
    tags: Tags,
}

/// A rule set that was loaded.
#[derive(Clone, Debug, Default)]
pub(crate) struct LoadedRuleset {
    pub(crate) ruleset: Arc<Ruleset>,
    /// One for each load: what was counted for a rule set counts on for as long as it stays.
    pub(crate) load: Arc<()>,
}

/// What an `anchor` rule calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AnchorTarget {
    /// One rule set, by its path.
    One(String),
    /// All rule sets right below a path, in the order of their names: `path/*`.
    Below(String),
}

impl Anchors {
    /// Puts a rule set at a path, and those in its braces below; what was there is
    /// replaced, other anchors stay.
    pub fn load_ruleset(&mut self, path: &str, ruleset: Ruleset) {
        let unnamed = join_path(path, "_");
        self.rulesets.retain(|known, _| !known.starts_with(&unnamed));
        for (rule, called) in ruleset.rules.iter().zip(resolve_calls(path, &ruleset.rules)) {
            match (&rule.action, called) {
                (Action::Anchor(AnchorCall { inline: Some(inline), .. }), Some(AnchorTarget::One(path))) => {
                    self.load_ruleset(&path, (**inline).clone());
                }
                (_, Some(AnchorTarget::One(path))) => {
                    self.rulesets.entry(path).or_default();
                }
                _ => (),
            }
        }
        let ruleset = Arc::new(ruleset);
        self.rulesets
            .insert(path.to_string(), LoadedRuleset { ruleset: ruleset.clone(), load: Arc::default() });
        self.register_tags(&ruleset);
    }

    /// Numbers the tags of a new rule set. Those that no rule names any more are forgotten only
    /// where numbers run out.
    fn register_tags(&mut self, ruleset: &Ruleset) {
        tags_of(ruleset).for_each(|tag| self.tags.register_tag(tag));
        if !self.tags.have_numbers() {
            self.tags = Tags::default();
            let all = self.rulesets.values().flat_map(|loaded| tags_of(&loaded.ruleset));
            all.for_each(|tag| self.tags.register_tag(tag));
        }
    }

    /// The names of tags.
    pub(crate) fn tags(&self) -> &Tags {
        &self.tags
    }

    /// Forgets the rules at a path, not those below.
    pub fn flush_rules(&mut self, path: &str) {
        if let Some(loaded) = self.rulesets.get_mut(path) {
            *loaded = LoadedRuleset::default();
        }
    }

    /// Forgets the options of the main rule set; its rules stay.
    pub fn flush_options(&mut self) {
        if let Some(main) = self.rulesets.get_mut("") {
            Arc::make_mut(&mut main.ruleset).options.clear();
        }
    }

    /// The rule set at a path.
    pub fn get(&self, path: &str) -> Option<&Arc<Ruleset>> {
        self.rulesets.get(path).map(|loaded| &loaded.ruleset)
    }

    /// The same with its load.
    pub(crate) fn loaded_ruleset(&self, path: &str) -> Option<&LoadedRuleset> {
        self.rulesets.get(path)
    }

    /// All paths with their rule sets, in the order of paths.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &Arc<Ruleset>)> {
        self.rulesets.iter().map(|(path, loaded)| (path.as_str(), &loaded.ruleset))
    }

    /// Whether there is a rule set at a path, or below it.
    pub fn is_there(&self, path: &str) -> bool {
        self.get(path).is_some() || !self.child_paths(path).is_empty()
    }

    /// The paths right below one, in the order of names; of some only anchors further below may have rules.
    pub fn child_paths(&self, path: &str) -> BTreeSet<String> {
        let begin = join_path(path, "");
        let paths = self.rulesets.range(begin.clone()..).map(|(path, _)| path.as_str());
        let inside = paths.map_while(|path| path.strip_prefix(&begin));
        let names = inside.map(|rest| rest.split('/').next().unwrap_or_default());
        names.filter(|name| !name.is_empty()).map(|name| join_path(path, name)).collect()
    }

    /// The anchors below a path as `pfctl -s Anchors` shows them, a line each; with those below these (`-v`).
    pub fn list_anchors(&self, path: &str, is_deep: bool) -> String {
        let mut text = String::new();
        for child in self.child_paths(path).iter().filter(|path| !base_name(path).starts_with('_')) {
            text.push_str(&format!("  {child}\n"));
            if is_deep {
                text.push_str(&self.list_anchors(child, true));
            }
        }
        text
    }
}

fn tags_of(ruleset: &Ruleset) -> impl Iterator<Item = &str> {
    ruleset.rules.iter().flat_map(|rule| {
        let asked = rule.tagged.iter().map(|(_, tag)| tag.as_str());
        asked.chain([rule.tag.as_str()])
    })
}

fn base_name(path: &str) -> &str {
    path.rsplit('/').next().unwrap_or(path)
}

fn join_path(path: &str, name: &str) -> String {
    if path.is_empty() { name.to_string() } else { format!("{path}/{name}") }
}

/// What each rule of the rule set at a path calls. None where it calls nothing, or climbs above
/// the main rule set.
pub fn resolve_calls(path: &str, rules: &[Rule]) -> Vec<Option<AnchorTarget>> {
    let mut unnamed = 0;
    let called = |rule: &Rule| match &rule.action {
        Action::Anchor(AnchorCall { name: Some(name), .. }) => resolve_path(path, name),
        Action::Anchor(_) => {
            unnamed += 1;
            Some(AnchorTarget::One(join_path(path, &format!("_{unnamed}"))))
        }
        _ => None,
    };
    rules.iter().map(called).collect()
}

/// What a name means in the rule set at a path.
fn resolve_path(path: &str, name: &str) -> Option<AnchorTarget> {
    let (mut path, mut name) = (path, name);
    if let Some(absolute) = name.strip_prefix('/') {
        (path, name) = ("", absolute);
    }
    while let Some(rest) = name.strip_prefix("../") {
        if path.is_empty() {
            return None;
        }
        path = path.rsplit_once('/').map_or("", |(parent, _)| parent);
        name = rest;
    }
    Some(match name.strip_suffix("/*") {
        _ if name == "*" => AnchorTarget::Below(path.to_string()),
        Some(name) => AnchorTarget::Below(join_path(path, name)),
        None => AnchorTarget::One(join_path(path, name)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::syntax::{Environment, ParseSettings, parse};

    #[test]
    fn names_are_found_from_where_they_stand() {
        let one = |path: &str| Some(AnchorTarget::One(path.to_string()));
        let all = |path: &str| Some(AnchorTarget::Below(path.to_string()));
        assert_eq!(resolve_path("", "a"), one("a"));
        assert_eq!(resolve_path("a", "b/c"), one("a/b/c"));
        assert_eq!(resolve_path("a/b", "/c"), one("c"));
        assert_eq!(resolve_path("a/b", "../c"), one("a/c"));
        assert_eq!(resolve_path("a/b", "../../c"), one("c"));
        assert_eq!(resolve_path("a", "../../c"), None);
        assert_eq!(resolve_path("", "a/*"), all("a"));
        assert_eq!(resolve_path("a", "*"), all("a"));
    }

    #[test]
    fn tags_keep_their_numbers_until_these_run_out() {
        let mut anchors = Anchors::default();
        let mut load = |path: &str, tags: &[String]| {
            let text: String = tags.iter().map(|tag| format!("match tag {tag}\n")).collect();
            let parsed = parse("stdin", text.as_bytes(), &Environment::fixture(), &ParseSettings::default());
            anchors.load_ruleset(path, parsed.unwrap().ruleset);
            tags.iter().map(|tag| anchors.tags().tag_or_none(tag).0).collect::<Vec<_>>()
        };
        let names = |from: u32, to: u32| (from..to).map(|n| format!("t{n}")).collect::<Vec<_>>();
        assert_eq!([load("", &names(1, 3)), load("x", &names(3, 4))], [vec![1, 2], vec![3]]);
        assert_eq!(load("", &names(2, 5)), [2, 3, 4]);
        load("y", &names(5, 40_000));
        assert_eq!(load("y", &names(40_000, 65_536)).last(), Some(&65_535));
        // What rules name no more makes room.
        assert_eq!(load("y", &names(65_536, 65_538)).last(), Some(&5));
        assert_eq!(load("x", &names(3, 4)), [2]);
    }

    #[test]
    fn children_are_those_right_below() {
        let mut anchors = Anchors::default();
        for path in ["", "a", "a/c", "a/b", "a/b/d", "ab", "a/_1"] {
            anchors.load_ruleset(path, Ruleset::default());
        }
        let children = |path: &str| anchors.child_paths(path).into_iter().collect::<Vec<_>>();
        assert_eq!(children(""), ["a", "ab"]);
        assert_eq!(children("a"), ["a/_1", "a/b", "a/c"]);
        assert_eq!(children("a/c"), [""; 0]);
        assert_eq!(anchors.list_anchors("", true), "  a\n  a/b\n  a/b/d\n  a/c\n  ab\n");
        anchors.load_ruleset("a-b", Ruleset::default());
        anchors.load_ruleset("y/z", Ruleset::default());
        let all = "  a\n  a/b\n  a/b/d\n  a/c\n  a-b\n  ab\n  y\n  y/z\n";
        assert_eq!(anchors.list_anchors("", true), all, "there may be no rules on the way");
        assert!(anchors.is_there("y") && !anchors.is_there("z"));
        anchors.load_ruleset("a", Ruleset::default());
        assert!(anchors.get("a/_1").is_none() && anchors.get("a/b").is_some());
    }
}
