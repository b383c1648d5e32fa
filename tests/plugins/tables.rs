//! Tables that are spoiled in one place: each is refused in words that name the place, and nothing of it is followed.

use crate::built::{Folder, Said, cc};

const MANIFEST: &str = r#"manifest = 1
[pipeline]
name = "tables"
init_timeout = "2s"
step_timeout = "1s"
[[plugin]]
path = "libtables.so"
[buffer.b]
dtype = "f32"
shape = [8]
init = { fill = 1 }
[[task]]
op = "spoiled_op"
args = { x = "b" }
[[task]]
kernel = "spoiled_kernel"
args = { x = "b" }
grid = { threads = 8, block = 32 }
"#;

/// Runs with a plugin whose tables are changed, and whose op returns a status when it is made ready.
fn run(change: &str, prepare: &str) -> Said {
    run_with(&[("CHANGE", change), ("PREPARE", prepare)])
}

/// As the C source says what these mean.
fn run_with(defines: &[(&str, &str)]) -> Said {
    let folder = with(defines);
    folder.squall(&["run", "m.toml", "--devices", "host:0..2"])
}

fn with(defines: &[(&str, &str)]) -> Folder {
    let folder = Folder::new();
    folder.write("m.toml", MANIFEST);
    let defines: Vec<String> = defines.iter().map(|(name, value)| format!("-D{name}={value}")).collect();
    let args: Vec<&str> = std::iter::once("-shared").chain(defines.iter().map(String::as_str)).collect();
    cc("plugins/misbehaving/tables.c", &args, folder.path("libtables.so"));
    folder
}

#[test]
fn what_is_spoiled_is_named() {
    for (change, said) in [
        ("op.name = 0", "an op's name is null"),
        ("op.summary = 0", "its op `spoiled_op`: its summary is null"),
        ("op.library = \"\"", "its op `spoiled_op`: \"\" is no name for a library"),
        ("op.device = \"tpu\"", "its op `spoiled_op`: `tpu` is no kind of device"),
        ("op.params = 0", "its op `spoiled_op`: its parameters are null"),
        ("op.param_count = 65", "its op `spoiled_op`: it has 65 parameters; the most are 64"),
        ("op.uses = 0", "its op `spoiled_op`: the ops that it uses are null"),
        ("uses[0] = 0", "its op `spoiled_op`: the name of an op that it uses is null"),
        ("uses[0] = \"all\"", "uses `all` inside itself, which is not one of squall's own ops"),
        ("op.flags = 255", "its op `spoiled_op`: its flags 0b11111111 have bits"),
        ("op.dtypes = 1 << 20", "bits that stand for no dtypes"),
        ("op.reductions = 1 << 20", "bits that stand for no reductions"),
        ("op.header.struct_size = 20", "an op's table is too short"),
        ("op.header.magic = 0", "an op's table does not begin with the ABI's magic number"),
        ("op.name = \"all_reduce\"", "it has the name of one of squall's own ops"),
        ("ops[0] = 0", "an op's table is null"),
        ("kernel.name = \"a b\"", "\"a b\" is no name for a kernel"),
        ("kernel.example = 0", "its kernel `spoiled_kernel`: its example is null"),
        ("kernel.covers = 0", "its kernel `spoiled_kernel`: what its grid covers are null"),
        ("kernel.cover_count = 4", "its grid covers 4 axes, and there are 3"),
        ("covers[0].kind = 9", "9 is no kind of cover"),
        ("covers[0].param = \"y\"", "its grid covers `y`, which is no parameter"),
        ("pairs[0].read = \"y\"", "it may be in place in `y`, which is no parameter"),
        ("kernel.flags = 8", "its kernel `spoiled_kernel`: its flags 0b1000 have bits"),
        ("kernel.host = 0", "it has no form for any device"),
        ("kernel.cuda_source = \"\"", "the entry of its CUDA source is null"),
        ("kernel.header.struct_size = 20", "a kernel's table is too short"),
        ("kernels[0] = 0", "a kernel's table is null"),
        ("params[1] = 0", "a parameter is null"),
        ("x.name = \"\\xff\"", "a parameter's name is not UTF-8"),
        ("x.kind = 99", "the parameter `x`: 99 is no kind of parameter"),
        ("x.mode = 9", "the parameter `x`: 9 is no mode"),
        ("x.dtypes = 0", "the parameter `x`: it may have no dtype at all"),
        ("x.presence = 77", "the parameter `x`: 77 is no presence"),
        ("x.same = \"n\"", "the parameter `x` refers to `n`, which is no buffer"),
        ("x.kind = SQUALL_PARAM_KIND_WORD", "the parameter `x` takes a word, and there are none"),
        ("n.name = \"x\"", "the parameter `x` is there twice"),
        ("n.of = \"y\"", "the parameter `n` refers to `y`, which is no parameter"),
        ("n.presence = SQUALL_PRESENCE_FALSE", "the parameter `n` is Size and defaults to False"),
        ("plugin.name = 0", "its name is null"),
        ("plugin.version = 0", "its version is null"),
        ("plugin.ops = 0", "its ops are null"),
        ("op.library = \"host\"", "a library has one author"),
        ("covers[0].param = \"n\"", "its grid covers `n` as if that were a buffer"),
        ("covers[0].kind = SQUALL_COVER_KIND_SIZE", "its grid covers `x` as if that were a size"),
        ("pairs[0].read = \"n\"", "it may be in place in `n`, which is no buffer"),
        ("(x.dtypes = 0, x.same = \"x\")", "the parameter `x` has the dtype of `x`, which leads back"),
        ("op.summary = \"\\033[2J\"", "its summary has the control character '\\u{1b}' in it"),
        ("op.alignment = 4096", "asks for ranges aligned to 4096 bytes: it can be a power of two up to 256"),
        ("op.alignment = 24", "asks for ranges aligned to 24 bytes"),
        ("op.describe = matches_much", "numbers that must match are 144115188075855872, more than"),
        ("op.name = \"\"", "an op"),
    ] {
        let ended = run(change, "0");
        assert_eq!(ended.status, Some(2), "{change}: {}", ended.error);
        assert!(ended.error.contains(said), "{change}: {said}\n{}", ended.error);
        // At the place where the plugin is named, or where its op is.
        assert!(ended.error.contains("--> m.toml:"), "{change}\n{}", ended.error);
    }
}

