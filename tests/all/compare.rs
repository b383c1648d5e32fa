//! A comparison names the first task, buffer and element that differ, and is silent where nothing does.

use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use squall_core::element::Exact;
use squall_core::{DType, Phase, Registry};
use squall_runner::compare::{self, Comparison, Difference, Request, Tolerance, Tolerances};
use squall_runner::manifest::devices::Devices;
use squall_runner::manifest::{self, Manifest};
use squall_runner::run::{self, RunError};
use squall_tests::{Copied, Silent, hosts, run_file};

use crate::disturbed::{DEVICES, Ran, described_otherwise, disturbed, faultless};

/// Compares a manifest, with what differs from a plain request.
fn compare<'a>(
    registry: &Registry,
    manifest: &'a Manifest,
    folder: &'a Path,
    change: impl FnOnce(&mut Request<'a>),
) -> Result<Comparison, RunError> {
    let run = run::Request { manifest, folder, file: None, devices: None, steps: None, process: None };
    let mut request = Request { run, with: "cuda", tolerances: Tolerances::default(), each: false };
    change(&mut request);
    compare::compare(registry, &request, &mut Silent)
}

fn parsed(text: &str) -> Manifest {
    let (manifest, warnings) = manifest::parse(text).unwrap();
    assert!(warnings.is_empty(), "{warnings:#?}");
    manifest
}

fn compare_text(registry: &Registry, text: &str) -> Result<Comparison, RunError> {
    compare(registry, &parsed(text), Path::new(""), |_| {})
}

/// What was found, of a comparison that found something.
fn found(result: Result<Comparison, RunError>) -> Comparison {
    match result {
        Err(error @ RunError::Differs(_)) => {
            assert_eq!((error.exit_status(), error.code().unwrap().0), (1, "E0314"));
            let RunError::Differs(comparison) = error else { unreachable!() };
            *comparison
        }
        other => panic!("{other:?}"),
    }
}

/// The phase, the step, the rank, the task, the buffer, the element.
type Place<'a> = (Phase, u64, u32, &'a str, &'a str, &'a [u64]);

/// The one difference, and its place.
fn only(comparison: &Comparison) -> (&Difference, Place<'_>) {
    let [difference] = comparison.differences.as_slice() else { panic!("{comparison:#?}") };
    let at = &difference.first;
    (difference, (at.phase, at.step, at.rank, &at.task, &at.buffer, &at.index))
}

/// Two ranks double, average and halve five numbers, three times.
const AVERAGE: &str = r#"
manifest = 1
[pipeline]
steps = 3
block = 64
[world]
devices = "host:0..2"
[buffer.x]
dtype = "f32"
shape = [2, 5]
init = { fill = "rank + i" }
save = "x-{rank}.npy"
[[task]]
name = "double"
kernel = "scale"
args = { data = "x", factor = 2 }
grid = 10
[[task]]
name = "average"
op = "all_reduce"
args = { buffer = "x", reduce = "avg" }
[[task]]
name = "root"
kernel = "sqrt"
args = { src = "x", dst = "x" }
grid = 10
"#;

#[test]
fn every_example_is_clean_against_the_host_itself_and_against_others() {
    let others = faultless();
    for (example, name, steps) in [
        ("all-to-all", "all-to-all.toml", 1),
        ("average-gradients", "average-gradients.toml", 3),
        ("digits", "train.toml", 20),
        ("digits", "eval.toml", 1),
        ("heat", "heat.toml", 20),
        ("pipeline", "pipeline.toml", 3),
    ] {
        let copied = Copied::new(example);
        if name == "eval.toml" {
            run_file(&copied.path("train.toml"), None, Some(2)).unwrap();
        }
        let path = copied.path(name);
        let manifest = parsed(&std::fs::read_to_string(&path).unwrap());
        for with in ["host", "cuda"] {
            let compared = compare(&others, &manifest, path.parent().unwrap(), |request| {
                (request.with, request.run.steps) = (with, Some(steps));
            });
            let compared = compared.unwrap_or_else(|error| panic!("{name} with {with}: {error}"));
            assert_eq!((compared.steps, &compared.differences), (steps, &Vec::new()), "{name}");
            assert!(compared.devices.iter().all(|device| device.starts_with(with)), "{compared:?}");
            assert!(!compared.agreement.is_empty(), "{name}");
            for agreement in compared.agreement {
                assert!(agreement.elements > 0 && agreement.greatest.is_none(), "{name}: {agreement}");
            }
        }
    }
}

