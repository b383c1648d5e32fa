//! A plugin of squall: the op `clip_norm`, a collective of one's own in one file.
//!
//! It scales `data` on all ranks by `min(1, max / norm)`, with the Euclidean norm of all ranks' elements. Squall makes its works ready: a
//! kernel that sums squares, an `all_reduce` of the sums, a kernel that scales. So it runs on hosts and on GPUs, over whatever library
//! reduces there. A norm that is no number or infinite scales like any other, so that every rank shows that something is wrong.

use std::sync::Arc;

use squall_plugin::core::{
    Arg, ArgError, Args, BoundRange, Cover, CudaSource, DType, Description, DeviceError, HostCall, KernelDef,
    LibraryOp, Memory, Needs, OpCall, OpError, ParamDef, Prepare, ReduceOp, Stream, Task, Type, Work,
    register_op,
};

const DATA: ParamDef = ParamDef::read_write("data", Type::Is(DType::F32), "[n]: what is scaled");
const MAX: ParamDef = ParamDef::scalar("max", Type::Is(DType::F32), "the greatest norm; not negative");
/// The buffer is summed in so many parts, whatever the grid: the same elements give the same bits.
const SUMS: ParamDef = ParamDef::read_write("sums", Type::Is(DType::F64), "[512]: of a part's squares");
const PARTS: u64 = 512;
const BLOCK: u64 = 256;

static SQUARES: KernelDef = KernelDef {
    name: "clip_norm_squares",
    params: &[DATA, SUMS],
    covers: &[Cover::Any],
    host: Some(&|call: &HostCall<'_>| {
        let (data, sums) = (call.cells::<f32>("data")?, call.cells::<f64>("sums")?);
        let mut parts = data.chunks(data.len().div_ceil(sums.len()).max(1));
        for sum in sums {
            sum.set(parts.next().unwrap_or(&[]).iter().map(|x| f64::from(x.get()).powi(2)).sum());
        }
        Ok(())
    }),
    cuda: Some(CudaSource::new(CUDA, "squares")),
    ..KernelDef::EMPTY
};

static SCALE: KernelDef = KernelDef {
    name: "clip_norm_scale",
    params: &[DATA, SUMS, MAX],
    covers: &[Cover::Any],
    host: Some(&|call: &HostCall<'_>| {
        let norm = call.cells::<f64>("sums")?.iter().map(|sum| sum.get()).sum::<f64>().sqrt();
        let max = f64::from(call.scalar::<f32>("max")?);
        if norm <= max {
            return Ok(());
        }
        call.cells::<f32>("data")?.iter().for_each(|x| x.set((f64::from(x.get()) * (max / norm)) as f32));
        Ok(())
    }),
    cuda: Some(CudaSource::new(CUDA, "scale")),
    ..KernelDef::EMPTY
};

const CUDA: &str = r"
__device__ void squares(squall::Buffer<f32> data, squall::Buffer<f64> sums, const squall::Launch &) {
    __shared__ f64 lane[256]; // a block sums a part
    u64 part = (data.len + sums.len - 1) / sums.len, end = squall::least(data.len, (blockIdx.x + 1) * part);
    f64 sum = 0;
    for (u64 i = blockIdx.x * part + threadIdx.x; i < end; i += 256) sum += (f64)data[i] * data[i];
    lane[threadIdx.x] = sum;
    for (u32 half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) lane[threadIdx.x] += lane[threadIdx.x + half];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = lane[0];
}
__device__ void scale(squall::Buffer<f32> data, squall::Buffer<f64> sums, squall::Scalar<f32> max, const squall::Launch &) {
    f64 sum = 0;
    for (u64 part = 0; part < sums.len; ++part) sum += sums[part];
    f64 norm = sqrt(sum);
    if (norm <= max.get()) return;
    for (u64 i = squall::x(); i < data.len; i += squall::stride()) data[i] = (f32)(data[i] * (max.get() / norm));
}";

register_op!(&ClipNorm("host"), &ClipNorm("cuda"));
squall_plugin::export!();

/// The op on one kind of device.
struct ClipNorm(&'static str);

#[rustfmt::skip]
impl Task for ClipNorm {
    fn name(&self) -> &'static str { "clip_norm" }
    fn summary(&self) -> &'static str { "data *= min(1, max / norm), with the Euclidean norm of all ranks' elements" }
    fn params(&self) -> &'static [ParamDef] { &[DATA, MAX] }
    fn example(&self) -> &'static str { include_str!("../example.toml") }

    /// Ranks that call it with another length or another `max` are refused before anything runs.
    fn describe(&self, args: &Args<'_>) -> Result<Description, ArgError> {
        match args.get("max") {
            Arg::Scalar(max) if max.as_f64() < 0.0 => Err(ArgError::new("max", format!("is {max}; no norm is negative"))),
            _ => Ok(Description::symmetric("clip_norm", args)),
        }
    }
}

#[rustfmt::skip]
impl LibraryOp for ClipNorm {
    fn library(&self) -> &'static str { "clip-norm" }
    fn device(&self) -> &'static str { self.0 }
    fn needs(&self) -> Needs { Needs { groups: false, uses: &["all_reduce"], ..Needs::NONE } }

    unsafe fn prepare(&self, batch: &[OpCall<'_>], cx: &mut Prepare<'_>) -> Result<Box<dyn Work>, OpError> {
        let [call] = batch else { return Err(DeviceError::Failed("it stands in a group".to_string()).into()) };
        let memory = cx.device.alloc(PARTS * 8)?;
        let sums = Arg::Buffer(BoundRange { ptr: memory.ptr(), dtype: DType::F64, shape: Arc::new([PARTS]) });
        let (data, max) = (call.args.get("data").clone(), call.args.get("max").clone());
        // SAFETY: the caller vouches for the ranges of the call, and `memory` is freed after the works.
        let works = unsafe { vec![
            cx.kernel(&SQUARES, vec![data.clone(), sums.clone()], PARTS * BLOCK, BLOCK)?,
            cx.op("all_reduce", call.comm, &[("buffer", sums.clone()), ("reduce", Arg::Word(ReduceOp::Sum as u32))])?,
            cx.kernel(&SCALE, vec![data, sums, max], PARTS * BLOCK, BLOCK)?,
        ] };
        Ok(Box::new(Clip { works, _memory: memory }))
    }
}

/// The works, enqueued one after another, and the memory that they share.
struct Clip {
    works: Vec<Box<dyn Work>>,
    _memory: Box<dyn Memory>,
}

impl Work for Clip {
    fn enqueue(&mut self, stream: &mut dyn Stream) -> Result<(), DeviceError> {
        self.works.enqueue(stream)
    }

    fn failure(&mut self) -> Option<String> {
        self.works.failure()
    }
}

#[cfg(test)]
mod tests;
