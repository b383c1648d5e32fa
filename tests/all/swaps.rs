//! Buffers that are swapped are as if their contents were: in steps, in the setup and the finish, watched, saved, observed.

use std::fmt::Write as _;
use std::sync::{Arc, Mutex};

use squall_core::graph::KernelSpec;
use squall_core::{
    BufferDecl, BufferId, DType, DeviceError, Observer, Options, Phase, PlanGroup, SwapSpec, Upload, Written,
    codes,
};
use squall_runner::run::Number;
use squall_tests::pipelines::in_turns;
use squall_tests::{Copied, WORLDS, bind, graphs, hosts, registry, run_file, run_text_on};

#[test]
fn names_that_take_turns_are_read_and_written_as_what_they_stand_for() {
    for world in WORLDS {
        in_turns("host", world, Options::default());
    }
}

/// The example, whose steps swap, and the same with two time steps a step, from `u` to `v` and back.
#[test]
fn heat_that_swaps_is_the_heat_that_goes_to_and_fro() {
    let copied = Copied::new("heat");
    let (example, back) = (copied.path("heat.toml"), copied.path("back.toml"));
    let text = std::fs::read_to_string(&example).unwrap();
    let begin = text.find("[[task]]").unwrap();
    let (to, rest) = text[begin..].split_once("[[task]]\nswap = [\"u\", \"v\"]\n").unwrap();
    let fro = to.replace("\"u", "\"?").replace("\"v", "\"u").replace("\"?", "\"v");
    let fro = fro.replace("exchange", "exchange-v").replace("time-step", "time-step-v");
    std::fs::write(&back, format!("{}{to}{fro}{rest}", &text[..begin])).unwrap();
    for (world, steps) in [(1, 1), (3, 2), (4, 25)] {
        run_file(&back, Some(&hosts(world)), Some(steps)).unwrap();
        let expected = copied.read::<f32>("out/heat.npy");
        run_file(&example, Some(&hosts(world)), Some(2 * steps)).unwrap();
        assert!(copied.read::<f32>("out/heat.npy") == expected, "{world} ranks, {steps} steps");
    }
}

/// The buffers of a random program.
const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];
const RANKS: usize = 2;

/// A task over the buffers of these places.
#[derive(Clone, Copy, Debug)]
enum Task {
    Add([usize; 3]),
    Copy([usize; 2]),
    Negate(usize),
    /// The sum over all ranks.
    Sum(usize),
    /// On one rank, or on all.
    Swap([usize; 2], Option<usize>),
}

/// What the buffers of every rank hold.
type Contents = [[i64; NAMES.len()]; RANKS];

impl Task {
    fn random(next: &mut dyn FnMut(usize) -> usize) -> Task {
        let [a, mut b, out] = [(); 3].map(|()| next(NAMES.len()));
        if a == b {
            b = (b + 1) % NAMES.len();
        }
        match next(9) {
            0 => Task::Add([a, b, out]),
            1 => Task::Copy([a, b]),
            2 => Task::Negate(a),
            3 => Task::Sum(a),
            4 => Task::Swap([a, b], Some(next(RANKS))),
            _ => Task::Swap([a, b], None),
        }
    }

    fn write(self, section: &str, text: &mut String) {
        let kernel =
            |name: &str, args: String| format!("kernel = \"{name}\"\nargs = {{ {args} }}\ngrid = 1\n");
        let body = match self {
            Task::Add(of) => {
                let [a, b, out] = of.map(|place| NAMES[place]);
                kernel("add", format!("a = \"{a}\", b = \"{b}\", out = \"{out}\""))
            }
            Task::Copy(of) => {
                let [src, dst] = of.map(|place| NAMES[place]);
                kernel("copy", format!("src = \"{src}\", dst = \"{dst}\""))
            }
            Task::Negate(place) => kernel("scale", format!("data = \"{}\", factor = -1", NAMES[place])),
            Task::Sum(place) => {
                format!("op = \"all_reduce\"\nargs = {{ buffer = \"{}\", reduce = \"sum\" }}\n", NAMES[place])
            }
            Task::Swap(of, rank) => {
                let when = rank.map(|rank| format!("when = \"rank == {rank}\"\n")).unwrap_or_default();
                format!("{when}swap = {:?}\n", of.map(|place| NAMES[place]))
            }
        };
        let _ = write!(text, "[[{section}]]\n{body}");
    }

