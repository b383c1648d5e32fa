//! The backend `host` and its devices.

use std::sync::Arc;

use squall_core::{
    Arg, Backend, BoundRange, Device, DeviceError, Grid, HostLaunch, KernelDef, Memory, Stream, Work,
    register_backend,
};

use crate::memory::HostMemory;
use crate::stream::HostStream;

/// The kind of these devices, the name of their library, and the api of their handles.
pub(crate) const KIND: &str = "host";

register_backend!(&HostBackend);

/// The backend `host`: any number of devices, all of them this process's CPU and memory.
#[derive(Debug)]
pub struct HostBackend;

impl Backend for HostBackend {
    fn kind(&self) -> &'static str {
        KIND
    }

    fn default_library(&self) -> &'static str {
        KIND
    }

    fn count(&self) -> Result<Option<u32>, DeviceError> {
        Ok(None)
    }

    fn repeats(&self) -> bool {
        true
    }

    fn captures(&self) -> bool {
        false
    }

    fn open(&self, index: u32) -> Result<Arc<dyn Device>, DeviceError> {
        Ok(Arc::new(HostDevice { id: format!("{KIND}:{index}") }))
    }

    fn findings(&self) -> Vec<String> {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        vec![format!("{cores} cores for this process, {}", std::env::consts::ARCH)]
    }
}

struct HostDevice {
    id: String,
}

impl Device for HostDevice {
    fn id(&self) -> &str {
        &self.id
    }

    fn kind(&self) -> &'static str {
        KIND
    }

    fn captures(&self) -> bool {
        false
    }

    fn alloc(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        Ok(Box::new(HostMemory::zeroed(bytes, &self.id)?))
    }

    fn alloc_staging(&self, bytes: u64) -> Result<Box<dyn Memory>, DeviceError> {
        self.alloc(bytes)
    }

    fn stream(&self) -> Result<Box<dyn Stream>, DeviceError> {
        Ok(Box::new(HostStream::default()))
    }

    fn reach(&self, peer: &str) -> Result<(), DeviceError> {
        match peer.split_once(':') {
            Some((KIND, _)) => Ok(()),
            _ => Err(DeviceError::Unsupported(format!("{} cannot reach the memory of {peer}", self.id))),
        }
    }

    unsafe fn kernel(
        &self,
        kernel: &'static KernelDef,
        args: Vec<Arg<BoundRange>>,
        grid: Grid,
    ) -> Result<Box<dyn Work>, DeviceError> {
        let Some(form) = kernel.host else {
            let message = format!("the kernel `{}` has no form for {KIND} devices", kernel.name);
            return Err(DeviceError::Unsupported(message));
        };
        // SAFETY: the caller's; memory of the device is initialised from the start.
        let launch = unsafe { form.ready(kernel, args, grid) }?;
        Ok(Box::new(Launch { kernel, launch, grid }))
    }
}

/// A kernel with its arguments, on its grid.
struct Launch {
    kernel: &'static KernelDef,
    launch: Box<dyn HostLaunch>,
    grid: Grid,
}

