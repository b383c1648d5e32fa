//! Several plugins and squall's own tasks in one manifest, and plugins under verification.

use std::fmt::Write as _;

use crate::built::{Folder, released_plugin, ring_plugin, rust_plugin};

/// `[[plugin]]` for each of these.
fn plugins(paths: &[&std::path::Path]) -> String {
    let mut text = String::new();
    for path in paths {
        writeln!(text, "[[plugin]]\npath = {:?}", path.to_str().unwrap()).unwrap();
    }
    text
}

#[test]
fn two_plugins_and_squalls_own_tasks_in_one_manifest() {
    let plugins = plugins(&[ring_plugin(), &rust_plugin("misbehaving")]);
    let manifest = format!(
        r#"manifest = 1
[pipeline]
name = "together"
steps = 2
block = 64
{plugins}
[buffer.x]
dtype = "f32"
shape = [100]
init = {{ fill = "rank + i" }}
save = "out/x-{{rank}}.npy"
[[task]]
op = "all_reduce"
library = "ring"
args = {{ buffer = "x", reduce = "sum" }}
[[task]]
op = "leaves_a_destructor"
library = "misbehaving"
[[task]]
kernel = "scale"
args = {{ data = "x", factor = 0.5 }}
grid = "100"
[[task]]
op = "all_reduce"
args = {{ buffer = "x", reduce = "max" }}
"#
    );
    let ranks = Folder::new().run::<f32>(&manifest, &[], 3);
    // A step takes x to half of the sum: first 3 i + 3, then three halves of that half.
    let expected: Vec<f32> = (0..100).map(|i| (3.0 * i as f32 + 3.0) / 2.0 * 3.0 / 2.0).collect();
    assert_eq!(ranks, vec![expected; 3]);
}

#[test]
fn another_k_on_one_rank_is_refused_on_any_world_without_a_device() {
    let plugins = plugins(&[&rust_plugin("top-k-reduce")]);
    let manifest = format!(
        r#"manifest = 1
[pipeline]
name = "top"
{plugins}
[buffer.grad]
dtype = "f32"
shape = [100]
init = {{ fill = "rank + i" }}
download = "last"
[[task]]
name = "top"
op = "top_k_reduce"
args = {{ grad = "grad", k = "11 if rank == 1 else 10" }}
"#
    );
    let folder = Folder::new();
    folder.write("m.toml", &manifest);
    for world in ["2", "64", "1000"] {
        let said = folder.squall(&["check", "m.toml", "--world", world]);
        assert_eq!(said.status, Some(2), "{}", said.error);
        if world == "2" {
            insta::assert_snapshot!("another_k_on_one_rank", said.error);
        }
    }
    assert_eq!(folder.squall(&["check", "m.toml", "--world", "1"]).status, Some(0));
}

#[test]
fn a_release_that_is_optimised_over_all_crates_keeps_every_registration() {
    let listed = |path: std::path::PathBuf| {
        let said = Folder::new().squall(&["list", "ops", "--plugin", path.to_str().unwrap()]);
        assert_eq!(said.status, Some(0), "{}", said.error);
        let ops = [
            "panics_in_prepare",
            "panics_in_enqueue",
            "fails_on_one_rank",
            "never_ends_on_one_rank",
            "leaves_a_destructor",
        ];
        for op in ops {
            assert!(said.output.contains(op), "{op}:\n{}", said.output);
        }
    };
    listed(rust_plugin("misbehaving"));
    listed(released_plugin("misbehaving"));
}
