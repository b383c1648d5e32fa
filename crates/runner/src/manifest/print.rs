//! A manifest as text, such that parsing it gives the same manifest: no comments, defaults where they were left out.

use std::fmt::{self, Display, Formatter, Write as _};
use std::time::Duration;

use super::devices::{DeviceSpec, Devices, Which};
use super::model::{
    ArgValue, Args, Body, Buffer, Checkpoint, DataFile, Download, Feed, FeedEnd, Grid, Init, Loop, Manifest,
    OpCall, ParamValue, Part, Pipeline, Plugin, Save, SaveFormat, SaveRanks, Task, Upload, Watch, WatchEvery,
    World,
};
use super::place::Formula;
use super::template::Template;
use crate::expr::Value;
use crate::expr::ast::Kind;

impl Display for Manifest {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str("manifest = 1\n")?;
        section(f, "[pipeline]", &pipeline(&self.pipeline))?;
        for declared in &self.plugins {
            section(f, "[[plugin]]", &plugin(declared))?;
        }
        let params = self.params.iter().map(|param| (param.name.value.as_str(), self::param(&param.value)));
        section(f, "[params]", &params.collect::<Vec<_>>())?;
        section(f, "[world]", &world(&self.world))?;
        if let Some(declared) = &self.checkpoint {
            section(f, "[checkpoint]", &checkpoint(declared))?;
        }
        for communicator in &self.communicators {
            let mut keys = vec![("color", formula(&communicator.color))];
            keys.extend(communicator.key.iter().map(|key| ("key", formula(key))));
            section(f, &format!("[communicator.{}]", communicator.name.value), &keys)?;
        }
        for declared in &self.buffers {
            section(f, &format!("[buffer.{}]", declared.name.value), &buffer(declared))?;
        }
        for (header, tasks) in
            [("[[setup]]", &self.setup), ("[[task]]", &self.tasks), ("[[finish]]", &self.finish)]
        {
            for declared in tasks {
                section(f, header, &task(declared))?;
            }
        }
        self.watches.iter().try_for_each(|declared| section(f, "[[watch]]", &watch(declared)))
    }
}

/// Keys with their values in TOML.
type Keys<'a> = Vec<(&'a str, String)>;

fn section(f: &mut Formatter<'_>, header: &str, keys: &[(&str, String)]) -> fmt::Result {
    write!(f, "\n{header}\n")?;
    keys.iter().try_for_each(|(key, value)| writeln!(f, "{key} = {value}"))
}

fn inline(keys: &[(&str, String)]) -> String {
    let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key} = {value}")).collect();
    if keys.is_empty() { "{}".to_owned() } else { format!("{{ {} }}", keys.join(", ")) }
}

fn array(items: impl IntoIterator<Item = String>) -> String {
    format!("[{}]", items.into_iter().collect::<Vec<_>>().join(", "))
}

/// A basic string.
fn quoted(text: &str) -> String {
    let mut quoted = String::with_capacity(text.len() + 2);
    quoted.push('"');
    for char in text.chars() {
        match char {
            '"' | '\\' => quoted.extend(['\\', char]),
            // Writing to a string does not fail.
            char if char.is_control() => drop(write!(quoted, "\\u{:04X}", u32::from(char))),
            char => quoted.push(char),
        }
    }
    quoted.push('"');
    quoted
}

fn formula(formula: &Formula) -> String {
    match &formula.expr.kind {
        Kind::Literal(value @ (Value::Int(_) | Value::Float(_) | Value::Bool(_))) => value.to_string(),
        _ => quoted(&formula.expr.to_string()),
    }
}

fn formulas(formulas: &[Formula]) -> String {
    array(formulas.iter().map(formula))
}

fn file(template: &Template) -> String {
    quoted(&template.written())
}

fn duration(duration: Duration) -> String {
    quoted(&format!("{}ms", duration.as_millis()))
}

/// A param's value.
pub(crate) fn param(value: &ParamValue) -> String {
    match value {
        ParamValue::Formula(value) => formula(value),
        ParamValue::List(items) => array(items.iter().map(param)),
    }
}

