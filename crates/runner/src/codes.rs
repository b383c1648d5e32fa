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
    NOT_UTF8 = "E0001", "The file is not UTF-8 text.";
    TOO_LARGE = "E0002", "The file is larger than a manifest may be.";
    TOML_SYNTAX = "E0003", "The text is not TOML.";
    DUPLICATE_KEY = "E0004", "A key or a table is written twice.";
    MORE_ERRORS = "E0005", "There are more errors than are listed.";

    VERSION = "E0101", "The manifest's version is missing, or is one that this build does not read.";
    UNKNOWN_KEY = "E0102", "The language has no such key.";
    MISPLACED_KEY = "E0103", "The key belongs in another table.";
    MISSING_KEY = "E0104", "A key that this table needs is missing.";
    WRONG_TYPE = "E0105", "The value has another type than its key takes.";
    BAD_VALUE = "E0106", "The value has the right type and is not one of those allowed.";
    CONFLICTING_KEYS = "E0107", "Keys that exclude each other stand together.";
    BAD_NAME = "E0109", "The name is not an identifier, or is reserved.";
    DUPLICATE_NAME = "E0110", "Two things have one name.";
    CYCLE = "E0111", "Definitions need each other in a circle.";

    EXPR_SYNTAX = "E0120", "The text is not an expression.";
    UNKNOWN_NAME = "E0121", "Nothing has this name.";
    WRONG_NAME = "E0122", "The name stands for another kind of thing than is needed here.";
    EXPR_TYPE = "E0123", "An operator or a function meets a value of a type that it does not take.";
    DIVISION_BY_ZERO = "E0124", "A division by zero.";
    OVERFLOW = "E0125", "An integer does not fit in 64 bits.";
    NOT_FINITE = "E0126", "A number is infinite or not a number.";
    ARITY = "E0127", "A function is given too few or too many arguments.";
    OUT_OF_RANGE = "E0128", "An index or an argument is out of range.";
    EXPR_LIMIT = "E0129", "The expression is too long or too deeply nested.";

    UNKNOWN_KERNEL = "E0140", "There is no kernel of this name.";
    UNKNOWN_OP = "E0141", "There is no op of this name.";
    UNKNOWN_ARGUMENT = "E0142", "The kernel or the op has no argument of this name.";
    ARGUMENT = "E0143", "An argument is of another kind than its parameter takes.";
    RANGE = "E0144", "A range reaches outside an axis, or has too many axes.";
    NOT_CONTIGUOUS = "E0145", "A range is not contiguous in memory.";
    SHAPE = "E0146", "A length of a buffer or a grid is negative.";
    SAVE = "E0147", "A file to be saved would be written twice, or by a rank that lacks the buffer.";
    WATCH = "E0148", "A watched value cannot be read where it is to be read.";
    WORLD = "E0149", "The world or a communicator cannot be made.";
    LOOP = "E0150", "A loop has more rounds than a group may have.";
    REQUIRE = "E0151", "A condition that the manifest requires does not hold.";
    MESH = "E0152", "The axes of the mesh do not make the world.";
    COMMUNICATOR_NOT_YET = "E0153", "A communicator is needed before it is made.";
    UNROLLED = "E0154", "The loops come to more tasks, or to more ops in groups, than a rank may have.";
    STOP = "E0157", "A condition to stop on cannot be judged, or ranks could judge it differently.";
    EPOCHS = "E0158", "The number of steps cannot be told from the feeds.";
    FEED = "E0159", "A feed cannot fill a batch.";
    CHECKPOINT_PLACE = "E0164", "A file would be saved where the checkpoints are.";
    NO_CHECKPOINTS = "E0165", "The run is to be resumed, and the manifest has no checkpoints.";

    PLUGIN_FILE = "E0170", "A plugin's file is missing, or is no plugin for this machine.";
    PLUGIN_HASH = "E0171", "A plugin's file is not the one that is pinned.";
    PLUGIN_OPEN = "E0172", "The system cannot open a plugin's file.";
    PLUGIN_ABI = "E0173", "A plugin and this squall do not fit.";
    PLUGIN_TABLES = "E0174", "What a plugin brings is not described as plugins are.";
    PLUGIN_INIT = "E0175", "A plugin says that it cannot work here.";
    PLUGIN_CONFLICT = "E0176", "A plugin brings what is there already.";
    PLUGIN_TWICE = "E0177", "A manifest names one plugin twice.";

    DATA = "E0310", "A data file is missing, or is not what the buffer needs.";
    CONTENTS = "E0311", "A buffer cannot hold the values that it is to begin with.";
    OUTPUT = "E0312", "An output cannot be written where it is to be.";
    DEVICES = "E0313", "The devices are not what the job needs.";
    DIFFERS = "E0314", "A task writes something else than on the host.";
    CHECKPOINTS_THERE = "E0315", "There are checkpoints already, and the run is not to go on from them.";
    OTHER_JOB = "E0316", "A checkpoint is of another job than the one that is to go on from it.";
    CHECKPOINT = "E0317", "A checkpoint could not be written or read while the job ran.";
    CHECKPOINT_DIR = "E0318", "The folder of the checkpoints cannot be used.";

    MORE_WARNINGS = "W0001", "There are more warnings than are listed.";
    UNUSED_BUFFER = "W0101", "A buffer is declared and no task names it.";
    UNUSED_PARAM = "W0102", "A param is declared and nothing uses it.";
    UNUSED_COMMUNICATOR = "W0103", "A communicator is declared and nothing uses it.";
    DROPPED_ROWS = "W0104", "Rows of a file that a feed or a split of the file leaves out.";
    UNEQUAL_FEEDS = "W0105", "Two feeds come to the end of an epoch at different steps.";
    REPEATED_ROWS = "W0106", "A batch is longer than the rows that it is filled with.";
    UNPROVEN_SAVE = "W0107", "One rank's buffer is saved, and the other ranks' may differ.";
    INEXACT_QUOTIENT = "W0108", "A quotient of integers is rounded down where a floating-point number is needed.";
}

/// The meaning of a code of this table.
pub fn meaning(code: &str) -> Option<&'static str> {
    ALL.iter().find(|(known, _)| known.0 == code).map(|(_, meaning)| *meaning)
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
