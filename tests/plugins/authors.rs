//! What an author of a plugin meets: the tutorial, command by command; what `squall new` writes; and `squall plugin check`, on the plugins of the workspace.

use std::process::Command;
use std::{env, fs};

use crate::built::{Folder, checkout, ring_plugin, rust_plugin, squall, target};

const TUTORIAL: &str = include_str!("../../docs/collective.md");

/// The blocks of this kind in the tutorial.
fn blocks(kind: &str) -> Vec<&'static str> {
    let fence = format!("\n```{kind}\n");
    TUTORIAL.split(&fence).skip(1).map(|rest| rest.split("\n```").next().unwrap()).collect()
}

/// Runs commands one after the other as a reader would, with `squall` on the path, in a folder of its own. Crates that are begun there build
/// as the workspace's do and beside them, from what is on this machine.
fn reader(commands: &str, begun: &str) -> String {
    let folder = Folder::new();
    fs::create_dir(folder.path(".cargo")).unwrap();
    folder.write(
        ".cargo/config.toml",
        "[net]\noffline = true\n[profile.dev]\nopt-level = 1\n[profile.dev.package.\"*\"]\nopt-level = 2\ndebug = false\n",
    );
    let enter = format!("cd {begun}\n");
    assert!(commands.contains(&enter), "{commands}");
    let prepared = format!("{enter}ln -s \"$SHARED\" target\ncp \"$SQUALL\"/Cargo.lock .\n");
    let script = commands.replacen(&enter, &prepared, 1);
    let path = env::join_paths(
        [squall().parent().unwrap().to_path_buf()]
            .into_iter()
            .chain(env::split_paths(&env::var_os("PATH").unwrap())),
    );
    let mut command = Command::new("bash");
    command.args(["-euo", "pipefail", "-c", &script]).current_dir(folder.path(""));
    command.env("PATH", path.unwrap()).env("SQUALL", checkout()).env("SHARED", target());
    // Those of the test itself would be taken for the crate's.
    for (name, _) in env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_PKG_")) {
        command.env_remove(name);
    }
    let output = command.env_remove("CARGO_TARGET_DIR").env_remove("CARGO_MANIFEST_DIR").output().unwrap();
    let [out, err] = [output.stdout, output.stderr].map(|said| String::from_utf8(said).unwrap());
    assert!(output.status.success(), "{}\n{script}\n{out}{err}", output.status);
    out
}

#[test]
fn the_tutorials_code_is_that_of_its_plugin() {
    let code = fs::read_to_string(checkout().join("plugins/clip-norm/src/lib.rs")).unwrap();
    let quoted = blocks("rust");
    assert!(quoted.len() >= 7, "{}", quoted.len());
    for block in quoted {
        assert!(code.contains(block), "plugins/clip-norm/src/lib.rs does not have\n{block}");
    }
}

#[test]
fn the_tutorials_commands_do_what_it_says() {
    let commands = blocks("sh").join("\n");
    let said = reader(&format!("{commands}\n"), "clip-norm");
    for part in [
        "trials held",
        "op `clip_norm` by clip-norm, with `all_reduce` by host inside",
        "job.toml: 1000 ranks, 1000 tasks, verified",
        "wrote out/grad-3.npy",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
}

#[test]
fn a_plugin_that_was_begun_builds_and_holds() {
    let said = reader(
        "squall new plugin my-op --squall \"$SQUALL\"\ncd my-op\ncargo build --quiet\ncargo test --quiet\n\
         squall plugin check target/debug/libmy_op.so\n\
         sed -i s:target/release:target/debug: job.toml\nsquall run job.toml\n",
        "my-op",
    );
    for part in ["wrote my-op", "1 passed", "6 trials held", "x = 1.5\n"] {
        assert!(said.contains(part), "{part}\n{said}");
    }
}

#[test]
fn the_plugins_of_the_workspace_hold() {
    let rust = ["clip-norm", "top-k-reduce", "squall-blas"].map(rust_plugin);
    for path in rust.iter().map(|path| path.as_path()).chain([ring_plugin()]) {
        let said = Folder::new().squall(&["plugin", "check", path.to_str().unwrap()]);
        assert_eq!((said.status, said.error.as_str()), (Some(0), ""), "{}", said.output);
        assert!(said.output.ends_with("trials held\n"), "{}", said.output);
    }
}

/// Of what is wrong, each says so.
#[test]
fn a_plugin_that_does_not_hold_is_told_of() {
    let path = rust_plugin("misbehaving");
    let said = Folder::new().squall(&["plugin", "check", path.to_str().unwrap()]);
    assert_eq!(said.status, Some(1), "{}", said.output);
    for (op, why) in [
        ("panics_in_prepare", "panicked: no rank is ever ready"),
        ("panics_in_enqueue", "panicked: no step is ever done"),
        ("fails_on_one_rank", "the last rank will not"),
        ("never_ends_on_one_rank", "leaked"),
    ] {
        let line = said
            .output
            .lines()
            .find(|line| line.starts_with("FAILED") && line.contains(op) && line.contains(why));
        assert!(line.is_some(), "{op}: {why}\n{}", said.output);
    }
    assert!(said.error.contains("trials failed"), "{}", said.error);
}
