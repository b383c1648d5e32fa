//! One launch's arguments, and the memory that they lie in.

use std::ops::Range;

use squall_core::conformance::Random;
use squall_core::{
    Arg, Args, BoundRange, BufferId, BufferRange, DType, DevicePtr, KernelDef, Mode, ParamKind, Presence,
    Scalar, Task,
};

use crate::values::{Fill, Rule, fill};

/// Bytes before and after each buffer that no kernel may touch, at least.
const GUARD: usize = 256;

/// A buffer argument.
#[derive(Clone, Debug)]
struct Buffer {
    dtype: DType,
    shape: Vec<u64>,
    bytes: Vec<u8>,
    /// Elements between a multiple of 256 bytes and the first.
    shift: u64,
    written: bool,
    rule: Rule,
}

/// A buffer in a case's image.
#[derive(Clone, Debug)]
pub(crate) struct Placed {
    /// The parameters that name it.
    pub(crate) name: String,
    pub(crate) dtype: DType,
    pub(crate) shape: Vec<u64>,
    /// Its bytes in the image.
    pub(crate) at: Range<usize>,
    pub(crate) written: bool,
    pub(crate) rule: Rule,
}

/// A launch but for its grid, with the image of the memory before it: buffers, and a pattern around them.
#[derive(Debug)]
pub(crate) struct Case {
    pub(crate) kernel: &'static KernelDef,
    /// Arguments; a buffer is its place among `buffers`.
    args: Vec<Arg<usize>>,
    pub(crate) buffers: Vec<Placed>,
    pub(crate) image: Vec<u8>,
    /// Whether a kernel that fails must leave everything as it was.
    pub(crate) all_or_nothing: bool,
}

impl Case {
    /// The arguments with ranges of another kind.
    fn map<B>(&self, bind: impl Fn(usize, &Placed) -> B) -> Vec<Arg<B>> {
        let value = |arg: &Arg<usize>| match arg {
            Arg::Absent => Arg::Absent,
            Arg::Buffer(place) => Arg::Buffer(bind(*place, &self.buffers[*place])),
            Arg::Scalar(value) => Arg::Scalar(*value),
            Arg::Size(size) => Arg::Size(*size),
            Arg::Word(word) => Arg::Word(*word),
            Arg::Flag(flag) => Arg::Flag(*flag),
            Arg::Rank(rank) => Arg::Rank(*rank),
            Arg::List(list) => Arg::List(list.clone()),
        };
        self.args.iter().map(value).collect()
    }

    /// The arguments over an image that begins there.
    pub(crate) fn bound(&self, image: DevicePtr) -> Vec<Arg<BoundRange>> {
        self.map(|_, buffer| BoundRange {
            ptr: DevicePtr(image.0 + buffer.at.start as u64),
            dtype: buffer.dtype,
            shape: buffer.shape.clone().into(),
        })
    }

    /// The threads that must be there; an error when the descriptor refuses the arguments.
    pub(crate) fn required(&self) -> Result<[u64; 3], String> {
        let values = self.map(|place, buffer| BufferRange {
            buffer: BufferId(place as u32),
            dtype: buffer.dtype,
            offset: 0,
            shape: buffer.shape.clone().into(),
        });
        let args = Args { params: self.kernel.params, values: &values, comm_rank: 0, comm_size: 1 };
        self.kernel.describe(&args).map_err(|error| format!("the plan is wrong: {error}"))?;
        Ok(self.kernel.required_threads(&args))
    }

    /// What lies between the buffers.
    pub(crate) fn guards(&self) -> impl Iterator<Item = Range<usize>> {
        let starts = std::iter::once(0).chain(self.buffers.iter().map(|buffer| buffer.at.end));
        let ends = self.buffers.iter().map(|buffer| buffer.at.start).chain([self.image.len()]);
        starts.zip(ends).map(|(start, end)| start..end)
    }
}

/// A case in the making.
pub(crate) struct Make<'a> {
    kernel: &'static KernelDef,
    dtypes: &'a [DType],
    /// Which of the plan's variants it is.
    pub(crate) variant: u32,
    pub(crate) random: &'a mut Random,
    args: Vec<Option<Arg<usize>>>,
    buffers: Vec<Buffer>,
    names: Vec<String>,
    all_or_nothing: bool,
}