fn pipeline(pipeline: &Pipeline) -> Keys<'_> {
    let mut keys: Keys<'_> = Vec::new();
    keys.extend(pipeline.name.as_ref().map(|name| ("name", quoted(&name.value))));
    match &pipeline.epochs {
        Some(epochs) => keys.push(("epochs", epochs.value.to_string())),
        None => keys.push(("steps", pipeline.steps.value.to_string())),
    }
    if let Some(stop) = &pipeline.stop {
        keys.push(("stop_when", quoted(&stop.text)));
        keys.push(("stop_every", stop.every.value.to_string()));
    }
    keys.push(("step_timeout", duration(pipeline.step_timeout.value)));
    keys.push(("init_timeout", duration(pipeline.init_timeout.value)));
    keys.push(("cuda_graph", pipeline.cuda_graph.value.to_string()));
    keys.extend(pipeline.block.as_ref().map(|block| ("block", formulas(&block.value))));
    keys.push(("seed", pipeline.seed.value.to_string()));
    keys
}

fn world(world: &World) -> Keys<'_> {
    let mut keys = vec![("devices", devices(&world.devices.value))];
    if !world.require.is_empty() {
        keys.push(("require", array(world.require.iter().map(|required| quoted(&required.text)))));
    }
    keys.extend(world.mesh.as_ref().map(|mesh| {
        let axis = |axis: &super::model::Axis| inline(&[(axis.name.value.as_str(), formula(&axis.size))]);
        ("mesh", array(mesh.axes.iter().map(axis)))
    }));
    keys
}

fn plugin(plugin: &Plugin) -> Keys<'_> {
    let mut keys = vec![("path", quoted(&plugin.path.value))];
    keys.extend(plugin.sha256.iter().map(|hash| ("sha256", quoted(&hash.value))));
    keys
}

fn checkpoint(checkpoint: &Checkpoint) -> Keys<'_> {
    vec![
        ("dir", quoted(&checkpoint.dir.value)),
        ("every", checkpoint.every.value.to_string()),
        ("keep", checkpoint.keep.value.to_string()),
    ]
}

fn devices(devices: &Devices) -> String {
    let spec = |spec: &DeviceSpec| match &spec.which {
        Which::All => quoted(spec.backend),
        Which::One(index) => quoted(&format!("{}:{index}", spec.backend)),
        Which::Range(range) => quoted(&format!("{}:{}..{}", spec.backend, range.start, range.end)),
    };
    match devices {
        Devices::Auto => quoted("auto"),
        Devices::Listed(specs) => array(specs.iter().map(spec)),
    }
}

/// What a buffer has of the host: the keys that say so, as an inline table.
pub(crate) fn contents(buffer: &Buffer) -> String {
    let keys = self::buffer(buffer).into_iter().filter(|(key, _)| ["init", "feed", "upload"].contains(key));
    inline(&keys.collect::<Vec<_>>())
}

fn buffer(buffer: &Buffer) -> Keys<'_> {
    let mut keys =
        vec![("dtype", quoted(buffer.dtype.value.name())), ("shape", formulas(&buffer.shape.value))];
    keys.extend(buffer.init.as_ref().map(|init| ("init", inline(&self::init(&init.value)))));
    keys.extend(buffer.feed.as_ref().map(|feed| ("feed", inline(&self::feed(&feed.value)))));
    // A default follows from the other keys, and may not be writable beside them.
    let upload = match buffer.upload.value {
        Upload::First => "first",
        Upload::Every => "every",
        Upload::Never => "never",
    };
    keys.extend(buffer.upload.span.map(|_| ("upload", quoted(upload))));
    let download = match buffer.download.value {
        Download::Never => "never",
        Download::Every => "every",
        Download::Last => "last",
    };
    keys.extend(buffer.download.span.map(|_| ("download", quoted(download))));
    keys.extend(buffer.save.as_ref().map(|save| ("save", self::save(&save.value))));
    keys
}

/// An array in a file, by the key that names the file.
fn data(key: &'static str, data: &DataFile) -> Keys<'static> {
    let mut keys = vec![(key, file(&data.name))];
    match &data.part {
        Part::Whole => {}
        Part::Rows => keys.push(("shard", quoted("rows"))),
        Part::Slice(ranges) => {
            let bound =
                |bound: &Option<Formula>| bound.as_ref().map_or(String::new(), |b| b.expr.to_string());
            let ranges =
                ranges.value.iter().map(|r| quoted(&format!("{}:{}", bound(&r.start), bound(&r.end))));
            keys.push(("slice", array(ranges)));
        }
    }
    if data.convert {
        keys.push(("convert", "true".to_owned()));
    }
    keys
}

fn init(init: &Init) -> Keys<'_> {
    match init {
        Init::Fill(value) => vec![("fill", formula(value))],
        Init::Values(values) => vec![("values", formulas(values))],
        Init::Iota => vec![("iota", "true".to_owned())],
        Init::Uniform { low, high } => {
            vec![("random", inline(&[("low", formula(low)), ("high", formula(high))]))]
        }
        Init::Normal { mean, std } => {
            vec![("random", inline(&[("mean", formula(mean)), ("std", formula(std))]))]
        }
        Init::Npy(file) => data("npy", file),
        Init::Safetensors { file, tensor } => {
            let mut keys = data("safetensors", file);
            keys.insert(1, ("tensor", self::file(tensor)));
            keys
        }
    }
}