#[test]
fn what_an_op_says_while_it_is_made_ready_is_its_own() {
    for (prepared, status, said) in [
        (0, 1, "the plugin `tables` 1: it made a work without an `enqueue`"),
        (1, 1, "the plugin `tables` 1: it failed without a word, with status 1"),
        (2, 1, "the plugin `tables` 1: it says that it was aborted, and nobody has aborted"),
        (3, 3, "the plugin `tables` 1: it says that the deadline passed"),
        (4, 4, "out of memory: the plugin `tables` 1: it says no more"),
        (5, 1, "lost to this process: the plugin `tables` 1: it says no more"),
        (6, 4, "the plugin `tables` 1: it says no more"),
        (7, 1, "the plugin `tables` 1: it failed without a word, with status 7"),
        (-1, 1, "the plugin `tables` 1: it failed without a word, with status -1"),
    ] {
        let ended = run("(void)0", &prepared.to_string());
        assert_eq!(ended.status, Some(status), "{prepared}: {}", ended.error);
        let named = "host:"; // the rank's device, and the task
        assert!(
            ended.error.contains(said) && ended.error.contains(named),
            "{prepared}: {said}\n{}",
            ended.error
        );
        assert!(ended.error.contains("task `task[0]`"), "{prepared}\n{}", ended.error);
    }
}

/// Each of squall's functions, called with nothing where something must be, and from where it must not.
#[test]
fn what_an_op_calls_wrongly_is_refused() {
    for call in [
        "p->alloc(p, 8, 0, error)",
        "p->alloc_staging(p, 8, 0, 0, error)",
        "p->alloc(0, 8, 0, error)",
        "p->comm(p, 0, 0, error)",
        "p->comm(p, 7, 0, error)",
        "p->kernel(p, 0, 0, 0, 0, 0, error)",
        "p->kernel(p, &kernel, 0, 0, 0, 0, error)",
        "launch(p, SQUALL_ARG_KIND_FLAG, 8, 32, error)",
        "launch(p, SQUALL_ARG_KIND_ABSENT, 8, 32, error)",
        "launch(p, SQUALL_ARG_KIND_BUFFER, 7, 32, error)",
        "launch(p, SQUALL_ARG_KIND_BUFFER, 8, 2048, error)",
        "launch(p, SQUALL_ARG_KIND_BUFFER, 8, 0, error)",
        "p->op(p, 0, 0, 0, 0, 0, error)",
        "p->op(p, \"all_reduce\", 0, 0, 0, 0, error)",
        "p->op(p, \"broadcast\", 0, 0, 0, 0, error)",
        "p->exchange(p, 7, 0, 0, 0, error)",
        "p->exchange(p, 0, 0, 8, 0, error)",
        "p->peer_pointers(p, 0, 0, 0, error)",
        "exchanges_much(p, error)",
        "lists_much(p, error)",
        "from_another_thread(p)",
        // Who asks of nothing whether it is aborted is told to stop.
        "p->abort->is_aborted(0)",
    ] {
        let ended = run("(void)0", call);
        assert_eq!(ended.status, Some(1), "{call}: {}", ended.error);
        let said = ["the plugin `tables` 1: ", "task `task[0]`"];
        assert!(said.iter().all(|part| ended.error.contains(part)), "{call}: {}", ended.error);
        assert!(!ended.error.contains("without an `enqueue`"), "{call} was not refused: {}", ended.error);
    }
}

