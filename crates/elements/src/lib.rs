//! Every element, one file each. To add one: write the file, add its name to the list below.
#![forbid(unsafe_code)]

use artery_engine::{Class, Classes};

/// Declares the modules and lists their `CLASS`.
macro_rules! elements {
    ($($group:ident: $($module:ident),* $(,)?;)*) => {
        $(mod $group { $(pub(crate) mod $module;)* })*

        static ALL: &[&Class] = &[$($(&$group::$module::CLASS,)*)*];
    };
}

elements! {
    basic: counter;

    queue: ;

    classify: ;

    ether: ;

    ip: dec_ip_ttl;

    files: ;

    device: ;

    script: ;
}

/// All classes, as the language, the manual and the builder use them.
pub static CLASSES: Classes = Classes(ALL);
