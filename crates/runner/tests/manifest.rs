//! What a manifest without errors becomes.

#![allow(clippy::unwrap_used, reason = "helpers of tests panic as tests do")]

use std::time::Duration;

use squall_core::{DType, Span};
use squall_runner::expr::{Env, Lookup, NoEnv, Value};
use squall_runner::manifest::devices::{DeviceSpec, Devices, Which};
use squall_runner::manifest::model::*;
use squall_runner::manifest::names::NameKind;
use squall_runner::manifest::{Manifest, parse};

const VALID: &str = include_str!("diagnostics/valid.toml");

fn read(text: &str) -> Manifest {
    parse(text).unwrap_or_else(|errors| panic!("{errors:#?}")).0
}

fn buffer<'m>(manifest: &'m Manifest, name: &str) -> &'m Buffer {
    manifest.buffers.iter().find(|buffer| buffer.name.value == name).unwrap()
}

/// The part of the valid manifest that a place covers.
fn at(span: impl Into<Option<Span>>) -> &'static str {
    let span = span.into().unwrap();
    &VALID[span.start as usize..span.end as usize]
}

#[test]
fn what_is_left_out_has_its_default_and_no_place() {
    let manifest = read("manifest = 1\n[buffer.u]\ndtype = \"f32\"\nshape = []\n");
    let pipeline = &manifest.pipeline;
    assert!(pipeline.name.is_none() && pipeline.block.is_none());
    assert_eq!((pipeline.steps.value, pipeline.steps.span), (1, None));
    assert_eq!(pipeline.step_timeout.value, Duration::from_secs(60));
    assert_eq!(pipeline.init_timeout.value, Duration::from_secs(60));
    assert_eq!((pipeline.cuda_graph.value, pipeline.seed.value), (false, 0));
    assert_eq!(manifest.world.devices.value, Devices::Auto);
    let u = buffer(&manifest, "u");
    assert_eq!((u.upload.value, u.download.value), (Upload::First, Download::Never));
    assert!(u.init.is_none() && u.feed.is_none() && u.save.is_none());
}

#[test]
fn the_pipeline_and_the_world_are_read() {
    let manifest = read(VALID);
    let pipeline = &manifest.pipeline;
    assert_eq!(pipeline.name.as_ref().unwrap().value, "average-gradients");
    assert_eq!((pipeline.steps.value, at(pipeline.steps.span)), (3, "3"));
    assert_eq!(
        (pipeline.step_timeout.value, at(pipeline.step_timeout.span)),
        (Duration::from_millis(500), "\"500ms\"")
    );
    assert_eq!(pipeline.init_timeout.value, Duration::from_secs(120));
    assert_eq!((pipeline.cuda_graph.value, pipeline.seed.value), (true, 7));
    assert_eq!(pipeline.block.as_ref().unwrap().value.len(), 2);
    let host = DeviceSpec { backend: "host", which: Which::Range(0..2) };
    let cuda = DeviceSpec { backend: "cuda", which: Which::One(1) };
    assert_eq!(manifest.world.devices.value, Devices::Listed(vec![cuda, host]));
    let row = &manifest.communicators[0];
    assert_eq!((row.name.value.as_str(), at(row.name.span)), ("row", "row"));
    assert_eq!(at(row.key.as_ref().unwrap().place.span()), "\"-rank\"");
}

#[test]
fn params_keep_the_files_order_and_evaluate() {
    struct World;
    impl Env for World {
        fn name(&self, name: &str) -> Lookup<Value> {
            if name == "n" { Lookup::Found(Value::Int(4096)) } else { Lookup::Unknown }
        }
    }
    let manifest = read(VALID);
    let names: Vec<_> = manifest.params.iter().map(|param| param.name.value.as_str()).collect();
    assert_eq!(names, ["n", "big", "rows", "first", "exact", "counts"]);
    let value = |at: usize| manifest.params[at].value.eval(&World).unwrap().to_string();
    assert_eq!((value(0), value(1), value(4)), ("4096".into(), "67108864".into(), "true".into()));
    assert_eq!(value(5), "[[3, 5], [2048, 0]]");
    let unknown = manifest.params[5].value.eval(&NoEnv).unwrap_err();
    assert_eq!(at(unknown.span), "n");
    assert_eq!(unknown.diagnostic().unwrap().code, squall_runner::codes::UNKNOWN_NAME);
}