#[test]
fn a_mend_is_told_and_no_text_steers_the_terminal() {
    let ended = run("(void)0", "with_help(error)");
    assert_eq!(ended.status, Some(1), "{}", ended.error);
    assert!(ended.error.contains("a bad  [2J thing; help: do this instead"), "{}", ended.error);
}

/// Whenever a plugin ends the process, with the status of success too.
#[test]
fn an_exit_is_told_and_is_no_success() {
    for defines in [[("CHANGE", "exit(0)")], [("PREPARE", "(exit(0), 0)")], [("ENQUEUE", "(exit(7), 0)")]] {
        let ended = run_with(&defines);
        assert_eq!(ended.status, Some(1), "{defines:?}: {}", ended.error);
        assert!(ended.error.contains("has called `exit`"), "{defines:?}: {}", ended.error);
    }
}

/// A copy between places that overlap would be undefined.
#[test]
fn a_copy_onto_itself_is_refused() {
    let ended = run_with(&[("ENQUEUE", "stream->copy(stream, 4096, 4100, 8, error)")]);
    assert_eq!(ended.status, Some(1), "{}", ended.error);
    assert!(ended.error.contains("a copy whose two places overlap"), "{}", ended.error);
}

/// The step lasts until it is aborted, which its deadline does; the `abort` never comes back.
#[test]
fn an_abort_that_does_not_return_holds_up_nobody() {
    let ended = run_with(&[("ENQUEUE", "until_aborted(aborted)"), ("ABORT", "forever()")]);
    assert_eq!(ended.status, Some(3), "{}", ended.error);
    assert!(ended.error.contains("error[E0402]: step 0 took longer than"), "{}", ended.error);
}

/// All ranks wait for each other but for one, which fails on its own; what it says is told, whatever becomes of the others.
#[test]
fn what_fails_while_plans_are_made_is_told_though_others_do_not_come_back() {
    let ended = run("(void)0", "last_fails(p, error)");
    assert_eq!(ended.status, Some(1), "{}", ended.error);
    for part in [
        "rank 1 failed in task `task[0]` of binding: the plugin `tables` 1: the last fails",
        "rank 0 has not returned from making `task[0]` ready",
    ] {
        assert!(ended.error.contains(part), "{part}: {}", ended.error);
    }
}

/// One rank exchanges values, and the other does not.
#[test]
fn who_is_waited_for_is_named() {
    let ended = run("(void)0", "one_exchanges(p, work, error)");
    assert_eq!(ended.status, Some(3), "{}", ended.error);
    let said = "the plugin `tables` 1: it waited for rank 1, to exchange values on `world`, until the deadline passed";
    assert!(ended.error.contains(said), "{}", ended.error);
}

/// All ranks fail in the same task, and some may be said to fail, too: there, and not in the task before.
#[test]
fn ranks_that_fail_at_once_are_told_of_in_their_own_task() {
    let folder = with(&[("ENQUEUE", "SQUALL_FAILED")]);
    let before = "[[task]]\nname = \"before\"\nkernel = \"scale\"\nargs = { data = \"b\", factor = 2 }\ngrid = { threads = 8, block = 8 }\n";
    let manifest = MANIFEST.replacen("[[task]]", &format!("{before}[[task]]"), 1);
    folder.write("m.toml", &manifest);
    for _ in 0..40 {
        let ended = folder.squall(&["run", "m.toml", "--devices", "host:0..4"]);
        assert_eq!(ended.status, Some(1), "{}", ended.error);
        assert!(!ended.error.contains("failed, too, in `before`"), "{}", ended.error);
    }
}