#[test]
fn the_first_task_that_differs_is_named_with_its_rank_step_and_element() {
    let registry = disturbed(|ran| {
        // Two elements, of which the first alone is named.
        if ran.is("scale", 1, 2) {
            ran.change(0, 8, |x: f32| x + 1.0);
            ran.change(0, 7, |_: f32| 0.5);
        }
        Ok(())
    });
    let compared = found(compare_text(&registry, AVERAGE));
    let (difference, place) = only(&compared);
    assert_eq!(place, (Phase::Step, 2, 1, "double", "x", &[1, 2][..]));
    assert_eq!((difference.differing, difference.written, difference.times), (2, 10, 1));
    assert_eq!((compared.steps, compared.world, difference.first.device.as_str()), (3, 2, "cuda:1"));
    let (host, other) = (difference.first.host, difference.first.other);
    let Exact::Float(value) = host else { panic!("{host:?}") };
    assert_eq!(other, Exact::Float(0.5));
    assert_eq!(difference.first.distance, (value - 0.5).abs());
    assert_eq!(difference.first.allowed, 1e-5 * value.abs() + 1e-5);
    // The same in words.
    let text = RunError::Differs(Box::new(compared)).to_string();
    assert!(text.starts_with("task `double` of step 2 on rank 1: x[1, 2] is "), "{text}");
    assert!(text.contains(" on the host and 0.5 on cuda:1, "), "{text}");
    assert!(text.ends_with(" is allowed; 2 of 10 elements it wrote there differ"), "{text}");
}

/// Of buffers that are swapped, the one is named that the task names, in every turn.
#[test]
fn a_difference_in_a_swapped_buffer_is_named_as_the_task_names_it() {
    let text = AVERAGE.replace("src = \"x\", dst = \"x\"", "src = \"x\", dst = \"y\"")
        + "[[task]]\nname = \"flip\"\nswap = [\"x\", \"y\"]\n[buffer.y]\ndtype = \"f32\"\nshape = [2, 5]\n";
    assert_eq!(compare_text(&faultless(), &text).unwrap().differences, []);
    for step in [1, 2] {
        // Each turn has a kernel of its own, which counts its own runs.
        let runs = AtomicU64::new(0);
        let registry = disturbed(move |ran| {
            if (ran.name, ran.device) == ("sqrt", 0) && runs.fetch_add(1, Ordering::Relaxed) == step {
                ran.change(1, 3, |x: f32| 2.0 * x + 1.0);
            }
            Ok(())
        });
        let compared = found(compare_text(&registry, &text));
        assert_eq!(only(&compared).1, (Phase::Step, step, 0, "root", "y", &[0, 3][..]));
    }
}

#[test]
fn nothing_runs_after_the_step_that_differs() {
    let registry = disturbed(|ran| {
        assert!(ran.before < 2, "{} runs in step {}", ran.name, ran.before);
        if ran.is("sqrt", 0, 1) {
            ran.change(0, 0, |x: f32| 2.0 * x + 1.0);
        }
        Ok(())
    });
    let compared = found(compare_text(&registry, AVERAGE));
    assert_eq!(only(&compared).1, (Phase::Step, 1, 0, "root", "x", &[0, 0][..]));
    assert_eq!(compared.steps, 2);
}

#[test]
fn a_collective_that_differs_on_one_rank_is_named_there() {
    let registry = disturbed(|ran| {
        if ran.is("all_reduce", 1, 0) {
            ran.change(0, 9, |_: f32| f32::INFINITY);
        }
        Ok(())
    });
    let compared = found(compare_text(&registry, AVERAGE));
    let (difference, place) = only(&compared);
    assert_eq!(place, (Phase::Step, 0, 1, "average", "x", &[1, 4][..]));
    let text = difference.to_string();
    assert!(text.contains("on the host and inf on cuda:1, which no tolerance allows; 1 of 10"), "{text}");
}

