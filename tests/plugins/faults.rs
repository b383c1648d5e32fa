//! What is said of files that are no plugins, or wrong ones, before anything runs.

use crate::built::{Folder, Said, cc};

/// Needs no plugin, but for being told to open one.
const MANIFEST: &str = r#"manifest = 1
[pipeline]
name = "faults"
[[plugin]]
path = "libfault.so"
[buffer.x]
dtype = "f32"
shape = [4]
init = { fill = "rank" }
save = "x-{rank}.npy"
[[task]]
op = "all_reduce"
args = { buffer = "x", reduce = "sum" }
"#;

/// Runs with the C plugin that has this fault.
fn run(fault: &str) -> Said {
    let folder = Folder::new();
    let define = format!("-DFAULT={fault}");
    cc("plugins/misbehaving/faults.c", &["-shared", &define], folder.path("libfault.so"));
    run_in(&folder)
}

fn run_in(folder: &Folder) -> Said {
    folder.write("m.toml", MANIFEST);
    let said = folder.squall(&["run", "m.toml", "--devices", "host:0..2"]);
    let saved = folder.path("x-0.npy").exists();
    assert_eq!(saved, said.status == Some(0), "an output was written though the run was refused");
    said
}

macro_rules! refused {
    ($($test:ident = $fault:literal)*) => {$(
        #[test]
        fn $test() {
            let said = run($fault);
            assert_eq!(said.status, Some(2), "{}", said.error);
            assert_eq!(said.output, "");
            insta::assert_snapshot!(stringify!($test), said.error);
        }
    )*};
}

refused! {
    a_table_of_a_wrong_magic = "WRONG_MAGIC"
    another_major_version = "OTHER_MAJOR"
    a_table_that_is_too_short = "SHORT_TABLE"
    no_table_for_this_host = "NULL_TABLE"
    a_library_without_the_entry = "NO_ENTRY"
    an_error_in_init = "INIT_FAILS"
    an_op_without_prepare = "MISSING_FUNCTION"
    an_op_that_squall_has = "DUPLICATE_OP"
    a_kernel_that_squall_has = "DUPLICATE_KERNEL"
}

#[test]
fn a_newer_minor_version_loads_without_a_word() {
    let said = run("NEWER_MINOR");
    assert_eq!((said.status, said.error.as_str()), (Some(0), ""));
}

#[test]
fn a_text_file() {
    let folder = Folder::new();
    folder.write("libfault.so", "no library at all\n");
    let said = run_in(&folder);
    assert_eq!(said.status, Some(2), "{}", said.error);
    insta::assert_snapshot!("a_text_file", said.error);
}

#[test]
fn no_file() {
    let said = run_in(&Folder::new());
    assert_eq!(said.status, Some(2), "{}", said.error);
    insta::assert_snapshot!("no_file", said.error);
}
