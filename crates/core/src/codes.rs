//! The codes of verification (`E02…`, `W02…`), binding (`E03…`) and running (`E04…`).

use crate::diagnostic::Code;

macro_rules! codes {
    ($($(#[$doc:meta])* $id:ident = $code:literal: $meaning:literal;)*) => {
        $(
            #[doc = $meaning]
            pub const $id: Code = Code($code);
        )*
        /// Every code of this crate with its meaning, ascending.
        pub const ALL: &[(Code, &str)] = &[$(($id, $meaning)),*];
    };
}

codes! {
    TOO_LARGE = "E0201": "a buffer's size in bytes does not fit 63 bits";
    ARGUMENT = "E0202": "an argument is missing, unknown, or of the wrong kind";
    RANGE = "E0203": "a range reaches outside its buffer";
    DTYPE = "E0204": "an argument's dtype is not one that the task takes";
    NO_SUCH_RANK = "E0205": "a root or peer is not a rank of the communicator";
    RULE = "E0206": "arguments break a rule of the task, such as shapes that must agree";
    GRID = "E0207": "a grid is beyond what a device can launch";
    UNCOVERED = "E0208": "a grid does not cover what the kernel must cover";
    OVERLAP = "E0209": "two ranges of one task or group overlap and one of them is written";
    UNWRITTEN = "E0210": "a range is read that nothing wrote on that rank";
    LIBRARY = "E0211": "no library serves the op as it is used here";
    GROUP = "E0212": "the members of a group cannot be issued together";
    SELF_SEND = "E0213": "a rank sends to or receives from itself outside a group";
    NO_FORM = "E0214": "a kernel has no form for this kind of device";
    DUPLICATE = "E0215": "two buffers or two tasks have one name";
    RANKS = "E0216": "the task graphs are not one for every rank of one world";
    MISMATCH = "E0220": "a collective differs between ranks in a value that must be equal";
    ORDER = "E0221": "ranks call different collectives at the same position";
    UNREACHED = "E0222": "some ranks never reach a collective";
    BOUNDARIES = "E0223": "a collective is grouped differently on different ranks";
    UNMATCHED_SEND = "E0224": "a send has no receive";
    UNMATCHED_RECV = "E0225": "a receive has no send";
    SIDES = "E0226": "a send and its receive differ in count or dtype";
    DEADLOCK = "E0227": "ranks wait for each other in a cycle";
    UNDEFINED = "E0228": "ranks finish only if members of a group progress apart, which is undefined";
    UNCAPTURED = "E0229": "an op may not be captured, and the step is to be";
    SWAP = "E0230": "two buffers cannot be swapped: they are unlike, or one";
    TURNS = "E0231": "the swaps of a step come back to where they began only after too many steps";
    SWAPPED_TRANSFER = "E0232": "a buffer that is swapped is uploaded or downloaded in every step";
    PARTS = "E0233": "the parts of all ranks do not add up to what a collective divides among them";
    PROCESSES = "E0234": "an op reaches its peers' memory, and they may be in other processes";
    REFUSED = "E0301": "a library refused an argument when it saw it bound";
    BIND = "E0302": "a rank could not be bound to its device";
    DEVICES = "E0303": "the devices do not fit the task graphs";
    NO_CONTENTS = "E0304": "a buffer that the host uploads was given no contents";
    BUFFER = "E0305": "a buffer is not there, or has another size or dtype";
    FAILED = "E0401": "a rank failed while it ran";
    TIMED_OUT = "E0402": "a deadline passed";
    INTERRUPTED = "E0403": "the run was stopped from outside";
    ABORTED = "E0404": "the group was aborted before and runs nothing more";
    TRANSFER = "E0405": "a buffer could not be written or read";
    ELSEWHERE = "E0406": "another process of the job failed, or is gone";
    OVERWRITTEN = "W0201": "what a buffer is given in every step is overwritten before anything reads it";
}
