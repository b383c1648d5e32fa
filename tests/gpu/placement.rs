//! Devices in any order, missing, twice, or hidden.

use squall_core::{BufferDecl, DType, Download, GroupError, OpSpec, Options, PlanGroup, Upload, verify};
use squall_runner::manifest::devices::{DeviceSpec, Devices, Which};
use squall_runner::run::RunError;
use squall_tests::{registry, run_text_on};

use crate::on::{ALONE, On};

/// Every rank gets rank 1's `x`, and all ranks' numbers.
const TURNED: &str = r#"
[buffer.x]
dtype = "i32"
shape = [2]
init = { fill = "10 * rank" }
save = "x-{rank}.npy"
[buffer.mine]
dtype = "i32"
shape = [1]
init = { fill = "rank" }
[buffer.all]
dtype = "i32"
shape = ["world"]
save = "all-{rank}.npy"
[[task]]
op = "broadcast"
args = { buffer = "x", root = 1 }
[[task]]
op = "all_gather"
args = { send = "mine", recv = "all" }
"#;

fn listed(on: On, indices: &[u32]) -> Devices {
    let one = |&index: &u32| DeviceSpec { backend: on.kind, which: Which::One(index) };
    Devices::Listed(indices.iter().map(one).collect())
}

/// Runs [`TURNED`] on two devices in that order.
fn by_rank(on: On, indices: [u32; 2]) {
    let text = format!("steps = 3\ncuda_graph = {}\n{TURNED}", on.capture);
    let ran =
        run_text_on(&listed(on, &indices), &text).unwrap_or_else(|error| panic!("{indices:?}: {error}"));
    assert_eq!(ran.summary.devices, indices.map(|index| format!("{}:{index}", on.kind)));
    for rank in 0..2 {
        assert_eq!(ran.saved::<i32>("x", rank), [10, 10], "{indices:?}, rank {rank}");
        assert_eq!(ran.saved::<i32>("all", rank), [0, 1], "{indices:?}, rank {rank}");
    }
}

/// Neither a root nor a block's place is a device's number.
pub(crate) fn turned(on: On) {
    by_rank(on, [0, 1]);
    by_rank(on, [1, 0]);
}

pub(crate) fn twice(on: On) {
    match run_text_on(&listed(on, &[0, 0]), TURNED) {
        Err(RunError::Refused(problems)) => {
            let said = problems.to_string();
            assert!(said.contains("ranks 0 and 1 are both given cuda:0"), "{said}");
        }
        other => panic!("{other:?}"),
    }
    // And by a group, from whoever opened it.
    let graphs = on.graphs(2, |_, graph| {
        let x = graph.buffer(BufferDecl::new("x", DType::I32, [1]).upload(Upload::First));
        graph.step(OpSpec::new("broadcast").arg("buffer", x).arg("root", 0));
    });
    let devices = [0, 0].map(|index| registry().open("cuda", index).unwrap());
    match PlanGroup::new(registry(), verify(graphs).unwrap(), &devices, Options::default()) {
        Err(GroupError::Devices(said)) => {
            assert_eq!(said, "ranks 0 and 1 are both given cuda:0; one rank has one GPU");
        }
        other => panic!("{other:?}"),
    }
}

/// The device `index` is refused on rank 1, and it is said how many there are.
fn refused(on: On, index: u32) {
    let there_are = registry().backend("cuda").unwrap().count().unwrap().unwrap();
    match run_text_on(&listed(on, &[0, index]), TURNED) {
        Err(RunError::Environment(said)) => {
            let wanted = format!("rank 1 is given cuda:{index}, and {there_are} device");
            assert!(said.starts_with(&wanted), "{said}");
        }
        other => panic!("{other:?}"),
    }
}

pub(crate) fn missing(on: On) {
    refused(on, 77);
    refused(on, registry().backend("cuda").unwrap().count().unwrap().unwrap());
}

pub(crate) fn hidden(on: On) {
    on.apart("hidden", &[("CUDA_VISIBLE_DEVICES", "1")], ALONE);
}

/// The second GPU is the only one, under the first's name.
pub(crate) fn hidden_apart(_: On) {
    let on = On::gpus(1, false);
    assert_eq!(registry().backend("cuda").unwrap().count(), Ok(Some(1)));
    refused(on, 1);
    let graphs = on.graphs(1, |_, graph| {
        let x = graph.buffer(BufferDecl::new("x", DType::I32, [1]).upload(Upload::First));
        let y = graph.buffer(BufferDecl::new("y", DType::I32, [1]).download(Download::Every));
        graph.step(OpSpec::new("all_gather").arg("send", x).arg("recv", y));
    });
    let mut group = on.bind(graphs, on.options());
    let [x, y] = ["x", "y"].map(|name| group.buffer(name).unwrap());
    group.write(0, x, &[7]).unwrap();
    group.execute_many(2).unwrap();
    assert_eq!(group.read::<i32>(0, y).unwrap(), [7]);
}

pub(crate) fn reordered(on: On) {
    on.apart("reordered", &[("CUDA_VISIBLE_DEVICES", "1,0")], ALONE);
}

pub(crate) fn reordered_apart(_: On) {
    for capture in [false, true] {
        by_rank(On::gpus(2, capture), [0, 1]);
        by_rank(On::gpus(2, capture), [1, 0]);
    }
}