    /// What it does: a swap exchanges what two buffers hold.
    fn run(self, all: &mut Contents) {
        let total =
            |place: usize, all: &Contents| all.iter().fold(0i64, |sum, on| sum.wrapping_add(on[place]));
        match self {
            Task::Sum(place) => {
                *all = all.map(|mut on| {
                    on[place] = total(place, all);
                    on
                })
            }
            _ => all.iter_mut().enumerate().for_each(|(rank, on)| match self {
                Task::Add([a, b, out]) => on[out] = on[a].wrapping_add(on[b]),
                Task::Copy([src, dst]) => on[dst] = on[src],
                Task::Negate(place) => on[place] = on[place].wrapping_neg(),
                Task::Swap([a, b], only) if only.is_none_or(|only| only == rank) => on.swap(a, b),
                Task::Swap(..) | Task::Sum(_) => {}
            }),
        }
    }
}

/// After how many steps all ranks' names stand for what they did, by trying.
fn period(step: &[Task]) -> u64 {
    let begin: Contents = [[0, 1, 2, 3, 4]; RANKS];
    let mut names = begin;
    for steps in 1.. {
        step.iter().filter(|task| matches!(task, Task::Swap(..))).for_each(|task| task.run(&mut names));
        if names == begin {
            return steps;
        }
    }
    unreachable!("a permutation has an order")
}

#[test]
fn random_programs_do_what_they_would_if_contents_were_swapped() {
    let mut seed = 11u64;
    let mut next = |n: usize| {
        seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (seed >> 33) as usize % n
    };
    // How many programs had this period; in the end, those of which it was too long.
    let mut periods = [0; 6];
    for _ in 0..30 {
        let [setup, step, finish] = [2, 6, 3].map(|most| {
            let tasks = next(most + 1);
            (0..tasks).map(|_| Task::random(&mut next)).collect::<Vec<_>>()
        });
        let period = period(&step);
        periods[period.min(5) as usize] += 1;
        let mut text = String::new();
        for (place, name) in NAMES.iter().enumerate() {
            let _ = write!(
                text,
                "[buffer.{name}]\ndtype = \"i64\"\nshape = [1]\ninit = {{ fill = \"10 * rank + {place}\" }}\n\
                 save = \"{name}-{{rank}}.npy\"\n[[setup]]\nkernel = \"scale\"\n\
                 args = {{ data = \"{name}\", factor = 1 }}\ngrid = 1\n"
            );
            for rank in 0..RANKS {
                let _ = write!(
                    text,
                    "[[watch]]\nname = \"{name} on {rank}\"\nvalue = \"{name}\"\nevery = 1\nrank = {rank}\n"
                );
            }
        }
        for (section, tasks) in [("setup", &setup), ("task", &step), ("finish", &finish)] {
            tasks.iter().for_each(|task| task.write(section, &mut text));
        }
        let run = |steps: u64| run_text_on(&hosts(RANKS as u32), &format!("steps = {steps}\n{text}"));
        if period > 4 {
            let refused = run(1).unwrap_err().diagnostics().unwrap();
            assert!(refused.iter().any(|report| report.code == codes::TURNS), "{refused:#?}\n{text}");
            continue;
        }
        for steps in 1..=9 {
            let ran = run(steps).unwrap_or_else(|error| panic!("{error}\n{text}"));
            let mut contents: Contents =
                std::array::from_fn(|rank| std::array::from_fn(|place| (10 * rank + place) as i64));
            setup.iter().for_each(|task| task.run(&mut contents));
            for done in 0..steps as usize {
                step.iter().for_each(|task| task.run(&mut contents));
                for (rank, place) in
                    (0..RANKS).flat_map(|rank| (0..NAMES.len()).map(move |place| (rank, place)))
                {
                    let watched = ran.summary.watched.of(&format!("{} on {rank}", NAMES[place]));
                    let value = Some(Number::Int(contents[rank][place].into()));
                    assert_eq!(watched[done].value, value, "{} on {rank} after {done}\n{text}", NAMES[place]);
                }
            }
            finish.iter().for_each(|task| task.run(&mut contents));
            for (rank, name) in (0..RANKS).flat_map(|rank| NAMES.map(|name| (rank, name))) {
                let place = NAMES.iter().position(|other| *other == name).unwrap();
                let saved = ran.saved::<i64>(name, rank as u32);
                assert_eq!(saved, [contents[rank][place]], "{name} on {rank} after {steps} steps\n{text}");
            }
        }
    }
    assert!(periods[1..].iter().all(|&programs| programs > 0), "{periods:?}");
}

