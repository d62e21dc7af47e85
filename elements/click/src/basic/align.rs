use artery_engine::{Arg, ArgError, Args, Class, Element};

pub static CLASS: Class = Class {
    name: "Align",
    group: "basic",
    summary: "passes packets on, aligned as every element here needs them",
    manual: "
Passes packets on unchanged. In Click it moves data to an address that is OFFSET bytes behind a multiple of
MODULUS, for elements that read words of several bytes at once. Elements here read headers wherever they lie,
so that nothing need be moved; the class is there for configurations that name it, and its arguments are
checked.",
    example: "Idle -> Align(4, 0) -> Discard;",
    args: &[
        Arg::required("MODULUS", "2, 4 or 8", "what addresses would be a multiple of"),
        Arg::required("OFFSET", "bytes", "how far behind such an address data would start"),
    ],
    build: |args| {
        check_args(args)?;
        Ok(Box::new(Align))
    },
    ..Class::PER_WORKER
};

struct Align;

fn check_args(args: &Args<'_>) -> Result<(), ArgError> {
    let (modulus, offset): (u32, u32) = (args.read("MODULUS")?, args.read("OFFSET")?);
    if ![2, 4, 8].contains(&modulus) {
        return Err(ArgError::wrong("MODULUS must be 2, 4, or 8"));
    }
    if offset >= modulus {
        return Err(ArgError::wrong("OFFSET must be smaller than MODULUS"));
    }
    Ok(())
}

impl Element for Align {}

#[cfg(test)]
mod tests {
    use super::*;
    use artery_engine::Bench;

    #[test]
    fn packets_pass() {
        let mut bench = Bench::new(&CLASS, "4, 2");
        bench.push(0, b"abc");
        bench.expect(0, b"abc");
    }
}
