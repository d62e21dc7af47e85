//! The words of the compiled FIBs, bit by bit, for readers outside this crate: a BPF program, another
//! process, another language. This module has no code.
//!
//! Callers that build [`Fib4Fast`](crate::Fib4Fast), [`Fib4Small`](crate::Fib4Small) or [`Fib6`](crate::Fib6)
//! with a [`Storage`](artery_storage::Storage) of their own get the arrays where they want them, each asked
//! for by name. A FIB keeps its arrays as long as it lives; one that is rebuilt asks for new ones. A
//! [`RouteTable`](crate::RouteTable) rebuilds it when routes or a policy are set, when it changes the layout,
//! and when a FIB has no more room, and says nothing of it to readers outside: give those a FIB that you keep
//! in step yourself, from the runs of an [`Art`](crate::Art).
//!
//! # What all have in common
//!
//! * Arrays consist of unsigned words of 1, 2, 4 or 8 bytes, naturally aligned, in the machine's byte order.
//!   *Bit 0* is the least. A *place* counts from 0. IPv4 addresses are numbers: 10.1.2.3 is `0x0a010203`.
//! * A [group](crate::Group) of 0 in any array means: nothing but the route of all addresses covers this one.
//!   Its group is in the word `default[0]`, and is 0 as well where there is no such route.
//! * A region may be longer than its array.
//! * No word that the writer stores leads outside an array. A reader that does not trust what it maps
//!   compares each place with the length before the load.
//!
//! | array | of | words | bits of a word | bytes |
//! |---|---|--:|--:|--:|
//! | `cells` | fast, narrow | 2^24 | 8 | 16 MiB |
//! | `cells` | fast, wide | 2^24 | 16 | 32 MiB |
//! | `blocks` | fast | 2^16 | 64 | 512 KiB |
//! | `palette` | fast | 256 | 32 | 1 KiB |
//! | `roots` | small | 2^19 | 64 | 4 MiB |
//! | `leaves` | small | [`leaves`], at least 2^16, rounded up to a multiple of 4 | 16 | 48 MiB by default |
//! | `lists` | fast, small | 8 for each of [`list_lines`] | 64 | 128 MiB by default |
//! | `fib6-words` | IPv6 | the capacity of [`Fib6::build`], up to 2^26 | 32 | 16 MiB and more by default |
//! | `default` | all | 8, of which only the first is used | 64 | 64 |
//!
//! `leaves`, `lists` and `fib6-words` are used from the front.
//!
//! [`leaves`]: crate::Fib4Options::leaves
//! [`list_lines`]: crate::Fib4Options::list_lines
//! [`Fib6::build`]: crate::Fib6::build
//!
//! # `default`
//!
//! | bits of `default[0]` | |
//! |---|---|
//! | 0 to 31 | group of the default route, 0 without one |
//! | 32 to 62 | number of changes of this word, modulo 2^31 |
//! | 63 | mark, only in the narrow fast layout: every code in use is the number of its group |
//!
//! A lookup loads this word, then everything else, then this word again, and restarts when it differs.
//! Without that it could put an old default in the place of a 0 that is newer, and answer what was right at
//! no instant. The number of changes tells a group that has come back from one that has stayed. A lookup that
//! has found a group other than 0, and has not relied on the mark, needs no second load.
//!
//! # Fast, narrow
//!
//! `cells[address >> 8]` is a code:
//!
//! | code | |
//! |---|---|
//! | 0 | the default's group |
//! | 1 to 254 | the group `palette[code]` |
//! | 255 | look further: something in this /24 is longer than 24 bits, or its group has no code |
//!
//! `palette[0]` is 0. Where the mark is set, `palette` need not be read: the code is the group. After 255,
//! the word `blocks[address >> 16]` leads to a [list](#lists) for the whole /16, in which `address & 0xffff`
//! is looked up; where it has no list (bit 0 is 0; the word then is 0), the list has been withdrawn since,
//! and before that the cell was changed: load the cell again.
//!
//! ```text
//! lookup(address):
//!     before = default[0]
//!     code = cells[address >> 8]
//!     if code != 255: group = palette[code]
//!     else:
//!         word = blocks[address >> 16]
//!         if bit 0 of word is 0: restart
//!         group = in_list(word, address & 0xffff)
//!     if group != 0: return group
//!     if default[0] != before: restart
//!     return before & 0xffffffff
//! ```
//!
//! # Fast, wide
//!
//! The same, but that a cell is a group itself: 0 is the default's, 1 to 65,534 are groups, 65,535 says "look
//! further". `palette` is there and unused. [`Fib4Options::wide`](crate::Fib4Options::wide) chooses this
//! form.
//!
//! # Small
//!
//! `roots[address >> 13]` is for a /19:
//!
//! | bits | where bit 0 is 0 |
//! |---|---|
//! | 1 to 31 | bit *n* is 1 where the /19's *n*th /24, from 0, has another group than the one before |
//! | 32 to 63 | place in `leaves` of the group of the first /24; those of the following runs come after it |
//!
//! A leaf is a group up to 65,535, or 0 for the default's. The first 65,536 leaves are their own numbers and
//! never change, so that a /19 of one way needs none of its own: its upper half is the group. Where bit 0 is
//! 1, the word leads to a [list](#lists) for the /19, in which `address & 0x1fff` is looked up: something is
//! longer than 24 bits, or a group is above 65,535.
//!
//! ```text
//! lookup(address):
//!     before = default[0]
//!     word = roots[address >> 13]
//!     if bit 0 of word is 1: group = in_list(word, address & 0x1fff)
//!     else:
//!         n = address >> 8 & 31
//!         group = leaves[(word >> 32) + number of ones among bits 1 to n of word]
//!     if group != 0: return group
//!     if default[0] != before: restart
//!     return before & 0xffffffff
//! ```
//!
//! # Lists
//!
//! The word of a list, in `blocks` or `roots`:
//!
//! | bits | |
//! |---|---|
//! | 0 | 1 |
//! | 1 to 5 | size: 0 to 5 for 2^size lines; 31 for a direct array |
//! | 6 to 31 | 0 |
//! | 32 to 63 | number of the first line; line *l* has the words 8*l* to 8*l* + 7 of `lists` |
//!
//! A line shows ten runs of addresses. The start of run *i* is in bits 16 (*i* mod 4) and the 15 after of the
//! line's word *i* / 4, as an offset in the block; its group is the lower half of the word 3 + *i* / 2 for
//! even *i*, the upper half otherwise. (On a little-endian machine: `u16 starts[12]; u32 groups[10];` the
//! last two starts mean nothing.) Starts ascend over all lines, the first is 0; places after the last run
//! have the start 0xffff and the last run's group. The run of an address is the last whose start is not above
//! its offset:
//!
//! ```text
//! in_list(word, offset):
//!     first, size = word >> 32, word >> 1 & 31
//!     if size == 31:
//!         two = lists[8 * first + offset / 2]
//!         return lower half of two if offset is even, else upper half
//!     line = the last of the 2^size lines from first on whose start 0 <= offset
//!     run = the last of its runs 0 to 9 whose start <= offset
//!     return the group of run
//! ```
//!
//! A direct array has a group for each address: 4096 lines for a /16, 512 for a /19.
//!
//! # IPv6
//!
//! `fib6-words` begins with the root, 2^16 words by the first 16 bits of an address; nodes follow. A word:
//!
//! | bits | where bit 31 is 0 | where bit 31 is 1: a node |
//! |---|---|---|
//! | 0 to 23 | group | place of the node's first word, divided by 4 |
//! | 24 to 27 | group | *class* |
//! | 28 | group | *deep*: what follows needs address bits after the 48th; no lookup has to know |
//! | 29 | group | *wide*; has a meaning for lists only |
//! | 30 | group | *list* |
//!
//! So a group has 31 bits; 0 is the default's. What a node is:
//!
//! * *Array* (bit 30 is 0): 2^class words, chosen by the next *class* bits of the address. Class is 14 at
//!   most.
//! * *Narrow list* (bits 30, 29 are 1, 0): 2^class half words, the keys, and as many half words, the groups.
//!   Of two in a word the first is the lower half. Class is 2 to 5.
//! * *Wide list* (bits 30, 29 are 1, 1): the keys likewise, then 2^class words such as this one, for an
//!   address whose next 16 bits are used up.
//!
//! Keys ascend up to 0xffff, which may repeat; the entry of an address is the first whose key is not less
//! than its next 16 bits, where zeros stand for bits after the 128th.
//!
//! ```text
//! lookup(address):
//!     before = default[0]
//!     word, rest = words[first 16 bits of address], address << 16      // of 128 bits
//!     while bit 31 of word is 1:
//!         class, place = word >> 24 & 15, 4 * (word & 0xffffff)
//!         if bit 30 of word is 0:
//!             word, rest = words[place + first class bits of rest], rest << class
//!         else:
//!             entry = the first e with half_word(place, e) >= first 16 bits of rest
//!             values = place + 2^(class - 1)
//!             if bit 29 of word is 0: word = half_word(values, entry)
//!             else: word, rest = words[values + entry], rest << 16
//!     if word != 0: return word
//!     if default[0] != before: restart
//!     return before & 0xffffffff
//! half_word(place, i) = lower half of words[place + i / 2] if i is even, else upper half
//! ```
//!
//! # How many loads wait for others
//!
//! Loads of one cache line count as one, and `default[0]`, whose place is known, as none.
//!
//! | layout | most loads in a row of which each needs what the one before it said |
//! |---|--:|
//! | fast, narrow | 2: cell and `palette`, or word of `blocks` (its place does not need the cell) and list |
//! | fast, wide | 1: cell; or 2: word of `blocks` and list |
//! | small | 2: word and leaf, or word and list |
//! | IPv6 | [`Fib6::MAX_LOADS`](crate::Fib6::MAX_LOADS) |
//!
//! The word of a list tells where all its lines are, 32 at most: their loads don't wait for each other. Where
//! nothing is changed, no lookup restarts; a loop with a limit, such as BPF wants, may fall back to whoever
//! decides when the limit is reached.
//!
//! # What order a reader may rely on
//!
//! Every store that makes something visible *releases*, and is one store of one aligned word. A reader must
//! *acquire* with each load of `default`, `cells`, `palette`, `blocks`, `roots`, `leaves`, of `lists` where
//! the array is a direct one, and of words of `fib6-words` that are not keys or values of a narrow list. On
//! x86 every load acquires, if the compiler is kept from reordering them. Then:
//!
//! * A reader that sees a word that leads to leaves, lines or nodes sees what they say. Lines and narrow
//!   lists never change while a word leads to them. Leaves, direct arrays, and words of arrays and wide lists
//!   change in place, each address's answer by one store.
//! * A reader that sees a code in a cell sees its group in `palette`. Where that group's number is not the
//!   code, the mark was cleared before the cell was stored, so that a reader that relied on the mark finds
//!   `default[0]` changed. The mark is set when a FIB is built, and once cleared stays so.
//! * The `blocks` word of a list is stored before any cell says "look further" for it, and set to 0 only
//!   after all cells of its /16 say something else. A list is right for every address of its /16, whatever
//!   the cells say.
//! * A change of `default[0]` and a later change of another word are seen in this order by a reader that
//!   loads the other word first.
//! * A change reaches one address after another; two addresses of a changed prefix may for a moment disagree.
//!
//! # Until when memory means what it did
//!
//! Leaves, lines, nodes and codes that nothing leads to any more are used again after a grace period: when
//! every [`Reader`](artery_rcu::Reader) of the FIB's [`Domain`](artery_rcu::Domain) has begun a new turn, or
//! parked, since. The domain knows nothing of readers outside. A program that reads from elsewhere needs a
//! `Reader` in this process that holds a turn for it: let it take its next turn only when every lookup has
//! ended that had begun outside before. Else a lookup that is held up in the middle may read what now belongs
//! to other addresses, and answer a wrong group.