#[test]
fn what_the_tolerance_allows_is_told_and_what_it_does_not_is_found() {
    let registry = disturbed(|ran| {
        // The last task of the last step, so that nothing comes after it.
        if ran.is("sqrt", 1, 2) {
            ran.change(0, 3, |x: f32| x * (1.0 + 4e-6));
        }
        Ok(())
    });
    let compared = compare_text(&registry, AVERAGE).unwrap();
    let [agreement] = compared.agreement.as_slice() else { panic!("{compared:#?}") };
    // Three tasks of ten elements, three times on two ranks.
    assert_eq!((agreement.dtype, agreement.elements), (DType::F32, 180));
    let greatest = agreement.greatest.as_ref().unwrap();
    assert_eq!((greatest.step, greatest.rank, greatest.task.as_str()), (2, 1, "root"));
    assert_eq!((greatest.buffer.as_str(), &greatest.index[..]), ("x", &[0, 3][..]));
    assert!(greatest.distance > 0.0 && greatest.distance < greatest.allowed, "{greatest:?}");
    let text = agreement.to_string();
    assert!(text.starts_with(
        "f32: 180 elements compared, furthest apart: task `root` of step 2 on rank 1: x[0, 3] is "
    ));

    let tight = found(compare(&registry, &parsed(AVERAGE), Path::new(""), |request| {
        request.tolerances.set(DType::F32, Tolerance { relative: 1e-6, absolute: 0.0 });
    }));
    assert_eq!(only(&tight).1, (Phase::Step, 2, 1, "root", "x", &[0, 3][..]));
}

#[test]
fn not_a_number_agrees_with_itself() {
    let text = AVERAGE.replace("rank + i", "-1.0 - i");
    let compared = compare_text(&faultless(), &text).unwrap();
    assert!(compared.agreement[0].greatest.is_none(), "{compared:?}");

    // Another NaN is a NaN too, and a number in its place is not.
    let bits = disturbed(|ran| {
        if ran.is("sqrt", 0, 0) {
            ran.change(0, 0, |x: f32| f32::from_bits(x.to_bits() ^ 0x8000_0001));
        }
        Ok(())
    });
    assert!(compare_text(&bits, &text).unwrap().agreement[0].greatest.is_none());
    let number = disturbed(|ran| {
        if ran.is("sqrt", 0, 0) {
            ran.change(0, 1, |x: f32| if x.is_nan() { 0.0 } else { x });
        }
        Ok(())
    });
    let compared = found(compare_text(&number, &text));
    let (difference, place) = only(&compared);
    assert_eq!(place, (Phase::Step, 0, 0, "root", "x", &[0, 1][..]));
    assert!(
        difference.to_string().contains("is NaN on the host and 0.0 on cuda:0, which no"),
        "{difference}"
    );
    let json = serde_json::to_value(&compared).unwrap();
    let first = &json["differences"][0];
    assert_eq!((&first["host"], &first["other"]), (&"NaN".into(), &0.0.into()));
    assert_eq!((&first["distance"], &first["phase"]), (&serde_json::Value::Null, &"step".into()));
    assert_eq!(
        (&first["task"], &first["dtype"], &first["written"]),
        (&"root".into(), &"f32".into(), &10.into())
    );
}

/// A task that writes two buffers, as a setup, a step and a finish, and integers beside it.
const LOSSES: &str = r#"
manifest = 1
[pipeline]
block = 64
[world]
devices = "cuda:0..2"
[buffer.logits]
dtype = "f32"
shape = [3, 4]
init = { fill = "(i * 7 % 5) / 3.0 + rank" }
[buffer.labels]
dtype = "i32"
shape = [3]
init = { values = [0, 3, 2] }
[buffer.loss]
dtype = "f32"
shape = [1]
[buffer.grad]
dtype = "f32"
shape = [3, 4]
[buffer.all]
dtype = "i32"
shape = [2, 3]
[[setup]]
name = "collect"
op = "all_gather"
args = { send = "labels", recv = "all" }
[[task]]
name = "loss-and-gradient"
kernel = "softmax_cross_entropy"
args = { logits = "logits", labels = "labels", loss = "loss", grad = "grad" }
grid = 3
[[task]]
name = "totals"
group = [
  { op = "all_reduce", args = { buffer = "loss", reduce = "sum" } },
  { op = "all_reduce", args = { buffer = "grad", reduce = "sum" } },
]
[[finish]]
name = "last"
kernel = "scale"
args = { data = "grad", factor = 3 }
grid = 12
"#;

#[test]
fn the_second_of_two_buffers_is_named_when_it_differs() {
    let registry = disturbed(|ran| {
        if ran.is("softmax_cross_entropy", 1, 0) {
            ran.change(3, 6, |x: f32| x - 0.25);
        }
        Ok(())
    });
    let compared = found(compare_text(&registry, LOSSES));
    let (difference, place) = only(&compared);
    assert_eq!(place, (Phase::Step, 0, 1, "loss-and-gradient", "grad", &[1, 2][..]));
    assert_eq!((difference.differing, difference.written), (1, 12));
}