#[test]
fn buffers_are_read() {
    let manifest = read(VALID);
    let grads = buffer(&manifest, "grads");
    assert_eq!((grads.dtype.value, at(grads.dtype.span)), (DType::F32, "\"f32\""));
    assert_eq!((grads.upload.value, grads.download.value), (Upload::Every, Download::Last));
    assert!(matches!(grads.init.as_ref().unwrap().value, Init::Fill(_)));
    let save = |name| buffer(&manifest, name).save.as_ref().unwrap().value.clone();
    assert!(matches!((save("grads").format, save("grads").ranks), (SaveFormat::Npy, SaveRanks::Each)));
    assert_eq!(save("grads").file.for_rank(3), "out/grads-3.npy");
    assert!(matches!((save("u").format, save("u").ranks), (SaveFormat::Png, SaveRanks::Gather)));
    assert!(matches!(save("w").ranks, SaveRanks::One(_)));
    let init = |name| buffer(&manifest, name).init.as_ref().unwrap().value.clone();
    assert!(matches!(init("u"), Init::Uniform { .. }));
    assert!(matches!(init("u_new"), Init::Normal { .. }));
    assert!(
        matches!(init("w"), Init::Safetensors { file, tensor } if matches!(file.part, Part::Rows) && tensor.for_rank(0) == "w")
    );
    assert!(matches!(init("b"), Init::Values(values) if values.len() == 3));
    assert!(matches!(init("index"), Init::Iota));
    assert!(
        matches!(init("table"), Init::Npy(file) if matches!(file.part, Part::Whole) && file.name.depends_on_rank())
    );
    let feed = &buffer(&manifest, "x").feed.as_ref().unwrap().value;
    assert!(matches!(feed.file.part, Part::Rows) && matches!(feed.end, FeedEnd::Wrap) && !feed.shuffle);
    assert!(buffer(&manifest, "index").shape.value.is_empty());
}

#[test]
fn tasks_are_read_in_file_order() {
    let manifest = read(VALID);
    assert_eq!((manifest.setup.len(), manifest.tasks.len(), manifest.finish.len()), (1, 6, 1));
    assert_eq!(at(manifest.tasks[1].span), "[[task]]");
    let Body::Op(sum) = &manifest.tasks[0].body else { panic!("an op") };
    assert_eq!((sum.op.value.as_str(), sum.library.as_ref().unwrap().value.as_str()), ("all_reduce", "p2p"));
    let order: Vec<_> = sum.args.items.iter().map(|arg| arg.name.value.as_str()).collect();
    assert_eq!(order, ["buffer", "reduce", "comm"]);
    let Body::Kernel(scale) = &manifest.tasks[1].body else { panic!("a kernel") };
    assert_eq!((scale.grid.threads.value.len(), scale.grid.block.as_ref().unwrap().value.len()), (2, 1));
    let arg = |name| &scale.args.get(name).unwrap().value;
    assert!(matches!(arg("factor"), ArgValue::Literal(Value::Float(factor), _) if *factor == 2.0));
    assert!(matches!(arg("inverse"), ArgValue::Literal(Value::Bool(true), _)));
    assert!(matches!(arg("order"), ArgValue::List(items, _) if matches!(&items[2], ArgValue::List(..))));
    assert_eq!(at(arg("order").span()), "[1, 0, [2, \"n\"]]");
    assert_eq!(arg("factor").formula().unwrap().unwrap().eval_f64(&NoEnv), Ok(2.0));
    let Body::Kernel(copy) = &manifest.tasks[2].body else { panic!("a kernel") };
    assert!(copy.grid.block.is_none() && manifest.tasks[2].when.is_some());
    let ArgValue::Text(src) = &copy.args.get("src").unwrap().value else { panic!("a string") };
    let range = src.buffer().unwrap();
    assert_eq!((&*range.name, range.index.len(), at(src.place.part(&range.name_range))), ("x", 2, "x"));
}

#[test]
fn a_swap_has_two_names_and_their_places() {
    let text = "manifest = 1\n[buffer.u]\ndtype = \"f32\"\nshape = [1]\n[buffer.v]\ndtype = \"f32\"\nshape = [1]\n\
                [[task]]\nswap = [\"u\", 'v']\n";
    let (manifest, warnings) = parse(text).unwrap();
    assert!(warnings.is_empty(), "a buffer that only a swap names is used: {warnings:?}");
    let Body::Swap(swap) = &manifest.tasks[0].body else { panic!("a swap") };
    let at = |span: Span| &text[span.start as usize..span.end as usize];
    assert_eq!(at(swap.span), "[\"u\", 'v']");
    let names = swap.names.each_ref().map(|name| (name.value.as_str(), at(name.span.unwrap())));
    assert_eq!(names, [("u", "u"), ("v", "v")]);
}

