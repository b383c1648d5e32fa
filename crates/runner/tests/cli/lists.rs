//! `list` and `doctor`.

use crate::harness::Folder;

/// The lines that begin at the margin, up to the colon.
fn heads(text: &str) -> Vec<&str> {
    let lines = text.lines().filter(|line| !line.starts_with(' '));
    lines.map(|line| line.split(':').next().unwrap()).collect()
}

fn list(what: &str) -> String {
    Folder::new().squall(&["list", what]).done().out
}

/// A crate that nothing names is not linked, and a linker may drop what nothing refers to: of this test, the gate runs
/// the optimised build too.
#[test]
fn exactly_these_kernels_are_linked() {
    assert_eq!(heads(&list("kernels")), KERNELS);
}

const KERNELS: &[&str] = &[
    "accuracy_count",
    "add",
    "axpy",
    "bias_rows",
    "cast",
    "copy",
    "copy_2d",
    "div",
    "dot",
    "fill",
    "iota",
    "matmul_nn",
    "matmul_nt",
    "matmul_tn",
    "mul",
    "permute",
    "relu",
    "relu_grad",
    "scale",
    "sgd",
    "softmax_cross_entropy",
    "sqrt",
    "stencil5",
    "sub",
    "sum",
    "sum_rows",
];

#[test]
fn exactly_these_ops_are_linked_and_served() {
    let text = list("ops");
    let ops = [
        "all_gather",
        "all_reduce",
        "all_to_all",
        "broadcast",
        "gather",
        "recv",
        "reduce",
        "reduce_scatter",
        "scatter",
        "send",
        "send_recv",
    ];
    assert_eq!(heads(&text), ops);
    assert_eq!(
        text.matches("\n    by host on host devices, from squall-host-backend ").count(),
        ops.len(),
        "{text}"
    );
    assert_eq!(
        text.matches("\n    by nccl on cuda devices, from squall-nccl-ops ").count(),
        ops.len(),
        "{text}"
    );
}

#[test]
fn a_signature_has_kinds_defaults_and_the_grid() {
    let kernels = list("kernels");
    let start = kernels.find("matmul_nn").unwrap();
    let end = start + kernels[start..].find("\nmatmul_nt").unwrap();
    insta::assert_snapshot!(&kernels[start..end]);
    let ops = list("ops");
    let start = ops.find("send_recv").unwrap();
    insta::assert_snapshot!(&ops[start..]);
}

#[test]
fn everything_is_listed_under_headings() {
    let all = Folder::new().squall(&["list"]).done().out;
    let headings: Vec<&str> = all.lines().filter(|line| line.starts_with('#')).collect();
    assert_eq!(headings, ["# kernels", "# ops", "# devices", "# plugins"]);
    for what in ["kernels", "ops", "plugins"] {
        assert!(all.contains(&list(what)), "{what}");
    }
    // What a build offers is told without asking the machine.
    assert!(all.contains("\ncuda: `squall list devices` asks this machine\n    ops by nccl unless"), "{all}");
}

#[test]
fn devices_and_plugins() {
    assert_eq!(
        list("devices"),
        "cuda: none: the NVIDIA driver cannot be opened as SQUALL_CUDA_DRIVER says; `squall doctor` tells more\n    \
             ops by nccl unless a task names another; a device is not shared by ranks\n\
         host: any number\n    \
             ops by host unless a task names another; a device may be shared by ranks\n"
    );
    assert_eq!(list("plugins"), "none: `--plugin PATH` names one, and a manifest names its own\n");
    Folder::new().squall(&["list", "kernel"]).failed(2, &["'kernel'", "kernels"]);
}

#[test]
fn doctor_finds_what_is_there() {
    let doctor = Folder::new().squall(&["doctor"]).done();
    assert_eq!(doctor.err, "");
    let cores = std::thread::available_parallelism().unwrap();
    let found =
        doctor.out.replace(&format!("{cores} cores"), "[n] cores").replace(std::env::consts::ARCH, "[arch]");
    insta::assert_snapshot!(found.replace(env!("CARGO_PKG_VERSION"), "[version]"));
}