#[test]
fn a_group_is_one_task_with_all_that_its_members_write() {
    let registry = disturbed(|ran| {
        // One range an op: the second's.
        if ran.is("all_reduce", 0, 0) {
            ran.change(1, 11, |x: f32| x + 1.0);
        }
        Ok(())
    });
    let compared = found(compare_text(&registry, LOSSES));
    assert_eq!(only(&compared).1, (Phase::Step, 0, 0, "totals", "grad", &[2, 3][..]));
}

#[test]
fn setup_and_finish_are_compared_and_integers_are_exact() {
    let registry = disturbed(|ran| {
        if ran.is("all_gather", 1, 0) {
            ran.change(1, 4, |label: i32| label + 1);
        }
        Ok(())
    });
    let compared = found(compare_text(&registry, LOSSES));
    let (difference, place) = only(&compared);
    assert_eq!(place, (Phase::Setup, 0, 1, "collect", "all", &[1, 1][..]));
    let text = "task `collect` of setup on rank 1: all[1, 1] is 3 on the host and 4 on cuda:1, 1 apart where 0 is allowed; \
                1 of 6 elements it wrote there differ";
    assert_eq!(difference.to_string(), text);

    let registry = disturbed(|ran| {
        if ran.is("scale", 0, 0) {
            ran.change(0, 0, |x: f32| x + 1.0);
        }
        Ok(())
    });
    let compared = found(compare_text(&registry, LOSSES));
    assert_eq!(only(&compared).1, (Phase::Finish, 0, 0, "last", "grad", &[0, 0][..]));
    // Both dtypes, in their order.
    let dtypes: Vec<DType> = compared.agreement.iter().map(|agreement| agreement.dtype).collect();
    assert_eq!((dtypes, compared.agreement[1].elements), (vec![DType::F32, DType::I32], 12));
}

/// In the file rank 1's receive stands before rank 0's layer, which is where the fault is.
#[test]
fn the_origin_is_named_and_not_what_it_led_to_on_another_rank() {
    let copied = Copied::new("pipeline");
    let path = copied.path("pipeline.toml");
    let manifest = parsed(&std::fs::read_to_string(&path).unwrap());
    let registry = disturbed(|ran| {
        if ran.is("matmul_nn", 0, 1) {
            ran.change(2, 70, |x: f32| x + 1.0);
        }
        Ok(())
    });
    let compared = found(compare(&registry, &manifest, path.parent().unwrap(), |_| {}));
    let (difference, (phase, step, rank, task, buffer, index)) = only(&compared);
    assert_eq!((phase, step, rank, buffer, &index[1..]), (Phase::Step, 1, 0, "y", &[1, 6][..]));
    assert!(
        task.starts_with("micro[") && task.ends_with("].layer") && difference.first.device == "cuda:0",
        "{difference}"
    );

    // What rank 1 receives wrongly, it is told of itself.
    let registry = disturbed(|ran| {
        if ran.is("recv", 1, 0) {
            ran.change(0, 3, |x: f32| x + 1.0);
        }
        Ok(())
    });
    let compared = found(compare(&registry, &manifest, path.parent().unwrap(), |_| {}));
    assert_eq!(only(&compared).1, (Phase::Step, 0, 1, "micro[0].receive", "x", &[0, 0, 3][..]));
}

#[test]
fn each_task_alone_is_judged_with_the_hosts_values() {
    // The first task goes wrong in two steps, and the last on one rank in one; the one between only passes on what it is given.
    let fault = |ran: &Ran<'_>| {
        if ran.name == "scale" && ran.before > 0 {
            ran.change(0, 4, |x: f32| x + 1.0);
        }
        if ran.is("sqrt", 1, 2) {
            ran.change(0, 6, |x: f32| x + 1.0);
        }
        Ok(())
    };
    let compared =
        found(compare(&disturbed(fault), &parsed(AVERAGE), Path::new(""), |request| request.each = true));
    let seen: Vec<_> = compared
        .differences
        .iter()
        .map(|one| (one.first.task.as_str(), one.first.step, one.first.rank, &one.first.index[..], one.times))
        .collect();
    assert_eq!(seen, [("double", 1, 0, &[0, 4][..], 4), ("root", 2, 1, &[1, 1][..], 1)]);
    assert_eq!((compared.steps, compared.each), (3, true));
    let text = compared.differences[0].to_string();
    assert!(text.ends_with(
        "; 1 of 10 elements it wrote there differ; the task differs 4 times over ranks and steps"
    ));
    // Without it the comparison ends where the fault first shows.
    let compared = found(compare_text(&disturbed(fault), AVERAGE));
    assert_eq!((only(&compared).1.3, compared.steps), ("double", 2));
    assert_eq!(only(&compared).0.times, 2, "both ranks are wrong in that step");
}

