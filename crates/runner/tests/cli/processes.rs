//! A job of several processes, as far as it goes on the host without MPI: who a process is, and the meeting.

use std::process::{Command, Stdio};

use crate::harness::{Ended, Folder, scaled};

/// A place to meet that no other test has.
fn place(test: u8) -> String {
    let process = std::process::id();
    format!("tcp://127.{}.{}.{test}:29499", process >> 8 & 0x7f | 0x80, process & 0xff)
}

/// `squall run m.toml` as one of several processes, started and not waited for.
fn started(folder: &Folder, args: &[&str]) -> std::process::Child {
    let mut command: Command = folder.command(&[&["run", "m.toml", "--devices", "host:0"], args].concat());
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn ended(child: std::process::Child) -> Ended {
    Ended::of(child.wait_with_output().unwrap())
}

#[test]
fn what_makes_no_sense_is_refused_with_its_flags_or_variables() {
    let folder = Folder::with(&scaled("init = { fill = 1 }"));
    folder
        .squall(&["run", "m.toml", "--world", "2", "--rank", "2"])
        .failed(2, &["error[E0166]", "this process has rank 2 of a world of 2", "squall doctor"]);
    folder.squall(&["run", "m.toml", "--world", "2"]).failed(2, &["error[E0166]", "goes with --rank"]);
    let mut command = folder.command(&["run", "m.toml"]);
    command.env("PMI_RANK", "x").env("PMI_SIZE", "2");
    Ended::of(command.output().unwrap()).failed(2, &["error[E0166]", "PMI_RANK=x", "MPICH"]);
    folder
        .squall(&["run", "m.toml", "--devices", "host:0", "--world", "2", "--rank", "0"])
        .failed(2, &["error[E0166]", "--rendezvous tcp://HOST:PORT"]);
}

#[test]
fn ranks_that_do_not_come_are_named_and_those_on_the_host_meet_first() {
    let folder = Folder::with(&scaled("init = { fill = 1 }"));
    let place = place(1);
    let args = |rank: &'static str, limit: &'static str| {
        ["--world", "2", "--rank", rank, "--rendezvous", &place, "--init-timeout", limit].map(str::to_string)
    };
    let begin = |rank, limit| {
        let args = args(rank, limit);
        started(&folder, &args.each_ref().map(String::as_str))
    };
    ended(begin("0", "300ms")).failed(3, &["error[E0167]", "rank 1 of 2 did not come within 300.0ms"]);
    let both = [begin("0", "60s"), begin("1", "60s")];
    for child in both {
        // Without MPI the meeting is all that ranks on the host can do.
        ended(child).failed(4, &["ranks on the host in several processes speak MPI"]);
    }
}

#[test]
fn plans_that_differ_end_all_with_the_same_words() {
    let folder = Folder::with(&scaled("init = { fill = 1 }"));
    let place = place(2);
    let both = [("0", "1"), ("1", "2")].map(|(rank, steps)| {
        started(&folder, &["--world", "2", "--rank", rank, "--rendezvous", &place, "--steps", steps])
    });
    for child in both {
        ended(child).failed(2, &["error[E0167]: the number of steps differs: rank 0 has 1, rank 1 has 2"]);
    }
}

#[test]
fn checkpoints_take_one_process() {
    let text = scaled("init = { fill = 1 }");
    let folder = Folder::with(&format!("{text}\n[checkpoint]\ndir = \"ckpt\"\nevery = 1\n"));
    let place = place(3);
    let one = started(&folder, &["--world", "2", "--rank", "0", "--rendezvous", &place]);
    ended(one).failed(2, &["error[E0168]", "a job of several processes takes no checkpoints yet"]);
}