impl Work for Launch {
    fn enqueue(&mut self, _stream: &mut dyn Stream) -> Result<(), DeviceError> {
        if self.grid.is_empty() {
            return Ok(());
        }
        self.launch
            .launch()
            .map_err(|message| DeviceError::Failed(format!("the kernel `{}`: {message}", self.kernel.name)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use squall_core::{DType, HostCall, HostKernel, ParamDef, Position, Type};

    fn double(call: &HostCall<'_>) -> Result<(), String> {
        for cell in &call.cells::<i32>("x")?[..call.launched()[0]] {
            if cell.get() < 0 {
                return Err("`x` holds a negative number".to_string());
            }
            cell.set(cell.get() * 2);
        }
        Ok(())
    }

    static DOUBLE: KernelDef = KernelDef {
        name: "double",
        params: &[ParamDef::read_write("x", Type::Is(DType::I32), "")],
        host: Some(&double),
        ..KernelDef::EMPTY
    };
    static NOWHERE: KernelDef = KernelDef { name: "nowhere", ..KernelDef::EMPTY };

    fn run(values: [i32; 4], threads: u64) -> (Result<(), DeviceError>, Vec<i32>) {
        let device = HostBackend.open(2).unwrap();
        assert_eq!((device.id(), device.kind(), device.captures()), ("host:2", "host", false));
        let mut memory = device.alloc(16).unwrap();
        memory.host().unwrap().copy_from_slice(bytemuck::bytes_of(&values));
        let range = BoundRange { ptr: memory.ptr(), dtype: DType::I32, shape: [4].into() };
        let grid = Grid::new([threads, 1, 1], [1, 1, 1]).unwrap();
        // SAFETY: the memory outlives the work, and this thread alone uses it.
        let mut work = unsafe { device.kernel(&DOUBLE, vec![Arg::Buffer(range)], grid) }.unwrap();
        let outcome = work.enqueue(&mut *device.stream().unwrap());
        (outcome, bytemuck::cast_slice(memory.host().unwrap()).to_vec())
    }

    #[test]
    fn kernels_run_on_their_grid() {
        assert_eq!(run([1, 2, 3, 4], 3), (Ok(()), vec![2, 4, 6, 4]));
        assert_eq!(run([1, 2, 3, 4], 0), (Ok(()), vec![1, 2, 3, 4]));
    }

    #[test]
    fn a_kernels_error_names_it() {
        let error = DeviceError::Failed("the kernel `double`: `x` holds a negative number".to_string());
        assert_eq!(run([1, -2, 3, 4], 4).0, Err(error));
    }

    /// Counts its launches in memory of its own, and takes no more than two ranges.
    struct Counts;

    struct Counter(u64, Vec<Arg<BoundRange>>);

    impl HostKernel for Counts {
        unsafe fn ready(
            &'static self,
            kernel: &'static KernelDef,
            args: Vec<Arg<BoundRange>>,
            _: Grid,
        ) -> Result<Box<dyn HostLaunch>, DeviceError> {
            match args.len() {
                0..=2 => Ok(Box::new(Counter(0, args))),
                n => Err(DeviceError::Failed(format!("`{}` has {n} arguments", kernel.name))),
            }
        }
    }

    impl HostLaunch for Counter {
        fn launch(&mut self) -> Result<(), String> {
            self.0 += 1;
            if self.0 < 3 { Ok(()) } else { Err(format!("launch {} over {:?}", self.0, self.1)) }
        }
    }

    static COUNTS: KernelDef = KernelDef { name: "counts", host: Some(&Counts), ..KernelDef::EMPTY };

    #[test]
    fn a_form_keeps_what_it_made_of_the_arguments() {
        let device = HostBackend.open(0).unwrap();
        let work = |args: Vec<Arg<BoundRange>>, threads| {
            let grid = Grid::new([threads, 1, 1], [1, 1, 1]).unwrap();
            // SAFETY: there are no ranges.
            unsafe { device.kernel(&COUNTS, args, grid) }
        };
        let mut stream = device.stream().unwrap();
        let mut counts = work(vec![Arg::Size(7)], 1).unwrap();
        assert!((0..2).all(|_| counts.enqueue(&mut *stream).is_ok()));
        let error = DeviceError::Failed("the kernel `counts`: launch 3 over [Size(7)]".to_string());
        assert_eq!(counts.enqueue(&mut *stream), Err(error));
        let mut empty = work(Vec::new(), 0).unwrap();
        assert!((0..5).all(|_| empty.enqueue(&mut *stream).is_ok()), "an empty grid is no launch");
        let refused = work(vec![Arg::Absent; 3], 1).err();
        assert_eq!(refused, Some(DeviceError::Failed("`counts` has 3 arguments".to_string())));
    }

    #[test]
    fn hosts_reach_each_other_and_nothing_else() {
        let device = HostBackend.open(0).unwrap();
        assert!(["host:0", "host:7"].iter().all(|peer| device.reach(peer).is_ok()));
        let error = DeviceError::Unsupported("host:0 cannot reach the memory of cuda:0".to_string());
        assert_eq!(device.reach("cuda:0"), Err(error));
    }

    #[test]
    fn a_kernel_without_a_host_form_is_refused() {
        let grid = Grid::new([1, 1, 1], [1, 1, 1]).unwrap();
        // SAFETY: there are no ranges.
        let refused = unsafe { HostBackend.open(0).unwrap().kernel(&NOWHERE, Vec::new(), grid) };
        let error = DeviceError::Unsupported("the kernel `nowhere` has no form for host devices".to_string());
        assert_eq!(refused.err(), Some(error));
    }

    #[test]
    fn streams_copy_and_mark_at_once() {
        let device = HostBackend.open(0).unwrap();
        let (mut a, mut b) = (device.alloc_staging(4).unwrap(), device.alloc(4).unwrap());
        a.host().unwrap().copy_from_slice(&[1, 2, 3, 4]);
        let mut stream = device.stream().unwrap();
        let progress = stream.progress();
        // SAFETY: both hold four bytes and are this thread's.
        unsafe { stream.copy(b.ptr(), a.ptr(), 4) }.unwrap();
        stream.mark(7).unwrap();
        assert_eq!(
            (b.host().unwrap(), progress.read()),
            (&mut [1, 2, 3, 4][..], Position { runs: 0, tasks: 7 })
        );
        stream.complete(3).unwrap();
        stream.mark(1).unwrap();
        assert_eq!(progress.read(), Position { runs: 3, tasks: 1 });
        assert!(stream.capture().is_none() && stream.wait(None).is_ok());
    }
}