#[test]
fn devices_are_as_many_as_the_manifest_names_or_those_that_are_given() {
    let registry = faultless();
    let devices = |text: &str, given: Option<&Devices>, with: &'static str| {
        let manifest = parsed(&AVERAGE.replace("\"host:0..2\"", text));
        compare(&registry, &manifest, Path::new(""), |request| {
            (request.run.devices, request.with) = (given, with);
        })
        .map(|compared| compared.devices)
    };
    let named = |text: &str| text.split(' ').map(str::to_string).collect::<Vec<_>>();
    assert_eq!(devices("\"host:0..2\"", None, "cuda").unwrap(), named("cuda:0 cuda:1"));
    assert_eq!(devices("\"auto\"", None, "cuda").unwrap(), named("cuda:0 cuda:1 cuda:2 cuda:3"));
    assert_eq!(devices("\"cuda\"", None, "host").unwrap(), named("host:0"));
    assert_eq!(devices("\"cuda:1..4\"", None, "host").unwrap(), named("host:0 host:1 host:2"));
    assert_eq!(devices("[\"cuda:3\", \"cuda:0\"]", None, "cuda").unwrap(), named("cuda:3 cuda:0"));
    let given = Devices::parse_list("cuda:2,cuda:1").unwrap();
    assert_eq!(devices("\"host:0..4\"", Some(&given), "cuda").unwrap(), named("cuda:2 cuda:1"));
    assert_eq!(devices("\"host:0..4\"", Some(&Devices::Auto), "cuda").unwrap().len() as u32, DEVICES);

    let error = devices("\"auto\"", Some(&hosts(2)), "cuda").unwrap_err();
    assert_eq!((error.exit_status(), error.diagnostics().unwrap()[0].code.0), (2, "E0313"), "{error}");
    // As many as the manifest names, as far as there are so many; what is named itself must be there.
    assert_eq!(devices("\"host:0..5\"", None, "cuda").unwrap().len() as u32, DEVICES);
    let error = devices("\"cuda:0..5\"", None, "cuda").unwrap_err();
    let wanted = "rank 4 is given cuda:4, and 4 devices are visible here; `squall list devices` shows them";
    assert_eq!(error.to_string(), wanted);
    assert_eq!(error.exit_status(), 4);
    let error = devices("\"host:0..4000000\"", None, "host").unwrap_err();
    assert_eq!(error.exit_status(), 2, "{error}");
}

#[test]
fn a_side_that_fails_tells_its_own_error() {
    let registry = disturbed(|ran| match ran.is("scale", 1, 2) {
        true => Err("the bus fell off".to_string()),
        false => Ok(()),
    });
    let error = compare_text(&registry, AVERAGE).unwrap_err();
    let said = error.to_string();
    let wanted = "on cuda devices: rank 1 failed in task `double` of step 2: the bus fell off";
    assert!(said.starts_with(wanted), "{said}");
    assert_eq!((error.exit_status(), error.code().unwrap().0), (1, "E0401"));

    // What cannot be computed fails on the host, which is first.
    let divides = AVERAGE
        .replace("f32", "i32")
        .replace("\"sqrt\"", "\"div\"")
        .replace("src = \"x\", dst = \"x\"", "a = \"x\", b = \"zero\", out = \"x\"");
    let divides = format!("{divides}[buffer.zero]\ndtype = \"i32\"\nshape = [2, 5]\ninit = {{ fill = 0 }}\n");
    let error = compare_text(&faultless(), &divides).unwrap_err();
    let said = error.to_string();
    assert!(
        said.starts_with("on host devices: rank ") && said.contains(" failed in task `root` of step 0: "),
        "{said}"
    );
}

#[test]
fn tasks_that_are_described_otherwise_are_refused() {
    let error = compare_text(&described_otherwise(), AVERAGE).unwrap_err();
    let [problem] = error.diagnostics().unwrap().try_into().unwrap();
    assert_eq!((problem.code.0, problem.primary.task.as_deref()), ("E0211", Some("average")));
    assert_eq!(problem.message, "on cuda devices this does not write what it writes on the host");
    assert_eq!(error.exit_status(), 2);
}

#[test]
fn nothing_is_saved_and_nothing_captured() {
    // Devices that say they capture, and cannot.
    let folder = tempfile::tempdir().unwrap();
    let manifest = parsed(&AVERAGE.replace("block = 64", "block = 64\ncuda_graph = true"));
    compare(&faultless(), &manifest, folder.path(), |_| {}).unwrap();
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
