//! Every example runs to its end, and gives what is worked out here a second time, without squall.

use std::fs;

use squall_tests::{Copied, examples, hosts, run_file};

#[test]
fn every_manifest_is_tested_here_and_told_of_in_the_table() {
    let mut found = Vec::new();
    for folder in fs::read_dir(examples()).unwrap().map(|entry| entry.unwrap().path()) {
        let files = fs::read_dir(&folder).into_iter().flatten().map(|entry| entry.unwrap().path());
        found.extend(files.filter(|file| file.extension().is_some_and(|e| e == "toml")));
    }
    let mut found: Vec<String> =
        found.iter().map(|f| f.strip_prefix(examples()).unwrap().to_str().unwrap().to_string()).collect();
    found.sort();
    let tested = [
        "all-to-all/all-to-all.toml",
        "average-gradients/average-gradients.toml",
        "conjugate-gradient/cg.toml",
        "digits/epochs.toml",
        "digits/eval.toml",
        "digits/resume.toml",
        "digits/sharded.toml",
        "digits/train.toml",
        "experts/experts.toml",
        "heat/grid.toml",
        "heat/heat.toml",
        "pipeline/pipeline.toml",
        "pipeline/train.toml",
        "rust-average/Cargo.toml", // tests itself
        "tensor-parallel/mlp.toml",
    ];
    assert_eq!(found, tested);
    let table = fs::read_to_string(examples().join("README.md")).unwrap();
    for example in tested {
        let named = example.strip_suffix("/Cargo.toml").unwrap_or(example);
        assert!(table.contains(named), "examples/README.md does not tell of {named}");
    }
}

#[test]
fn average_gradients() {
    let copied = Copied::new("average-gradients");
    let summary = run_file(&copied.path("average-gradients.toml"), None, None).unwrap();
    assert_eq!((summary.world, summary.steps, summary.outputs.len()), (2, 3, 2));
    for rank in 0..2 {
        let (grads, shape) = copied.read::<f32>(&format!("out/grads-{rank}.npy"));
        // 2 × 1 and 2 × 2 average to 3, and half of that is what every later step finds and leaves.
        assert_eq!((grads, shape), (vec![1.5; 4096], vec![4096]));
    }
}

#[test]
fn digits_are_learnt_and_recognised() {
    let copied = Copied::new("digits");
    let trained = run_file(&copied.path("train.toml"), None, None).unwrap();
    let losses: Vec<f64> =
        trained.watched.of("loss").iter().map(|reading| reading.value.unwrap().as_f64()).collect();
    assert_eq!(losses.len(), 9);
    assert!(losses[0] < 10f64.ln(), "no better than guessing: {losses:?}");
    assert!(losses[8] < losses[0] / 2.0 && losses[4] < losses[0], "the loss does not fall: {losses:?}");

    let tested = run_file(&copied.path("eval.toml"), None, None).unwrap();
    let accuracy = tested.watched.of("accuracy")[0].value.unwrap().as_f64();
    assert!(accuracy >= 0.95, "{accuracy}");

    // The count again, from what was saved.
    let (w, shape) = copied.read::<f32>("out/w.npy");
    let (b, _) = copied.read::<f32>("out/b.npy");
    let (x, _) = copied.read::<f32>("data/digits-test-x.npy");
    let (labels, _) = copied.read::<i32>("data/digits-test-y.npy");
    assert_eq!((shape, b.len(), labels.len()), (vec![64, 10], 10, 352));
    let recognised = |(x, label): &(&[f32], &i32)| {
        let score =
            |class: usize| x.iter().zip(w.chunks(10)).map(|(x, w)| x * w[class]).sum::<f32>() + b[class];
        (0..10).all(|class| score(class) <= score(**label as usize))
    };
    let correct = x.chunks(64).zip(&labels).filter(recognised).count();
    assert_eq!(accuracy, correct as f64 / 352.0);

    // Shares of any size count the same rows.
    for world in [1, 3, 7] {
        let tested = run_file(&copied.path("eval.toml"), Some(&hosts(world)), None).unwrap();
        assert_eq!(tested.watched.of("accuracy")[0].value.unwrap().as_f64(), accuracy, "world {world}");
    }
}

