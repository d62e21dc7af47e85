//! The kernel's description of its own types (BTF, Documentation/bpf/btf.rst of Linux): the offsets of
//! structures' members, and the arguments of tracepoints.
//!
//! Libraries for it have licences that this project does not take (btf-rs), lack the kinds of types that
//! kernels have since 6.0 (btf), or do not make offsets public (aya-obj).
use std::io;

/// Where the running kernel publishes its types.
const OF_KERNEL: &str = "/sys/kernel/btf/vmlinux";
const MAGIC: u16 = 0xeb9f;
/// Structures within structures, and types that only name others.
const MOST_NESTED: usize = 16;

const PTR: u32 = 2;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNC_PROTO: u32 = 13;
const TYPE_TAG: u32 = 18;

/// The kernel's type information (BTF).
#[derive(Debug)]
pub struct Btf {
    /// Where each type begins, by its number; the first is `void`, which has no record.
    places: Vec<usize>,
    types: Vec<u8>,
    strings: Vec<u8>,
}

/// A type's record, without what follows it.
#[derive(Clone, Copy)]
struct Type {
    name: usize,
    kind: u32,
    /// How many members or parameters follow.
    count: usize,
    /// Whether members say how many bits they have beside where they are.
    has_bitfields: bool,
    /// The number of the type that this one refers to; of structures the size.
    refers_to: usize,
    /// Where its members or parameters begin.
    rest: usize,
}

impl Btf {
    /// Those of the running kernel. An error of kind [`io::ErrorKind::NotFound`] where
    /// it publishes none (`CONFIG_DEBUG_INFO_BTF`).
    pub fn of_kernel() -> io::Result<Btf> {
        let bytes = std::fs::read(OF_KERNEL)?;
        Btf::parse(&bytes).ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "not in BTF's format"))
    }

    /// Reads types as the kernel publishes them; `None` where the bytes contradict the format.
    pub fn parse(bytes: &[u8]) -> Option<Btf> {
        if u16_at(bytes, 0)? != MAGIC {
            return None;
        }
        let [header, types, types_len, strings, strings_len] = [4, 8, 12, 16, 20].map(|at| u32_at(bytes, at));
        let header = header? as usize;
        let part = |at: u32, bytes_in: u32| {
            let from = header.checked_add(at as usize)?;
            Some(bytes.get(from..from.checked_add(bytes_in as usize)?)?.to_vec())
        };
        let (types, strings) = (part(types?, types_len?)?, part(strings?, strings_len?)?);
        let mut places = vec![0];
        let mut at = 0;
        while at < types.len() {
            places.push(at);
            let found = Type::at(&types, at)?;
            at = found.rest.checked_add(bytes_behind(&found)?)?;
        }
        (at == types.len()).then_some(Btf { places, types, strings })
    }

    /// Bytes from the beginning of a structure to a member, also to one of a structure or union without a
    /// name inside it. `None` where there is no such structure or member, or it is a field of bits.
    pub fn member_offset(&self, structure: &str, member: &str) -> Option<u32> {
        let mut structures =
            self.types_in_order().filter(|found| found.kind == STRUCT && self.is_named(found, structure));
        structures.find_map(|found| self.find_member(&found, member, MOST_NESTED))
    }

    /// The names of a tracepoint's arguments. For older kernels they are empty, but as many as there are
    /// arguments. `None` where there is no such tracepoint.
    pub fn argument_names(&self, tracepoint: &str) -> Option<Vec<String>> {
        let typedef = format!("btf_trace_{tracepoint}");
        let found =
            self.types_in_order().find(|found| found.kind == TYPEDEF && self.is_named(found, &typedef))?;
        let prototype = self.resolve_type(found.refers_to)?;
        if prototype.kind != FUNC_PROTO {
            return None;
        }
        // The first parameter is not the tracepoint's own.
        let names = (1..prototype.count).map(|at| {
            let name = self.name_at(u32_at(&self.types, prototype.rest + 8 * at)? as usize)?;
            Some(String::from_utf8_lossy(name).into_owned())
        });
        names.collect()
    }

    fn types_in_order(&self) -> impl Iterator<Item = Type> {
        self.places.iter().skip(1).filter_map(|place| Type::at(&self.types, *place))
    }

    fn find_member(&self, structure: &Type, name: &str, depth: usize) -> Option<u32> {
        let inner = depth.checked_sub(1)?;
        (0..structure.count).find_map(|number| {
            let at = structure.rest + 12 * number;
            let named = u32_at(&self.types, at)? as usize;
            let bits = u32_at(&self.types, at + 8)?;
            let (bits, width) =
                if structure.has_bitfields { (bits & 0xff_ffff, bits >> 24) } else { (bits, 0) };
            if self.name_at(named)? == name.as_bytes() {
                return (width == 0 && bits.is_multiple_of(8)).then_some(bits / 8);
            }
            if named != 0 {
                return None;
            }
            let nameless = self.resolve_type(u32_at(&self.types, at + 4)? as usize)?;
            let is_structure = matches!(nameless.kind, STRUCT | UNION);
            let offset = is_structure.then(|| self.find_member(&nameless, name, inner)).flatten()?;
            Some(bits / 8 + offset)
        })
    }

    /// A type, behind those that only name, qualify or point to it.
    fn resolve_type(&self, mut number: usize) -> Option<Type> {
        for _ in 0..MOST_NESTED {
            let place = *self.places.get(number).filter(|_| number != 0)?;
            let found = Type::at(&self.types, place)?;
            match found.kind {
                PTR | TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => number = found.refers_to,
                _ => return Some(found),
            }
        }
        None
    }

    fn is_named(&self, found: &Type, name: &str) -> bool {
        self.name_at(found.name).is_some_and(|its| its == name.as_bytes())
    }

    fn name_at(&self, at: usize) -> Option<&[u8]> {
        let name = self.strings.get(at..)?;
        name.get(..name.iter().position(|byte| *byte == 0)?)
    }
}

