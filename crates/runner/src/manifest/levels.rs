//! The keys of the language: which table takes which, and what people write instead.

use squall_core::{Diagnostic, Label, Span};

use crate::codes;
use crate::suggest::nearest;

/// A kind of table.
#[derive(Debug)]
pub(crate) struct Level {
    /// As messages name it.
    pub(crate) title: &'static str,
    /// The keys it takes.
    pub(crate) keys: &'static [&'static str],
    /// Keys of other systems, with what to write instead.
    pub(crate) habits: &'static [(&'static str, &'static str)],
}

pub(crate) const ROOT: Level = Level {
    title: "the top level",
    keys: &[
        "manifest",
        "pipeline",
        "plugin",
        "params",
        "world",
        "communicator",
        "buffer",
        "setup",
        "task",
        "finish",
        "watch",
        "checkpoint",
    ],
    habits: &[
        ("version", "the language's version is written `manifest = 1`"),
        ("schema", "the language's version is written `manifest = 1`"),
        ("param", "write `[params]`"),
        ("parameters", "write `[params]`"),
        ("vars", "write `[params]`"),
        ("variables", "write `[params]`"),
        ("step", "a step's tasks are written `[[task]]`"),
        ("kernel", "a kernel runs in a task: `[[task]]` with `kernel = \"…\"`"),
        ("comm", "write `[communicator.NAME]`"),
        ("plugins", "write `[[plugin]]`, once for each"),
    ],
};

pub(crate) const PLUGIN: Level = Level {
    title: "`[[plugin]]`",
    keys: &["path", "sha256"],
    habits: &[
        ("file", "write `path`"),
        ("library", "write `path`"),
        ("name", "a plugin says its own name; write `path`"),
        ("hash", "write `sha256`"),
        ("checksum", "write `sha256`"),
    ],
};

pub(crate) const PIPELINE: Level = Level {
    title: "`[pipeline]`",
    keys: &[
        "name",
        "steps",
        "epochs",
        "stop_when",
        "stop_every",
        "step_timeout",
        "init_timeout",
        "cuda_graph",
        "block",
        "seed",
    ],
    habits: &[
        ("iterations", "write `steps`"),
        ("iters", "write `steps`"),
        ("num_steps", "write `steps`"),
        ("timeout", "write `step_timeout` or `init_timeout`"),
        ("graph", "write `cuda_graph`"),
        ("block_size", "write `block`"),
        ("until", "write `stop_when`"),
        ("tolerance", "write `stop_when`"),
    ],
};

pub(crate) const WORLD: Level = Level {
    title: "`[world]`",
    keys: &["devices", "require", "mesh"],
    habits: &[
        ("size", "the world has a rank for each of `devices`: `devices = \"host:0..4\"`"),
        ("world_size", "the world has a rank for each of `devices`: `devices = \"host:0..4\"`"),
        ("ranks", "the world has a rank for each of `devices`: `devices = \"host:0..4\"`"),
        ("gpus", "write `devices = \"cuda:0..2\"`"),
        ("backend", "the devices name it: `devices = \"cuda\"`"),
        ("requires", "write `require`"),
        ("assert", "write `require`"),
        ("grid", "write `mesh = [{ y = 2 }, { x = 2 }]`"),
        ("topology", "write `mesh = [{ y = 2 }, { x = 2 }]`"),
        ("axes", "write `mesh = [{ y = 2 }, { x = 2 }]`"),
    ],
};

pub(crate) const COMMUNICATOR: Level = Level {
    title: "`[communicator.NAME]`",
    keys: &["color", "key"],
    habits: &[
        ("split", "write `color`: ranks of one color form one communicator"),
        ("group", "write `color`: ranks of one color form one communicator"),
        ("ranks", "write `color`: ranks of one color form one communicator"),
    ],
};