/// The plate after so many time steps, with its edges, worked out by one loop.
fn plate(n: usize, time_steps: usize) -> Vec<f32> {
    let width = n + 2;
    let mut old: Vec<f32> = (0..width * width).map(|i| if i < width { 1.0 } else { 0.0 }).collect();
    let mut new = old.clone();
    for _ in 0..time_steps {
        for y in 1..=n {
            for at in y * width + 1..=y * width + n {
                let neighbours = (old[at - 1] + old[at + 1]) + (old[at - width] + old[at + width]);
                new[at] = old[at] + 0.25 * (neighbours - 4.0 * old[at]);
            }
        }
        std::mem::swap(&mut old, &mut new);
    }
    old
}

#[test]
fn heat_spreads_as_in_one_loop() {
    let copied = Copied::new("heat");
    let manifest = copied.path("heat.toml");
    let (n, width) = (128, 130);
    for (devices, steps) in [(None, 5000), (Some(hosts(1)), 81), (Some(hosts(3)), 80), (Some(hosts(7)), 80)] {
        let summary = run_file(&manifest, devices.as_ref(), Some(steps)).unwrap();
        let (result, shape) = copied.read::<f32>("out/heat.npy");
        assert_eq!(shape, [n as u64, width as u64], "world {}", summary.world);
        let expected = plate(n, steps as usize);
        // The rows between the hot edge and the cold one opposite.
        assert!(result == expected[width..width * (n + 1)], "world {}, {steps} steps", summary.world);
    }
    // The picture of the last run: bright at the top, black at the bottom.
    let file = fs::File::open(copied.path("out/heat.png")).unwrap();
    let mut picture = png::Decoder::new(std::io::BufReader::new(file)).read_info().unwrap();
    let mut pixels = vec![0; picture.output_buffer_size().unwrap()];
    let info = picture.next_frame(&mut pixels).unwrap();
    assert_eq!((info.width, info.height, info.color_type), (130, 128, png::ColorType::Grayscale));
    assert_eq!(pixels.len(), 128 * 130);
    assert!(pixels[65] > 200 && pixels[127 * 130 + 65] == 0, "{} {}", pixels[65], pixels[127 * 130 + 65]);
}

#[test]
fn all_to_all_transposes() {
    let copied = Copied::new("all-to-all");
    for (devices, world) in [(None, 4), (Some(hosts(1)), 1), (Some(hosts(3)), 3), (Some(hosts(7)), 7)] {
        run_file(&copied.path("all-to-all.toml"), devices.as_ref(), None).unwrap();
        let (transposed, shape) = copied.read::<i32>("out/transposed.npy");
        let n = 3 * world;
        assert_eq!(shape, [n as u64, n as u64]);
        let expected: Vec<i32> = (0..n * n).map(|at| at % n * n + at / n).collect();
        assert_eq!(transposed, expected, "world {world}");
    }
}

#[test]
fn pipeline_is_one_layer_after_the_other() {
    let copied = Copied::new("pipeline");
    let (rows, d) = (48, 64); // three micro-batches of 16 rows
    let mut layers: Vec<f32> = (0..rows * d).map(|i| (i as i32 * 37 % 101 - 50) as f32 / 50.0).collect();
    for stage in 0..3 {
        let weight = |i: usize| (((i * 29 + stage) % 83) as i32 - 41) as f64 / 200.0;
        let w: Vec<f32> = (0..d * d).map(|i| weight(i) as f32).collect();
        // Every sum in the order that the kernel promises: the same bits.
        let product = |at: usize| (0..d).fold(0.0, |sum, k| sum + layers[at / d * d + k] * w[k * d + at % d]);
        layers = (0..rows * d).map(product).collect();
        let devices = hosts(stage as u32 + 1);
        let devices = (stage != 1).then_some(&devices); // two is what the manifest names itself
        run_file(&copied.path("pipeline.toml"), devices, None).unwrap();
        let (y, shape) = copied.read::<f32>("out/y.npy");
        assert_eq!(shape, [3, 16, 64]);
        assert!(y == layers, "{} layers", stage + 1);
    }
}
