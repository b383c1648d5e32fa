//! What listings, manifests and checks read of the kernels.

use squall_core::{DType, KernelDef, ParamKind, Presence, Registry, Type};
use squall_kernels_std as _;

fn kernels() -> Vec<&'static KernelDef> {
    let registry = Registry::linked().unwrap();
    registry.kernels().map(|(kernel, _)| kernel).collect()
}

#[test]
fn the_list_is_exact() {
    let names: Vec<&str> = kernels().iter().map(|k| k.name).collect();
    assert_eq!(
        names,
        [
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
        ]
    );
}

#[test]
fn descriptors_are_whole() {
    for kernel in kernels() {
        let name = kernel.name;
        assert!(kernel.runs_on("host"), "{name}");
        assert!(!kernel.summary.is_empty() && !kernel.summary.ends_with('.'), "{name}: {}", kernel.summary);
        assert!(!kernel.covers.is_empty(), "{name} does not say which grid it wants");
        let param = |wanted: &str| kernel.params.iter().find(|p| p.name == wanted);
        for (index, p) in kernel.params.iter().enumerate() {
            assert!(!p.doc.is_empty() && !p.doc.ends_with('.'), "{name}: {}", p.name);
            assert!(!kernel.params[..index].iter().any(|other| other.name == p.name), "{name}: {}", p.name);
            if let ParamKind::Buffer(_, Type::Same(other)) | ParamKind::Scalar(Type::Same(other)) = p.kind {
                assert!(
                    matches!(param(other).unwrap().kind, ParamKind::Buffer(_, Type::In(_))),
                    "{name}: {}",
                    p.name
                );
            }
            if let Presence::Dim(other, _) | Presence::ShapeOf(other) | Presence::Len(other) = p.presence {
                assert!(matches!(param(other).unwrap().kind, ParamKind::Buffer(..)), "{name}: {}", p.name);
            }
        }
        for cover in kernel.covers {
            use squall_core::Cover::*;
            match *cover {
                Len(other) | Dim(other, _) => {
                    assert!(matches!(param(other).unwrap().kind, ParamKind::Buffer(..)))
                }
                Size(other) => assert_eq!(param(other).unwrap().kind, ParamKind::Size),
                Any => {}
            }
        }
        for (written, read) in kernel.in_place {
            let mode = |p: &str| match param(p).unwrap().kind {
                ParamKind::Buffer(mode, _) => mode,
                other => panic!("{name}: {other:?}"),
            };
            assert!(mode(written).writes() && !mode(read).writes(), "{name}: {written}, {read}");
        }
    }
}

/// The runner's tests run the examples; this one finds misspelt parameters and dtypes without it.
#[test]
fn examples_name_what_there_is() {
    for kernel in kernels() {
        let name = kernel.name;
        let manifest: toml::Table = kernel.example.parse().unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(manifest["manifest"].as_integer(), Some(1), "{name}");
        assert_eq!(manifest["pipeline"]["name"].as_str(), Some(name));
        let buffers = manifest["buffer"].as_table().unwrap();
        let [task] = manifest["task"].as_array().unwrap().as_slice() else { panic!("{name}: one task") };
        assert_eq!(task["kernel"].as_str(), Some(name));
        assert!(task["grid"].get("threads").is_some() && task["grid"].get("block").is_some(), "{name}");
        let args = task["args"].as_table().unwrap();
        for arg in args.keys() {
            assert!(kernel.params.iter().any(|p| p.name == arg), "{name}: `{arg}` is no parameter");
        }
        for p in kernel.params {
            let Some(arg) = args.get(p.name) else {
                assert!(p.presence != Presence::Required, "{name}: `{}` is not given", p.name);
                continue;
            };
            if let ParamKind::Buffer(_, ty) = p.kind {
                let buffer = &buffers[arg.as_str().unwrap()];
                let dtype: DType = buffer["dtype"].as_str().unwrap().parse().unwrap();
                match ty {
                    Type::In(dtypes) => assert!(dtypes.contains(&dtype), "{name}: {}", p.name),
                    Type::Is(wanted) => assert_eq!(dtype, wanted, "{name}: {}", p.name),
                    Type::Same(other) => {
                        let other = &buffers[args[other].as_str().unwrap()];
                        assert_eq!(other["dtype"], buffer["dtype"], "{name}: {}", p.name);
                    }
                }
            }
        }
        let used = |buffer: &String| args.values().any(|arg| arg.as_str() == Some(buffer));
        assert!(buffers.keys().all(used), "{name}: a buffer is unused");
        assert!(buffers.values().any(|b| b.get("save").is_some()), "{name}: nothing is saved");
    }
}
