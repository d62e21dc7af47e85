//! Which engines may be asked for by name.
use super::catalog::Catalog;
use super::{Options, dpdk};
use anyhow::ensure;

/// Sees to it that all engines asked for exist, and that one of them can take part.
pub(super) fn check(options: &Options) -> anyhow::Result<()> {
    let all = [of::<u32>(), of::<u128>()].concat();
    let is_known = |name: &&String| all.contains(&name.as_str());
    let unknown: Vec<&str> =
        options.engine.iter().filter(|name| !is_known(name)).map(String::as_str).collect();
    ensure!(unknown.is_empty(), "no engine is called {}; there are {}", unknown.join(", "), once(&all));
    let some = some(options);
    let takes_part = some.iter().any(|name| options.wants_engine(name));
    ensure!(takes_part, "none of {} can take part; here can {}", options.engine.join(", "), once(&some));
    Ok(())
}

/// Names that the family and the programs at hand leave.
fn some(options: &Options) -> Vec<&'static str> {
    let of_family =
        |number, names: Vec<&'static str>| names.into_iter().filter(move |_| options.wants(number));
    let names = of_family(4, of::<u32>()).chain(of_family(6, of::<u128>()));
    names.filter(|name| options.dpdk.is_some() || !name.starts_with("rte_")).collect()
}

fn of<A: Catalog>() -> Vec<&'static str> {
    let here = A::engines().into_iter().map(|entry| entry.name);
    here.chain(dpdk::engines(A::NUMBER).map(|table| table.name)).collect()
}

/// Names, each but once.
fn once(names: &[&str]) -> String {
    let is_first = |n: &usize| !names[..*n].contains(&names[*n]);
    let firsts: Vec<&str> = (0..names.len()).filter(is_first).map(|n| names[n]).collect();
    firsts.join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asking(family: Option<&str>, names: &[&str]) -> Options {
        let engine = names.iter().map(|name| name.to_string()).collect();
        Options { engine, family: family.map(String::from), ..Options::default() }
    }

    fn error(options: &Options) -> String {
        check(options).unwrap_err().to_string()
    }

    #[test]
    fn every_unknown_name_is_told_beside_those_that_there_are() {
        let error = error(&asking(None, &["fib-fast", "nonsense", "rte_fib"]));
        let wanted = "no engine is called nonsense, rte_fib; there are fib-fast, fib-small, art 8/4x6";
        assert!(error.starts_with(wanted), "{error}");
        for name in ["art 16/8x14", "bsd-radix", "rte_fib avx512", "rte_fib6 scalar"] {
            assert_eq!(error.matches(name).count(), 1, "{name}: {error}");
        }
    }

    #[test]
    fn names_of_either_family_are_known() {
        check(&asking(None, &["fib6"])).unwrap();
        check(&asking(Some("4"), &["fib6", "bsd-radix"])).unwrap();
        check(&asking(None, &[])).unwrap();
    }

    #[test]
    fn where_all_names_are_of_the_other_family_or_of_a_program_that_is_not_given_none_takes_part() {
        assert!(
            error(&asking(Some("4"), &["fib6"])).starts_with("none of fib6 can take part; here can fib-fast")
        );
        let dpdk = asking(None, &["rte_fib scalar"]);
        assert!(error(&dpdk).starts_with("none of rte_fib scalar can take part"));
        check(&Options { dpdk: Some("program".into()), ..dpdk }).unwrap();
    }
}
