//! Words of other systems that stand where this language has its own.

use squall_core::DType;

/// The dtype that another system's name stands for.
pub(crate) fn dtype(text: &str) -> Option<DType> {
    let text = text.trim().to_ascii_lowercase();
    let text = text.rsplit('.').next().unwrap_or(&text); // `torch.float32`, `np.float32`
    Some(match text {
        "float" | "float32" | "fp32" | "single" | "tf32" => DType::F32,
        "double" | "float64" | "fp64" => DType::F64,
        "half" | "float16" | "fp16" => DType::F16,
        "bfloat16" | "bfloat" => DType::Bf16,
        "int8" | "char" => DType::I8,
        "uint8" | "byte" | "uchar" | "bool" => DType::U8,
        "int" | "int32" => DType::I32,
        "uint" | "uint32" => DType::U32,
        "long" | "int64" => DType::I64,
        "ulong" | "uint64" => DType::U64,
        _ => return text.parse().ok(),
    })
}

/// The built-in op that another system's name stands for.
pub(crate) fn op(name: &str) -> Option<&'static str> {
    let plain: String =
        name.chars().filter(|c| !matches!(c, '_' | '-')).flat_map(char::to_lowercase).collect();
    let plain = plain.strip_prefix("nccl").or(plain.strip_prefix("mpi")).unwrap_or(&plain);
    let meant = match plain {
        "allreduce" => "all_reduce",
        "bcast" | "broadcast" => "broadcast",
        "reduce" => "reduce",
        "allgather" | "allgatherintotensor" => "all_gather",
        "reducescatter" | "reducescattertensor" => "reduce_scatter",
        "isend" | "send" => "send",
        "irecv" | "recv" | "receive" => "recv",
        "sendrecv" | "sendreceive" => "send_recv",
        "alltoall" | "all2all" => "all_to_all",
        "gather" => "gather",
        "scatter" => "scatter",
        _ => return None,
    };
    (meant != name).then_some(meant)
}

/// The argument of a built-in op that another system's name for it stands for.
pub(crate) fn op_argument(op: &str, argument: &str) -> Option<&'static str> {
    Some(match (op, argument) {
        ("send" | "recv", "dest" | "dst" | "destination" | "to" | "src" | "source" | "from" | "target") => {
            "peer"
        }
        ("send_recv", "dest" | "dst" | "destination" | "peer") => "to",
        ("send_recv", "src" | "source") => "from",
        ("all_reduce" | "reduce" | "reduce_scatter", "reduction" | "reduce_op" | "redop" | "op") => "reduce",
        ("broadcast" | "reduce" | "gather" | "scatter", "src" | "dst" | "source" | "dest" | "root_rank") => {
            "root"
        }
        ("all_reduce" | "broadcast" | "reduce" | "send" | "recv", "data" | "tensor" | "buf") => "buffer",
        (_, "communicator" | "group") if self::op(op).is_none() && BUILT_IN.contains(&op) => "comm",
        _ => return None,
    })
}

const BUILT_IN: &[&str] = &[
    "all_reduce",
    "broadcast",
    "reduce",
    "all_gather",
    "reduce_scatter",
    "send",
    "recv",
    "send_recv",
    "all_to_all",
    "gather",
    "scatter",
];

/// The reduction that another system's name stands for.
pub(crate) fn reduction(word: &str) -> Option<&'static str> {
    Some(match word.to_ascii_lowercase().as_str() {
        "mean" | "average" => "avg",
        "add" | "plus" | "+" => "sum",
        "mul" | "product" | "*" => "prod",
        "maximum" => "max",
        "minimum" => "min",
        other => {
            let name = squall_core::ReduceOp::NAMES.iter().copied().find(|name| *name == other)?;
            return (name != word).then_some(name);
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn habits_are_recognised_and_the_languages_own_words_are_none() {
        assert_eq!(dtype("torch.float32"), Some(DType::F32));
        assert_eq!(dtype("float32 "), Some(DType::F32));
        assert_eq!(dtype("F32"), Some(DType::F32));
        assert_eq!(dtype("half"), Some(DType::F16));
        assert_eq!(dtype("quad"), None);
        assert_eq!(op("allreduce"), Some("all_reduce"));
        assert_eq!(op("ncclAllReduce"), Some("all_reduce"));
        assert_eq!(op("MPI_Bcast"), Some("broadcast"));
        assert_eq!(op("topk"), None);
        for own in BUILT_IN {
            assert_eq!(op(own), None);
        }
        assert_eq!(op_argument("send", "dest"), Some("peer"));
        assert_eq!(op_argument("send", "peer"), None);
        assert_eq!(op_argument("topk", "group"), None);
        assert_eq!(reduction("mean"), Some("avg"));
        assert_eq!(reduction("SUM"), Some("sum"));
        assert_eq!(reduction("sum"), None);
    }
}