/// Which buffer a task wrote in which step, and what.
#[derive(Default)]
struct Seen(Mutex<Vec<(Phase, u64, BufferId, i32)>>);

impl Observer for Seen {
    fn written(&self, written: &Written<'_>, bytes: &mut [u8]) -> Result<bool, DeviceError> {
        let Written { phase, step, range, .. } = *written;
        self.0.lock().unwrap().push((phase, step, range.buffer, bytemuck::pod_read_unaligned(bytes)));
        Ok(false)
    }
}

/// One rank: `u` begins at 1, and each step leaves its double in it, by way of `v`.
fn doubling() -> PlanGroup {
    let kernel = |name: &str| KernelSpec::new(registry().kernel(name).unwrap()).grid(1, 32);
    let graphs = graphs(1, |_, graph| {
        let u = graph.buffer(BufferDecl::new("u", DType::I32, [1]).upload(Upload::First));
        let v = graph.buffer(BufferDecl::new("v", DType::I32, [1]));
        graph.step(kernel("add").arg("a", u).arg("b", u).arg("out", v));
        graph.step(SwapSpec::new(u, v));
        graph.finish(kernel("scale").arg("data", u).arg("factor", 10));
        graph.finish(SwapSpec::new(u, v));
    });
    let mut group = bind(graphs, Options::default());
    group.write(0, BufferId(0), &[1]).unwrap();
    group
}

#[test]
fn an_observer_sees_what_a_task_names_in_every_turn() {
    let (mut group, seen) = (doubling(), Arc::new(Seen::default()));
    let observer: Arc<dyn Observer> = seen.clone();
    group.observe(&observer).unwrap();
    group.execute_many(3).unwrap();
    group.finish().unwrap();
    let (u, v) = (BufferId(0), BufferId(1));
    let wanted =
        [(Phase::Step, 0, v, 2), (Phase::Step, 1, v, 4), (Phase::Step, 2, v, 8), (Phase::Finish, 0, u, 80)];
    assert_eq!(*seen.0.lock().unwrap(), wanted);
}

/// What a finish swaps holds until the next step or finish begins, where the steps left the names.
#[test]
fn steps_after_a_finish_begin_where_the_steps_left_the_names() {
    let mut group = doubling();
    let (u, v) = (BufferId(0), BufferId(1));
    let mut read = |steps: u64, finishes: usize| {
        group.execute_many(steps).unwrap();
        (0..finishes).for_each(|_| group.finish().unwrap());
        [u, v].map(|buffer| group.read::<i32>(0, buffer).unwrap()[0])
    };
    assert_eq!(read(3, 0), [8, 4]);
    assert_eq!(read(0, 1), [4, 80]);
    assert_eq!(read(0, 2), [4, 8000]);
    assert_eq!(read(1, 0), [16000, 8000]);
    assert_eq!(read(4, 1), [128000, 2560000]);
}
