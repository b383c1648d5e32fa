//! The codes of what the runner itself diagnoses: the file, the manifest, its expressions.
//! A code never changes its meaning; a retired one is not used again.

use squall_core::Code;

macro_rules! codes {
    ($($name:ident = $code:literal, $meaning:literal;)*) => {
        $(#[doc = $meaning] pub const $name: Code = Code($code);)*

        /// Every code of this table with its meaning, in order.
        pub const ALL: &[(Code, &str)] = &[$(($name, $meaning)),*];
    };
}

codes! {
    NOT_UTF8 = "E0001", "the file is not UTF-8 text";
    TOO_LARGE = "E0002", "the file is larger than a manifest may be";
    TOML_SYNTAX = "E0003", "the text is not TOML";
    DUPLICATE_KEY = "E0004", "a key or a table is written twice";
    MORE_ERRORS = "E0005", "there are more errors than are listed";

    VERSION = "E0101", "the manifest's version is missing, or is one that this build does not read";
    UNKNOWN_KEY = "E0102", "the language has no such key";
    MISPLACED_KEY = "E0103", "the key belongs in another table";
    MISSING_KEY = "E0104", "a key that this table needs is missing";
    WRONG_TYPE = "E0105", "the value has another type than its key takes";
    BAD_VALUE = "E0106", "the value has the right type and is not one of those allowed";
    CONFLICTING_KEYS = "E0107", "keys that exclude each other stand together";
    BAD_NAME = "E0109", "the name is not an identifier, or is reserved";
    DUPLICATE_NAME = "E0110", "two things have one name";
    CYCLE = "E0111", "definitions need each other in a circle";

    EXPR_SYNTAX = "E0120", "the text is not an expression";
    UNKNOWN_NAME = "E0121", "nothing has this name";
    WRONG_NAME = "E0122", "the name stands for another kind of thing than is needed here";
    EXPR_TYPE = "E0123", "an operator or a function meets a value of a type that it does not take";
    DIVISION_BY_ZERO = "E0124", "a division by zero";
    OVERFLOW = "E0125", "an integer does not fit in 64 bits";
    NOT_FINITE = "E0126", "a number is infinite or not a number";
    ARITY = "E0127", "a function is given too few or too many arguments";
    OUT_OF_RANGE = "E0128", "an index or an argument is out of range";
    EXPR_LIMIT = "E0129", "the expression is too long or too deeply nested";

    UNKNOWN_KERNEL = "E0140", "there is no kernel of this name";
    UNKNOWN_OP = "E0141", "there is no op of this name";
    UNKNOWN_ARGUMENT = "E0142", "the kernel or the op has no argument of this name";
    ARGUMENT = "E0143", "an argument is of another kind than its parameter takes";
    RANGE = "E0144", "a range reaches outside an axis, or has too many axes";
    NOT_CONTIGUOUS = "E0145", "a range is not contiguous in memory";
    SHAPE = "E0146", "a length of a buffer or a grid is negative";
    SAVE = "E0147", "a file to be saved would be written twice, or by a rank that lacks the buffer";
    WATCH = "E0148", "a watched value cannot be read where it is to be read";
    WORLD = "E0149", "the world or a communicator cannot be made";
    LOOP = "E0150", "a loop has more rounds than a group may have";
    REQUIRE = "E0151", "a condition that the manifest requires does not hold";
    MESH = "E0152", "the axes of the mesh do not make the world";
    COMMUNICATOR_NOT_YET = "E0153", "a communicator is needed before it is made";
    UNROLLED = "E0154", "the loops come to more tasks, or to more ops in groups, than a rank may have";
    STOP = "E0157", "a condition to stop on cannot be judged, or ranks could judge it differently";
    EPOCHS = "E0158", "the number of steps cannot be told from the feeds";
    FEED = "E0159", "a feed cannot fill a batch";
    CHECKPOINT_PLACE = "E0164", "a file would be saved where the checkpoints are";
    NO_CHECKPOINTS = "E0165", "the run is to be resumed, and the manifest has no checkpoints";

    IDENTITY = "E0166", "which of a job's processes this is cannot be told, or where they meet";
    MEETING = "E0167", "the processes of a job did not meet";
    PROCESSES = "E0168", "the manifest asks for what a job of several processes cannot do";

    PLUGIN_FILE = "E0170", "a plugin's file is missing, or is no plugin for this machine";
    PLUGIN_HASH = "E0171", "a plugin's file is not the one that is pinned";
    PLUGIN_OPEN = "E0172", "the system cannot open a plugin's file";
    PLUGIN_ABI = "E0173", "a plugin and this squall do not fit";
    PLUGIN_TABLES = "E0174", "what a plugin brings is not described as plugins are";
    PLUGIN_INIT = "E0175", "a plugin says that it cannot work here";
    PLUGIN_CONFLICT = "E0176", "a plugin brings what is there already";
    PLUGIN_TWICE = "E0177", "a manifest names one plugin twice";

    DATA = "E0310", "a data file is missing, or is not what the buffer needs";
    CONTENTS = "E0311", "a buffer cannot hold the values that it is to begin with";
    OUTPUT = "E0312", "an output cannot be written where it is to be";
    DEVICES = "E0313", "the devices are not what the job needs";
    DIFFERS = "E0314", "a task writes something else than on the host";
    CHECKPOINTS_THERE = "E0315", "there are checkpoints already, and the run is not to go on from them";
    OTHER_JOB = "E0316", "a checkpoint is of another job than the one that is to go on from it";
    CHECKPOINT = "E0317", "a checkpoint could not be written or read while the job ran";
    CHECKPOINT_DIR = "E0318", "the folder of the checkpoints cannot be used";

    MORE_WARNINGS = "W0001", "there are more warnings than are listed";
    UNUSED_BUFFER = "W0101", "a buffer is declared and no task names it";
    UNUSED_PARAM = "W0102", "a param is declared and nothing uses it";
    UNUSED_COMMUNICATOR = "W0103", "a communicator is declared and nothing uses it";
    DROPPED_ROWS = "W0104", "rows of a file that a feed or a split of the file leaves out";
    UNEQUAL_FEEDS = "W0105", "two feeds come to the end of an epoch at different steps";
    REPEATED_ROWS = "W0106", "a batch is longer than the rows that it is filled with";
    UNPROVEN_SAVE = "W0107", "one rank's buffer is saved, and the other ranks' may differ";
    INEXACT_QUOTIENT = "W0108", "a quotient of integers is rounded down where a floating-point number is needed";
    UNREAD_DOWNLOAD = "W0109", "a buffer comes back from the device, and nothing reads it";
}

#[cfg(test)]
mod tests {
    use super::ALL;

    #[test]
    fn codes_are_sorted_within_each_letter_and_unique() {
        for letter in ['E', 'W'] {
            let of_letter: Vec<_> = ALL.iter().filter(|(code, _)| code.0.starts_with(letter)).collect();
            assert!(of_letter.is_sorted_by(|a, b| a.0 < b.0), "{letter}");
        }
    }
}
