//! Reports prefixes whose packets stay with the kernel, since their routes depend on more than the
//! destination.
use crate::output::Output;
use artery_adopt::mirror::{ExcludedPrefix, Mirror};

/// The most prefixes that get a line each. There may be thousands, as from a routing
/// protocol with source-specific routes.
const SAID: usize = 10;

/// Such prefixes, the first of them by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct ExcludedPrefixes {
    first: Vec<ExcludedPrefix>,
    /// A cheap sign that prefixes beyond the first ones have changed.
    conditions: usize,
    count: usize,
}

impl ExcludedPrefixes {
    /// Reads them from the mirror.
    pub(super) fn of(mirror: &Mirror) -> ExcludedPrefixes {
        ExcludedPrefixes {
            first: mirror.excluded_prefixes().take(SAID).collect(),
            conditions: mirror.route_conditions(),
            count: mirror.excluded_prefixes().count(),
        }
    }

    /// How many prefixes stay with the kernel.
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// A line for each, and one for those that are too many.
    pub(super) fn to_lines(&self) -> Vec<String> {
        self.first.iter().map(ToString::to_string).chain(self.remaining_line()).collect()
    }

    fn remaining_line(&self) -> Option<String> {
        match self.count - self.first.len() {
            0 => None,
            1 => Some("1 more prefix stays with the kernel for such a reason".to_string()),
            more => Some(format!("{more} more prefixes stay with the kernel for such reasons")),
        }
    }

    /// Reports what has changed since the last report.
    pub(super) fn report_changes(&mut self, mirror: &Mirror, voice: Output) {
        let is_as_before = mirror.route_conditions() == self.conditions;
        if is_as_before && mirror.excluded_prefixes().take(SAID).eq(self.first.iter().cloned()) {
            return;
        }
        let now = ExcludedPrefixes::of(mirror);
        for kept in now.first.iter().filter(|kept| !self.first.contains(kept)) {
            let prefix = format!("{}/{}", kept.prefix.0, kept.prefix.1);
            let about = [("prefix", prefix.as_str()), ("table", &kept.table.to_string())];
            voice.log_event("kept-prefix", &kept.to_string(), &about);
        }
        if let Some(rest) = now.remaining_line().filter(|_| now.count != self.count) {
            voice.log_event("kept-prefixes", &rest, &[]);
        }
        if now.count == 0 {
            let said = "no prefix stays with the kernel any more because of sources or types of service";
            voice.log_event("no-kept-prefix", said, &[]);
        }
        *self = now;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_adopt::kernel::Family;
    use artery_adopt::mirror::RouteCondition;

    #[test]
    fn the_first_have_lines_of_their_own_and_the_rest_is_counted() {
        let kept = |number: u32| ExcludedPrefix {
            family: Family::V4,
            table: 254,
            prefix: (std::net::Ipv4Addr::from(number << 24).into(), 8),
            condition: RouteCondition::TypeOfService,
        };
        let some = |count| ExcludedPrefixes { first: (1..3).map(kept).collect(), conditions: count, count };
        assert_eq!(some(2).to_lines().len(), 2);
        assert!(
            some(2).to_lines()[0]
                .starts_with("IPv4 packets to 1.0.0.0/8 stay with the kernel: table 254 has")
        );
        assert_eq!(some(3).to_lines()[2], "1 more prefix stays with the kernel for such a reason");
        assert_eq!(some(9).to_lines()[2], "7 more prefixes stay with the kernel for such reasons");
    }
}