impl Type {
    fn at(types: &[u8], at: usize) -> Option<Type> {
        let info = u32_at(types, at + 4)?;
        Some(Type {
            name: u32_at(types, at)? as usize,
            kind: info >> 24 & 0x1f,
            count: (info & 0xffff) as usize,
            has_bitfields: info >> 31 != 0,
            refers_to: u32_at(types, at + 8)? as usize,
            rest: at + 12,
        })
    }
}

/// Bytes that follow a type's record, by its kind.
fn bytes_behind(found: &Type) -> Option<usize> {
    Some(match found.kind {
        // Integers, variables, declaration tags.
        1 | 14 | 17 => 4,
        // Arrays.
        3 => 12,
        // Structures, unions, sections of data, and enumerations of 64 bits.
        STRUCT | UNION | 15 | 19 => 12 * found.count,
        // Enumerations and parameters.
        6 | FUNC_PROTO => 8 * found.count,
        PTR | 7..=12 | 16 | TYPE_TAG => 0,
        _ => return None,
    })
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    Some(u16::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*bytes.get(at..)?.first_chunk()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Types by their words, each with what follows it.
    fn written(types: &[u32], strings: &str) -> Vec<u8> {
        let types: Vec<u8> = types.iter().flat_map(|word| word.to_ne_bytes()).collect();
        let mut bytes = [MAGIC.to_ne_bytes(), [1, 0]].concat();
        for word in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
            bytes.extend(word.to_ne_bytes());
        }
        bytes.extend(types);
        bytes.extend(strings.bytes());
        bytes
    }

    /// `struct s { int a; union { int b; }; int c : 3; int d; }`, with fields of bits, and a
    /// tracepoint of two arguments.
    fn example() -> Vec<u8> {
        let names = "\0s\0a\0b\0c\0d\0btf_trace_t\0dev\0err\0";
        let at = |name: &str| names.find(&format!("\0{name}\0")).unwrap() as u32 + 1;
        let kind = |kind: u32, count: u32| kind << 24 | count;
        let (s, trace) = (at("s"), at("btf_trace_t"));
        let types = [
            vec![0, kind(1, 0), 4, 32],
            vec![0, kind(UNION, 1), 4, at("b"), 1, 0],
            vec![s, kind(STRUCT, 4) | 1 << 31, 16],
            vec![at("a"), 1, 0, 0, 2, 32, at("c"), 1, 3 << 24 | 64, at("d"), 1, 96],
            vec![0, kind(FUNC_PROTO, 3), 0, 0, 0, at("dev"), 1, at("err"), 1],
            vec![0, kind(PTR, 0), 4],
            vec![trace, kind(TYPEDEF, 0), 5],
            // What kernels have since 6.0.
            vec![0, kind(19, 1), 8, 0, 1, 0],
        ];
        written(&types.concat(), names)
    }

    #[test]
    fn members_and_arguments_are_found_by_name() {
        let btf = Btf::parse(&example()).unwrap();
        let offsets = ["a", "b", "c", "d", "e"].map(|member| btf.member_offset("s", member));
        assert_eq!(offsets, [Some(0), Some(4), None, Some(12), None]);
        assert_eq!(btf.member_offset("t", "a"), None);
        assert_eq!(btf.argument_names("t").unwrap(), ["dev", "err"]);
        assert_eq!(btf.argument_names("s"), None);
    }

    #[test]
    fn what_is_cut_short_or_changed_does_no_harm() {
        let whole = example();
        for end in 0..whole.len() {
            assert!(Btf::parse(&whole[..end]).is_none(), "{end} bytes");
        }
        for at in 0..whole.len() {
            for byte in [0, 1, 0x7f, 0x80, 0xff] {
                let mut changed = whole.clone();
                changed[at] = byte;
                let Some(btf) = Btf::parse(&changed) else { continue };
                btf.member_offset("s", "d");
                btf.argument_names("t");
            }
        }
    }

    #[test]
    fn the_kernels_own_are_read() {
        match Btf::of_kernel() {
            Ok(btf) => assert!(btf.member_offset("net_device", "ifindex").is_some()),
            Err(error) => {
                assert_eq!(error.kind(), io::ErrorKind::NotFound);
                eprintln!("skipped: this kernel publishes no types");
            }
        }
    }
}