pub(crate) const BUFFER: Level = Level {
    title: "`[buffer.NAME]`",
    keys: &["dtype", "shape", "init", "feed", "upload", "download", "save"],
    habits: &[
        ("type", "write `dtype`"),
        ("len", "write `shape = [\"n\"]`"),
        ("length", "write `shape = [\"n\"]`"),
        ("size", "write `shape = [\"n\"]`"),
        ("count", "write `shape = [\"n\"]`"),
        ("dims", "write `shape = [\"n\"]`"),
        ("data", "write `init = { values = [1, 2] }`, or `feed` for a new part each step"),
        ("value", "write `init = { fill = 0.0 }`"),
        ("initial", "write `init = { fill = 0.0 }`"),
        ("zero", "write `init = { fill = 0.0 }`"),
        ("output", "write `save`"),
    ],
};

pub(crate) const INIT: Level = Level {
    title: "`init`",
    keys: &["fill", "values", "iota", "random", "npy", "safetensors", "tensor", "shard", "slice", "convert"],
    habits: &[
        ("value", "write `fill` for one number or `values` for a list"),
        ("zeros", "write `fill = 0.0`"),
        ("ones", "write `fill = 1.0`"),
        ("arange", "write `iota = true`"),
        ("file", "write `npy` or `safetensors`"),
        ("uniform", "write `random = { low = -1, high = 1 }`"),
        ("normal", "write `random = { mean = 0, std = 1 }`"),
    ],
};

pub(crate) const RANDOM: Level = Level {
    title: "`random`",
    keys: &["low", "high", "mean", "std"],
    habits: &[
        ("min", "write `low`"),
        ("max", "write `high`"),
        ("sigma", "write `std`"),
        ("stddev", "write `std`"),
        ("mu", "write `mean`"),
    ],
};

pub(crate) const FEED: Level = Level {
    title: "`feed`",
    keys: &["npy", "shard", "slice", "convert", "shuffle", "end", "pad"],
    habits: &[
        ("batch", "the first axis of the buffer's shape is the batch"),
        ("batch_size", "the first axis of the buffer's shape is the batch"),
        ("file", "write `npy`"),
        ("drop_last", "write `end = \"stop\"`"),
    ],
};

pub(crate) const SAVE: Level = Level {
    title: "`save`",
    keys: &["npy", "png", "rank", "gather"],
    habits: &[("file", "write `npy` or `png`"), ("path", "write `npy` or `png`"), ("root", "write `rank`")],
};

/// The keys of a task.
pub(crate) const TASK_KEYS: &[&str] =
    &["name", "kernel", "op", "group", "swap", "do", "for", "args", "grid", "library", "when"];

pub(crate) const TASK: Level = Level { title: "a task", keys: TASK_KEYS, habits: TASK_HABITS };

pub(crate) const ENTRY: Level =
    Level { title: "an entry of a group", keys: &["for", "op", "args", "when"], habits: TASK_HABITS };

const TASK_HABITS: &[(&str, &str)] = &[
    ("if", "write `when`"),
    ("condition", "write `when`"),
    ("repeat", "write `for = \"m in 4\"`"),
    ("loop", "write `for = \"m in 4\"`"),
    ("body", "write `do`"),
    ("tasks", "write `do`"),
    ("needs", "tasks run in file order"),
    ("depends_on", "tasks run in file order"),
    ("depends", "tasks run in file order"),
    ("after", "tasks run in file order"),
    ("before", "tasks run in file order"),
    ("comm", "an argument names the communicator: `args = { comm = \"row\" }`"),
    ("communicator", "an argument names the communicator: `args = { comm = \"row\" }`"),
    ("arguments", "write `args`"),
    ("inputs", "write `args`"),
    ("outputs", "write `args`"),
    ("collective", "write `op`"),
    ("type", "write `kernel`, `op` or `group`"),
    ("rename", "write `swap`"),
    ("backend", "write `library`"),
    ("peer", "arguments stand in `args`"),
    ("root", "arguments stand in `args`"),
    ("reduce", "arguments stand in `args`"),
    ("buffer", "arguments stand in `args`"),
    ("send", "arguments stand in `args`"),
    ("recv", "arguments stand in `args`"),
];

pub(crate) const GRID: Level = Level {
    title: "`grid`",
    keys: &["threads", "block"],
    habits: &[
        ("blocks", "write `threads`: how many there is work for; the number of blocks follows"),
        ("grid", "write `threads`: how many there is work for; the number of blocks follows"),
        ("size", "write `threads`"),
        ("n", "write `threads`"),
        ("block_size", "write `block`"),
    ],
};