fn feed(feed: &Feed) -> Keys<'_> {
    let mut keys = data("npy", &feed.file);
    keys.push(("shuffle", feed.shuffle.to_string()));
    let (end, pad) = match &feed.end {
        FeedEnd::Wrap => ("wrap", None),
        FeedEnd::Stop => ("stop", None),
        FeedEnd::Pad(pad) => ("pad", pad.as_ref()),
    };
    keys.push(("end", quoted(end)));
    keys.extend(pad.map(|pad| ("pad", formula(pad))));
    keys
}

fn save(save: &Save) -> String {
    let format = match save.format {
        SaveFormat::Npy => "npy",
        SaveFormat::Png => "png",
    };
    let mut keys = vec![(format, file(&save.file))];
    match &save.ranks {
        SaveRanks::Each => {}
        SaveRanks::One(rank) => keys.push(("rank", formula(rank))),
        SaveRanks::Gather => keys.push(("gather", "true".to_owned())),
    }
    inline(&keys)
}

fn task(task: &Task) -> Keys<'_> {
    let mut keys: Keys<'_> = Vec::new();
    keys.extend(task.name.as_ref().map(|name| ("name", quoted(&name.value))));
    keys.extend(task.repeat.as_ref().map(|repeat| ("for", self::repeat(repeat))));
    keys.extend(task.when.as_ref().map(|when| ("when", formula(when))));
    match &task.body {
        Body::Kernel(call) => {
            keys.push(("kernel", quoted(&call.kernel.value)));
            keys.push(("args", args(&call.args)));
            keys.push(("grid", grid(&call.grid)));
        }
        Body::Op(call) => keys.extend(op(call)),
        Body::Swap(swap) => keys.push(("swap", array(swap.names.iter().map(|name| quoted(&name.value))))),
        Body::Do(tasks) => keys.push(("do", array(tasks.iter().map(|task| inline(&self::task(task)))))),
        Body::Group(group) => {
            let entries = group.entries.iter().map(|entry| {
                let mut keys: Keys<'_> = Vec::new();
                keys.extend(entry.repeat.as_ref().map(|repeat| ("for", self::repeat(repeat))));
                keys.extend(entry.when.as_ref().map(|when| ("when", formula(when))));
                keys.extend(op(&entry.call));
                inline(&keys)
            });
            keys.push(("group", array(entries)));
            keys.extend(group.library.as_ref().map(|library| ("library", quoted(&library.value))));
        }
    }
    keys
}

fn op(call: &OpCall) -> Keys<'_> {
    let mut keys = vec![("op", quoted(&call.op.value)), ("args", args(&call.args))];
    keys.extend(call.library.as_ref().map(|library| ("library", quoted(&library.value))));
    keys
}

fn repeat(repeat: &Loop) -> String {
    let start = repeat.start.as_ref().map(|start| format!("{}..", start.expr)).unwrap_or_default();
    quoted(&format!("{} in {start}{}", repeat.variable.value, repeat.end.expr))
}

fn args(args: &Args) -> String {
    inline(&args.items.iter().map(|arg| (arg.name.value.as_str(), self::arg(&arg.value))).collect::<Vec<_>>())
}

fn arg(value: &ArgValue) -> String {
    match value {
        ArgValue::Literal(value, _) => value.to_string(),
        // As written: what it is, its parameter says.
        ArgValue::Text(text) => quoted(&text.value),
        ArgValue::List(items, _) => array(items.iter().map(arg)),
    }
}

fn grid(grid: &Grid) -> String {
    let mut keys = vec![("threads", formulas(&grid.threads.value))];
    keys.extend(grid.block.as_ref().map(|block| ("block", formulas(&block.value))));
    inline(&keys)
}

fn watch(watch: &Watch) -> Keys<'_> {
    let every = match watch.every.value {
        WatchEvery::End => quoted("end"),
        WatchEvery::Steps(steps) => steps.to_string(),
    };
    let mut keys =
        vec![("name", quoted(&watch.name.value)), ("value", formula(&watch.value)), ("every", every)];
    keys.extend(watch.rank.as_ref().map(|rank| ("rank", formula(rank))));
    keys
}