impl<'a> Make<'a> {
    pub(crate) fn new(
        kernel: &'static KernelDef,
        dtypes: &'a [DType],
        variant: u32,
        random: &'a mut Random,
    ) -> Make<'a> {
        let args = vec![None; kernel.params.len()];
        let (buffers, names) = (Vec::new(), Vec::new());
        Make { kernel, dtypes, variant, random, args, buffers, names, all_or_nothing: false }
    }

    fn place(&self, name: &str) -> usize {
        let place = self.kernel.params.iter().position(|param| param.name == name);
        place.unwrap_or_else(|| panic!("`{}` has no parameter `{name}`", self.kernel.name))
    }

    fn give(&mut self, name: &str, arg: Arg<usize>) {
        let place = self.place(name);
        self.args[place] = Some(arg);
    }

    pub(crate) fn dtype(&self, name: &str) -> DType {
        self.dtypes[self.place(name)]
    }

    /// A buffer of that shape.
    pub(crate) fn buffer(&mut self, name: &str, shape: &[u64], with: Fill) {
        let dtype = self.dtype(name);
        let bytes = fill(self.random, dtype, shape.iter().product(), with);
        // Half of all begin where a pack can; the others anywhere.
        let shift = self.random.pick(&[0, 0, 0, 1, 2, 5]).unwrap_or(0);
        let written = match self.kernel.params[self.place(name)].kind {
            ParamKind::Buffer(mode, _) => mode != Mode::Read,
            _ => false,
        };
        let shape = shape.to_vec();
        self.buffers.push(Buffer { dtype, shape, bytes, shift, written, rule: Rule::Same });
        self.names.push(name.to_string());
        self.give(name, Arg::Buffer(self.buffers.len() - 1));
    }

    /// A buffer that is only written. Whatever it holds before must not matter.
    pub(crate) fn output(&mut self, name: &str, shape: &[u64]) {
        self.buffer(name, shape, Fill::Bits);
    }

    fn buffer_of(&self, name: &str) -> usize {
        match self.args[self.place(name)] {
            Some(Arg::Buffer(buffer)) => buffer,
            _ => panic!("`{name}` is no buffer yet"),
        }
    }

    /// The very range that another parameter has.
    pub(crate) fn same(&mut self, name: &str, other: &str) {
        let buffer = self.buffer_of(other);
        if let ParamKind::Buffer(mode, _) = self.kernel.params[self.place(name)].kind {
            self.buffers[buffer].written |= mode != Mode::Read;
        }
        self.names[buffer] += &format!(" = {name}");
        self.give(name, Arg::Buffer(buffer));
    }

    /// Elements of a buffer that is there.
    pub(crate) fn set(&mut self, name: &str, index: u64, value: impl Into<Scalar>) {
        let buffer = self.buffer_of(name);
        let buffer = &mut self.buffers[buffer];
        let mut element = [0; 8];
        let size = value.into().write(buffer.dtype, &mut element);
        buffer.bytes[index as usize * size..][..size].copy_from_slice(&element[..size]);
    }

    /// A buffer that is there, filled in another way.
    pub(crate) fn set_all(&mut self, name: &str, with: Fill) {
        let buffer = self.buffer_of(name);
        let Buffer { dtype, shape, bytes, .. } = &mut self.buffers[buffer];
        *bytes = fill(self.random, *dtype, shape.iter().product(), with);
    }

    /// A kernel that fails leaves everything as it was.
    pub(crate) fn all_or_nothing(&mut self) {
        self.all_or_nothing = true;
    }

    /// How a buffer must agree with the host form's.
    pub(crate) fn rule(&mut self, name: &str, rule: Rule) {
        let buffer = self.buffer_of(name);
        self.buffers[buffer].rule = rule;
    }

    /// A number: sometimes a constant, sometimes in a buffer.
    pub(crate) fn number(&mut self, name: &str) {
        if self.random.below(2) == 0 {
            return self.buffer(name, &[1], Fill::Fractions);
        }
        let value = match self.dtype(name) {
            dtype if dtype.is_float() => Scalar::Float(self.random.bits() as i64 as f64 / 2f64.powi(62)),
            DType::I8 | DType::I32 | DType::I64 => Scalar::Int(self.random.below(200) as i64 - 100),
            _ => Scalar::Int(self.random.below(200) as i64),
        };
        self.give(name, Arg::Scalar(value));
    }

    pub(crate) fn size(&mut self, name: &str, size: u64) {
        self.give(name, Arg::Size(size));
    }

    pub(crate) fn flag(&mut self, name: &str, flag: bool) {
        self.give(name, Arg::Flag(flag));
    }

    pub(crate) fn list(&mut self, name: &str, list: &[i64]) {
        self.give(name, Arg::List(list.into()));
    }

    /// The case; what was not given has its default.
    pub(crate) fn finish(self) -> Result<Case, String> {
        let shape = |name: &str| self.buffers[self.buffer_of(name)].shape.clone();
        let value = |(place, given): (usize, &Option<Arg<usize>>)| match given {
            Some(given) => Ok(given.clone()),
            None => match self.kernel.params[place].presence {
                Presence::Optional => Ok(Arg::Absent),
                Presence::Dim(other, axis) => Ok(Arg::Size(shape(other).get(axis).copied().unwrap_or(0))),
                Presence::Len(other) => Ok(Arg::Size(shape(other).iter().product())),
                Presence::ShapeOf(other) => {
                    Ok(Arg::List(shape(other).iter().map(|&axis| axis as i64).collect()))
                }
                Presence::False => Ok(Arg::Flag(false)),
                Presence::Required => Err(format!("the plan gives no `{}`", self.kernel.params[place].name)),
            },
        };
        let args = self.args.iter().enumerate().map(value).collect::<Result<Vec<_>, _>>()?;

        let mut image: Vec<u8> = Vec::new();
        let grow = |image: &mut Vec<u8>, to: usize| image.extend((image.len()..to).map(|at| (at * 89) as u8));
        let mut buffers = Vec::new();
        for (buffer, name) in self.buffers.iter().zip(self.names) {
            let start =
                (image.len() + GUARD).next_multiple_of(256) + (buffer.shift * buffer.dtype.size()) as usize;
            grow(&mut image, start);
            image.extend_from_slice(&buffer.bytes);
            let Buffer { dtype, written, rule, .. } = *buffer;
            let (shape, at) = (buffer.shape.clone(), start..image.len());
            buffers.push(Placed { name, dtype, shape, at, written, rule });
        }
        let end = image.len() + GUARD;
        grow(&mut image, end);
        let Make { kernel, all_or_nothing, .. } = self;
        Ok(Case { kernel, args, buffers, image, all_or_nothing })
    }
}