pub(crate) const WATCH: Level = Level {
    title: "`[[watch]]`",
    keys: &["name", "value", "every", "rank"],
    habits: &[("buffer", "write `value`"), ("interval", "write `every`"), ("when", "write `every`")],
};

pub(crate) const CHECKPOINT: Level = Level {
    title: "`[checkpoint]`",
    keys: &["dir", "every", "keep"],
    habits: &[
        ("path", "write `dir`"),
        ("folder", "write `dir`"),
        ("interval", "write `every`"),
        ("steps", "write `every`: steps from one checkpoint to the next"),
        ("max_to_keep", "write `keep`"),
        ("resume", "resuming is asked for on the command line: `squall run M.toml --resume`"),
    ],
};

const LEVELS: &[&Level] = &[
    &ROOT,
    &PIPELINE,
    &PLUGIN,
    &WORLD,
    &COMMUNICATOR,
    &BUFFER,
    &INIT,
    &RANDOM,
    &FEED,
    &SAVE,
    &TASK,
    &ENTRY,
    &GRID,
    &WATCH,
    &CHECKPOINT,
];

/// A key of the language.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Key {
    /// The table it belongs in, as messages name it: `` `[pipeline]` ``, `a task`.
    pub table: &'static str,
    /// The key.
    pub name: &'static str,
}

/// Every key of the language, table by table: what a reference of it must name.
pub fn keys() -> impl Iterator<Item = Key> {
    LEVELS.iter().flat_map(|level| level.keys.iter().map(|name| Key { table: level.title, name }))
}

impl Level {
    /// What to say of a key that this table does not take.
    pub(crate) fn unknown_key(&self, key: &str, span: Span) -> Diagnostic {
        let habit = self.habit(key).map(str::to_owned);
        let homes = self.homes(key);
        if habit.is_none() && !homes.is_empty() {
            let message = format!("`{key}` is not a key of {}", self.title);
            return Diagnostic::error(codes::MISPLACED_KEY, message, Label::at(span, "at the wrong level"))
                .with_help(format!("`{key}` belongs in {}", in_words(&homes)));
        }
        let message = format!("{} has no key `{key}`", self.title);
        let help = habit.unwrap_or_else(|| match nearest(key, self.keys.iter().copied()) {
            Some(near) => format!("did you mean `{near}`?"),
            None => format!("its keys are {}", self.keys.join(", ")),
        });
        Diagnostic::error(codes::UNKNOWN_KEY, message, Label::at(span, "unknown")).with_help(help)
    }

    /// Whether what is said of an unknown key is to write `missing`, or to move it there.
    pub(crate) fn suggests(&self, unknown: &str, missing: &str) -> bool {
        if let Some(help) = self.habit(unknown) {
            let key = help.split('`').skip(1).step_by(2).filter_map(|code| code.split(' ').next());
            return key.into_iter().any(|key| key == missing);
        }
        match self.homes(unknown).as_slice() {
            [] => nearest(unknown, self.keys.iter().copied()) == Some(missing),
            homes => homes.iter().any(|home| home.trim_matches('`') == missing),
        }
    }

    fn habit(&self, key: &str) -> Option<&'static str> {
        self.habits.iter().find(|(habit, _)| *habit == key).map(|(_, help)| *help)
    }

    /// The other kinds of tables that take a key.
    fn homes(&self, key: &str) -> Vec<&'static str> {
        let others = LEVELS.iter().filter(|level| level.title != self.title);
        others.filter(|level| level.keys.contains(&key)).map(|l| l.title).collect()
    }
}

/// `a`, `a or b`, `a, b or c`.
fn in_words(words: &[&str]) -> String {
    match words {
        [before @ .., last] if !before.is_empty() => format!("{} or {last}", before.join(", ")),
        _ => words.concat(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_key_is_listed_twice_in_one_table() {
        for level in LEVELS {
            let mut keys: Vec<_> = level.keys.iter().collect();
            keys.extend(level.habits.iter().map(|(key, _)| key));
            let listed = keys.len();
            keys.sort();
            keys.dedup();
            assert_eq!(keys.len(), listed, "{}", level.title);
        }
    }
}
