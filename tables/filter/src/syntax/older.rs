//! What rules of older dialects of pf, which FreeBSD's still is, are called by now.
//!
//! OpenBSD 4.7 made translation and normalisation options of filter rules (pf.conf(5); its upgrade guide),
//! 5.5 made queues one statement.

/// What is written in the place of a statement that began so, if it is one of an older dialect.
pub(crate) fn written_now(word: &str) -> Option<&'static str> {
    Some(match word {
        "nat" => {
            "older pf: write 'match out on IF from SOURCE to DESTINATION nat-to ADDRESS', and a rule that \
             passes it"
        }
        "rdr" => {
            "older pf: write 'match in on IF to ADDRESS port PORT rdr-to ADDRESS', and a rule that passes \
             it; 'pass in ...' for 'rdr pass'"
        }
        "binat" => {
            "older pf: write 'match on IF from ADDRESS to any binat-to ADDRESS', and a rule that passes it"
        }
        "no" => "older pf: write 'pass quick' ahead of the rule that would translate",
        "nat-anchor" | "rdr-anchor" | "binat-anchor" => {
            "older pf: write 'anchor', which may have rules of all kinds"
        }
        "scrub" => {
            "older pf: write 'match in all scrub (no-df)', with the options in parentheses; fragments are \
             put together by 'set reassemble'"
        }
        "altq" => {
            "older pf: write 'queue NAME on IF bandwidth RATE', and 'queue NAME parent NAME bandwidth RATE \
             default'"
        }
        "ether" => {
            "FreeBSD's pf: frames are filtered by rules of a switch's ports (artery ifconfig), not here"
        }
        _ => return None,
    })
}
