//! What a comparison found.

use std::fmt;

use serde::{Serialize, Serializer};
use squall_core::element::Exact;
use squall_core::{DType, Phase, with_element};

use super::tolerance::Tolerances;
use crate::render::count;

/// What a comparison found: what `--json` prints.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Comparison {
    /// The pipeline's name.
    pub pipeline: String,
    /// Number of ranks, on either side.
    pub world: u32,
    /// The devices that were compared with the host's, by rank.
    pub devices: Vec<String>,
    /// Steps that both sides ran.
    pub steps: u64,
    /// Whether every task was given the host's values.
    pub each: bool,
    /// How far results were allowed to lie apart.
    pub tolerances: Tolerances,
    /// Of each dtype that a task wrote, how well the sides agree.
    pub agreement: Vec<Agreement>,
    /// What differs by more than that; empty if nothing does. The first alone, unless every task was given the host's
    /// values: then the first of each task, in the order in which they were met.
    pub differences: Vec<Difference>,
}

/// How well the sides agree in one dtype.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Agreement {
    /// The dtype.
    #[serde(serialize_with = "name")]
    pub dtype: DType,
    /// Elements compared; one counts each time that a task writes it.
    pub elements: u64,
    /// Where the sides lie furthest apart, measured by what is allowed there; `None` where they are nowhere apart.
    pub greatest: Option<Deviation>,
}

/// An element in which the sides are apart.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Deviation {
    /// The phase.
    #[serde(serialize_with = "phase")]
    pub phase: Phase,
    /// The step, counted from 0; 0 in the setup and the finish.
    pub step: u64,
    /// The rank.
    pub rank: u32,
    /// The device that was compared with the host's.
    pub device: String,
    /// The task that wrote it.
    pub task: String,
    /// The buffer.
    pub buffer: String,
    /// Type of its elements.
    #[serde(serialize_with = "name")]
    pub dtype: DType,
    /// The element's index along each axis of the buffer.
    pub index: Vec<u64>,
    /// Its value on the host.
    #[serde(serialize_with = "value")]
    pub host: Exact,
    /// Its value on the device.
    #[serde(serialize_with = "value")]
    pub other: Exact,
    /// How far these are apart; infinite (JSON's null) where one is no finite number.
    pub distance: f64,
    /// How far they may be.
    pub allowed: f64,
}

/// A task that wrote something else than on the host.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Difference {
    /// The first element that is too far from the host's, of those that the task wrote.
    #[serde(flatten)]
    pub first: Deviation,
    /// How many are, of those that it wrote into the buffer.
    pub differing: u64,
    /// How many it wrote there.
    pub written: u64,
    /// How often the task was met so, over all ranks and steps that were compared.
    pub times: u64,
}

impl Comparison {
    /// The first difference in words; empty if there is none.
    pub fn first(&self) -> String {
        self.differences.first().map(Difference::to_string).unwrap_or_default()
    }
}

fn name<S: Serializer>(dtype: &DType, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(dtype.name())
}

fn phase<S: Serializer>(phase: &Phase, serializer: S) -> Result<S::Ok, S::Error> {
    serializer.serialize_str(match phase {
        Phase::Setup => "setup",
        Phase::Step => "step",
        Phase::Finish => "finish",
    })
}

/// A number, or its name where JSON has no number for it.
fn value<S: Serializer>(value: &Exact, serializer: S) -> Result<S::Ok, S::Error> {
    match *value {
        Exact::Int(int) => int.serialize(serializer),
        Exact::Float(float) if float.is_finite() => float.serialize(serializer),
        Exact::Float(_) => serializer.serialize_str(&value.to_string()),
    }
}

impl Deviation {
    /// Where it is, in words.
    pub fn place(&self) -> String {
        let moment = match self.phase {
            Phase::Setup => "setup".to_string(),
            Phase::Step => format!("step {}", self.step),
            Phase::Finish => "finish".to_string(),
        };
        format!("task `{}` of {moment} on rank {}: {}", self.task, self.rank, self.element())
    }

    /// The element as ranges are written: `grads[3, 17]`.
    fn element(&self) -> String {
        let index: Vec<String> = self.index.iter().map(u64::to_string).collect();
        if index.is_empty() { self.buffer.clone() } else { format!("{}[{}]", self.buffer, index.join(", ")) }
    }

    /// A value in as few digits as tell it from the others of its dtype.
    fn shown(&self, value: Exact) -> String {
        use squall_core::Element as _;
        with_element!(self.dtype, T => format!("{:?}", T::nearest(value)))
    }
}

impl fmt::Display for Deviation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (host, other) = (self.shown(self.host), self.shown(self.other));
        write!(f, "{} is {host} on the host and {other} on {}, ", self.place(), self.device)?;
        if self.distance.is_infinite() {
            return write!(f, "which no tolerance allows");
        }
        write!(f, "{} apart where {} is allowed", short(self.distance), short(self.allowed))
    }
}

/// A few digits: how far apart values are matters by its magnitude.
fn short(number: f64) -> String {
    match number {
        0.0 => "0".to_string(),
        _ if number.fract() == 0.0 && number < 1e15 => format!("{number}"),
        _ => format!("{number:.2e}"),
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}; {} of {} it wrote there differ",
            self.first,
            self.differing,
            count(self.written, "element")
        )?;
        if self.times > 1 {
            write!(f, "; the task differs {} over ranks and steps", count(self.times, "time"))?;
        }
        Ok(())
    }
}

impl fmt::Display for Agreement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {} compared, ", self.dtype, count(self.elements, "element"))?;
        match &self.greatest {
            None => write!(f, "all equal"),
            Some(greatest) => write!(f, "furthest apart: {greatest}"),
        }
    }
}