#[test]
fn groups_have_entries_with_loops() {
    let manifest = read(VALID);
    let Body::Group(group) = &manifest.tasks[3].body else { panic!("a group") };
    assert_eq!(group.entries.len(), 4);
    let first = &group.entries[0];
    let repeat = first.repeat.as_ref().unwrap();
    assert_eq!((repeat.variable.value.as_str(), at(repeat.variable.span)), ("peer", "peer"));
    assert!(repeat.start.is_none() && first.when.is_some());
    assert_eq!(at(repeat.end.place.part(&repeat.end.expr.range)), "world");
    assert!(group.entries[1].repeat.as_ref().unwrap().start.is_some());
    assert!(group.entries[2].repeat.is_none());
    assert!(matches!(&manifest.tasks[4].body, Body::Group(empty) if empty.entries.is_empty()));
}

#[test]
fn loops_hold_tasks_and_loops() {
    let manifest = read(VALID);
    let micro = &manifest.tasks[5];
    let repeat = micro.repeat.as_ref().unwrap();
    assert_eq!(
        (at(repeat.variable.span), at(repeat.end.place.part(&repeat.end.expr.range))),
        ("m", "dp.size")
    );
    assert_eq!(at(micro.when.as_ref().unwrap().place.span()), "\"m != dp.rank\"");
    let Body::Do(tasks) = &micro.body else { panic!("a body") };
    let fill = tasks[0].name.as_ref().unwrap();
    assert_eq!((fill.value.as_str(), at(fill.span)), ("fill", "\"fill\""));
    let Body::Kernel(call) = &tasks[0].body else { panic!("a kernel") };
    assert_eq!(at(call.grid.threads.span), "\"m * n\"");
    assert!(at(tasks[1].span).starts_with("{ for = \"k in m\", do = [") && tasks[1].repeat.is_some());
    let Body::Do(inner) = &tasks[1].body else { panic!("a body") };
    assert!(matches!(&inner[0].body, Body::Group(group) if group.entries[0].repeat.is_some()));
    assert!(manifest.finish[0].repeat.is_some() && matches!(manifest.finish[0].body, Body::Op(_)));
    assert!(manifest.names.get("micro").is_some() && manifest.names.get("fill").is_none());
}

#[test]
fn the_mesh_and_what_is_required_are_read() {
    let world = read(VALID).world;
    let texts: Vec<_> =
        world.require.iter().map(|r| (r.text.as_str(), at(r.condition.place.span()))).collect();
    assert_eq!(texts[0], ("n % world == 0", "\"n % world == 0\""));
    assert_eq!((texts.len(), texts[1].1), (2, "true"));
    let mesh = world.mesh.unwrap();
    let axes: Vec<_> =
        mesh.axes.iter().map(|axis| (at(axis.name.span), at(axis.size.place.span()))).collect();
    assert_eq!(axes, [("dp", "\"world / share(2, 0, 2)\""), ("tp", "1")]);
    assert!(read("manifest = 1\n").world.mesh.is_none());
}

#[test]
fn watches_and_names_are_read() {
    let manifest = read(VALID);
    let loss = &manifest.watches[0];
    assert_eq!((loss.name.value.as_str(), loss.every.value), ("loss", WatchEvery::Steps(10)));
    assert!(loss.rank.is_some());
    let kind = |name| manifest.names.get(name).map(|declared| declared.kind);
    assert_eq!(kind("n"), Some(NameKind::Param));
    assert_eq!((kind("row"), kind("dp")), (Some(NameKind::Communicator), Some(NameKind::Communicator)));
    assert_eq!(kind("grads"), Some(NameKind::Buffer));
    assert_eq!(kind("same-start"), Some(NameKind::Task));
    assert_eq!(kind("peer"), None);
    assert_eq!(at(manifest.names.get("grads").unwrap().span), "grads");
}

/// `[params]` written last, dotted keys and inline tables are the same manifest.
#[test]
fn the_spelling_of_tables_does_not_matter() {
    let manifest = read(
        "buffer.u = { dtype = \"f32\", shape = [\"n\"] }\ntask = [{ op = \"send\", args = { buffer = \"u\" } }]\n\
         manifest = 1\n[params]\nn = 1\n",
    );
    assert_eq!((manifest.buffers.len(), manifest.tasks.len(), manifest.params.len()), (1, 1, 1));
}
