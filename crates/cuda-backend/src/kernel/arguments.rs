//! A launch's arguments as the bytes that the kernel reads: the fields of `squall_arguments`, eight bytes or a multiple each.

use squall_core::{Arg, BoundRange, DeviceError, KernelDef, ParamKind};

use crate::kernel::source::dtype;
use crate::position::Telling;

/// The most axes of a buffer argument.
const AXES: usize = 8;
/// The most numbers of a list argument.
const LIST: usize = 16;
/// The most bytes of arguments, on every GPU.
const MOST: usize = 4096;
/// Words of `squall::Launch`: three lengths, three addresses, the place, how it is told.
const LAUNCH: usize = 8;

/// The bytes, as words.
#[derive(Debug)]
pub(crate) struct Arguments(Vec<u64>);

impl Arguments {
    /// Lays out the arguments. Returns an error for what the layout has no room for.
    pub(crate) fn new(
        kernel: &KernelDef,
        args: &[Arg<BoundRange>],
        threads: [u64; 3],
        failure: u64,
        scratch: u64,
    ) -> Result<Arguments, DeviceError> {
        let mut words = Vec::new();
        for (place, param) in kernel.params.iter().enumerate() {
            let arg = args.get(place).unwrap_or(&Arg::Absent);
            let beyond = |what: String| {
                let text = format!("kernel `{}`: `{}` {what}", kernel.name, param.name);
                Err(DeviceError::Unsupported(text))
            };
            match param.kind {
                ParamKind::Buffer(..) => {
                    let (ptr, len, shape) = match arg {
                        Arg::Buffer(range) => (range.ptr.0, range.len(), &*range.shape),
                        _ => (0, 0, &[][..]),
                    };
                    if shape.len() > AXES {
                        return beyond(format!(
                            "has {} axes; on CUDA devices {AXES} are the most",
                            shape.len()
                        ));
                    }
                    words.extend([ptr, len, shape.len() as u64]);
                    words.extend((0..AXES).map(|axis| shape.get(axis).copied().unwrap_or(0)));
                }
                ParamKind::Scalar(_) => {
                    let (at, value, given) = match arg {
                        Arg::Buffer(range) => (range.ptr.0, 0, 1),
                        Arg::Scalar(scalar) => {
                            let mut bytes = [0; 8];
                            scalar.write(dtype(kernel.params, args, place), &mut bytes);
                            (0, u64::from_ne_bytes(bytes), 1)
                        }
                        _ => (0, 0, 0),
                    };
                    words.extend([at, value, given]);
                }
                ParamKind::List | ParamKind::Matrix => {
                    let list: &[i64] = match arg {
                        Arg::List(list) => list,
                        _ => &[],
                    };
                    if list.len() > LIST {
                        return beyond(format!(
                            "has {} numbers; on CUDA devices {LIST} are the most",
                            list.len()
                        ));
                    }
                    words.push(list.len() as u64);
                    words.extend((0..LIST).map(|i| list.get(i).copied().unwrap_or(0) as u64));
                }
                ParamKind::Size | ParamKind::Word(_) | ParamKind::Flag | ParamKind::Rank => {
                    words.push(match *arg {
                        Arg::Size(n) => n,
                        Arg::Word(n) | Arg::Rank(n) => u64::from(n),
                        Arg::Flag(on) => u64::from(on),
                        _ => 0,
                    });
                }
            }
        }
        words.extend(threads);
        words.extend([0, failure, scratch, 0, 0]);
        if words.len() * 8 > MOST {
            let text = format!(
                "kernel `{}` takes {} bytes of arguments; {MOST} are the most",
                kernel.name,
                words.len() * 8
            );
            return Err(DeviceError::Unsupported(text));
        }
        Ok(Arguments(words))
    }

    /// Where the launch tells the stream's position, and which.
    pub(crate) fn tell(&mut self, telling: &Telling) {
        let launch = self.0.len() - LAUNCH;
        self.0[launch + 3] = telling.address;
        self.0[launch + 6] = telling.place.into();
        self.0[launch + 7] = telling.how as u64;
    }

    /// Where the bytes begin; they stay there.
    pub(crate) fn as_mut_ptr(&mut self) -> *mut u64 {
        self.0.as_mut_ptr()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::position::How;
    use squall_core::device::Position;
    use squall_core::{DType, DevicePtr, ParamDef, Presence, Type};

    const PARAMS: &[ParamDef] = &[
        ParamDef::read("a", Type::In(DType::ALL), ""),
        ParamDef::scalar("f", Type::Same("a"), ""),
        ParamDef::size("n", Presence::Required, ""),
        ParamDef::list("l", Presence::Required, ""),
    ];

    fn layout(shape: &[u64], list: &[i64]) -> Result<Arguments, DeviceError> {
        let kernel = KernelDef { name: "k", params: PARAMS, ..KernelDef::EMPTY };
        let range = BoundRange { ptr: DevicePtr(512), dtype: DType::I32, shape: shape.into() };
        let args = [Arg::Buffer(range), Arg::Scalar((-1).into()), Arg::Size(9), Arg::List(list.into())];
        Arguments::new(&kernel, &args, [256, 1, 1], 77, 99)
    }

    #[test]
    fn every_field_lies_where_the_kernel_reads_it() {
        let mut arguments = layout(&[2, 3], &[1, -2]).unwrap();
        let place = Position { runs: 2, tasks: 5 };
        arguments.tell(&Telling { address: 1024, place, how: How::Tasks });
        let words = &arguments.0;
        assert_eq!(words[..5], [512, 6, 2, 2, 3]);
        assert_eq!(words[5..11], [0; 6]);
        assert_eq!(words[11..14], [0, u64::from_ne_bytes([255, 255, 255, 255, 0, 0, 0, 0]), 1]);
        assert_eq!(words[14..18], [9, 2, 1, -2i64 as u64]);
        assert_eq!(words[words.len() - 8..], [256, 1, 1, 1024, 77, 99, 2 << 32 | 5, 2]);
    }

    #[test]
    fn what_has_no_room_is_refused() {
        assert!(layout(&[1; 9], &[]).unwrap_err().to_string().contains("`a` has 9 axes"));
        assert!(layout(&[1], &[0; 17]).unwrap_err().to_string().contains("`l` has 17 numbers"));
    }
}
