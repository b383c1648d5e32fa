//! The collective in C against squall's own.

use std::fs::{self, File};

use squall_core::Element;
use squall_runner::files::npy;
use squall_tests::{WORLDS, read_npy};

use crate::built::{Folder, ring_plugin};

fn manifest(dtype: &str, len: u64, library: &str, reduce: &str, args: &str) -> String {
    // What is summed in place is looked at in `y`, too.
    let copies = args == IN_PLACE;
    format!(
        r#"manifest = 1
[pipeline]
name = "ring"
steps = 3
block = 64
[buffer.x]
dtype = "{dtype}"
shape = [{len}]
init = {{ fill = "(rank + 2 * i) % 5 - 1" }}
save = "out/x-{{rank}}.npy"
[buffer.y]
dtype = "{dtype}"
shape = [{len}]
init = {{ fill = 0 }}
save = "out/y-{{rank}}.npy"
[[task]]
op = "all_reduce"
library = "{library}"
args = {{ {args}, reduce = "{reduce}" }}
[[task]]
kernel = "copy"
args = {{ src = "x", dst = "y" }}
grid = "{len}"
when = {copies}
[[task]]
kernel = "scale"
args = {{ data = "x", factor = -1 }}
grid = "{len}"
"#
    )
}

/// Runs both on a world, and compares every rank's bits.
fn agree(world: u32, dtype: &str, len: u64, reduce: &str, args: &str) {
    let plugin = ["--plugin", ring_plugin().to_str().unwrap()];
    let by = |library: &str, options: &[&str]| {
        let folder = Folder::new();
        folder.write("m.toml", &manifest(dtype, len, library, reduce, args));
        let devices = format!("host:0..{world}");
        let said = folder.squall(&[&["run", "m.toml", "--devices", &devices], options].concat());
        assert_eq!(said.status, Some(0), "{}", said.error);
        let read = |name: &str, rank: u32| fs::read(folder.path(&format!("out/{name}-{rank}.npy"))).unwrap();
        (0..world).map(|rank| (read("x", rank), read("y", rank))).collect::<Vec<_>>()
    };
    let what = format!("{reduce} of {len} {dtype} on {world} ranks, {args}");
    let ring = by("ring", &plugin);
    assert!(ring == by("host", &[]), "{what}");
    assert!(ring.iter().all(|(_, y)| *y == ring[0].1), "ranks differ: {what}");
}

const IN_PLACE: &str = r#"buffer = "x""#;
const APART: &str = r#"send = "x", recv = "y""#;

#[test]
fn every_dtype_and_reduction_is_as_squalls_own() {
    for dtype in ["f32", "f64", "i32", "i64"] {
        for reduce in ["sum", "prod", "max", "min", "avg"] {
            // Small whole numbers, and averages of four: nothing is rounded.
            agree(4, dtype, 103, reduce, IN_PLACE);
        }
    }
}

#[test]
fn every_world_form_and_length_is_as_squalls_own() {
    for world in WORLDS {
        for (len, args) in [(0, APART), (1, IN_PLACE), (3, APART), (1000, IN_PLACE)] {
            agree(world, "i32", len, "sum", args);
        }
    }
}

/// What rank 1 of two gets of these numbers by the ring, after squall's own library agreed.
fn reduced<T: Element>(reduce: &str, numbers: [&[T]; 2]) -> Vec<T> {
    let fill = r#"init = { fill = "(rank + 2 * i) % 5 - 1" }"#;
    let run = |library: &str| {
        let folder = Folder::new();
        let text = manifest(T::DTYPE.name(), numbers[0].len() as u64, library, reduce, APART);
        assert!(text.contains(fill));
        folder.write("m.toml", &text.replace(fill, r#"init = { npy = "in-{rank}.npy" }"#));
        for (rank, numbers) in numbers.iter().enumerate() {
            let mut file = File::create(folder.path(&format!("in-{rank}.npy"))).unwrap();
            npy::write(&mut file, T::DTYPE, &[numbers.len() as u64], bytemuck::cast_slice(numbers)).unwrap();
        }
        let plugin = ring_plugin().to_str().unwrap();
        let said = folder.squall(&["run", "m.toml", "--devices", "host:0..2", "--plugin", plugin]);
        assert_eq!(said.status, Some(0), "{}", said.error);
        read_npy::<T>(&folder.path("out/y-1.npy")).0
    };
    let ring = run("ring");
    let bits = |numbers: &[T]| bytemuck::cast_slice::<T, u8>(numbers).to_vec();
    assert_eq!(bits(&ring), bits(&run("host")), "{reduce}");
    ring
}

#[test]
fn integers_wrap_and_their_average_is_cut_toward_zero() {
    let most = i32::MAX;
    assert_eq!(reduced("sum", [&[most, -3, 7], &[most - 2, -4, 2]]), [-4, -7, 9]);
    assert_eq!(reduced("avg", [&[most, -3, 7], &[most - 2, -4, 2]]), [-2, -3, 4]);
    assert_eq!(reduced("prod", [&[i64::MAX], &[2]]), [-2]);
}

#[test]
fn what_is_no_number_loses_to_one() {
    let (nan, big) = (f32::NAN, f32::INFINITY);
    assert_eq!(reduced("max", [&[nan, 1.0, -big], &[2.0, nan, 0.5]]), [2.0, 1.0, 0.5]);
    assert_eq!(reduced("min", [&[nan, 1.0, -big], &[2.0, nan, 0.5]]), [2.0, 1.0, -big]);
    assert!(reduced("sum", [&[nan], &[1.0]])[0].is_nan());
    assert!(reduced("min", [&[nan], &[nan]])[0].is_nan());
}

#[test]
fn a_group_is_refused() {
    let folder = Folder::new();
    let text = manifest("f32", 5, "ring", "sum", IN_PLACE);
    let grouped = text.replace(
        &text[text.find("[[task]]").unwrap()..],
        r#"[[task]]
library = "ring"
group = [
  { op = "all_reduce", args = { buffer = "x", reduce = "sum" } },
  { op = "all_reduce", args = { buffer = "y", reduce = "sum" } },
]
"#,
    );
    folder.write("m.toml", &grouped);
    let plugin = ring_plugin().to_str().unwrap();
    let said = folder.squall(&["check", "m.toml", "--world", "2", "--plugin", plugin]);
    assert_eq!(said.status, Some(2), "{}", said.error);
    insta::assert_snapshot!("the_ring_in_a_group", said.error);
}
