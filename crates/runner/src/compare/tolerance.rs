//! How far two results may lie apart, dtype by dtype, and how far two elements do.

use std::fmt;

use serde::ser::{Serialize, SerializeMap as _, Serializer};
use squall_core::DType;
use squall_core::element::Exact;

/// How far an element of a floating-point dtype may lie from the host's: at most `relative × |host's| + absolute`.
#[derive(Clone, Copy, Debug, PartialEq, serde::Serialize)]
pub struct Tolerance {
    /// The part that grows with the host's value.
    pub relative: f64,
    /// The part that does not.
    pub absolute: f64,
}

impl Tolerance {
    /// Reads a dtype with its tolerance: in `f32=1e-4` both parts are the same, in `f32=1e-4,0` they stand one after the other.
    ///
    /// # Errors
    /// Says what is wrong with the text.
    pub fn parse(text: &str) -> Result<(DType, Tolerance), String> {
        let form = || "write `f32=1e-4`, or `f32=1e-4,1e-6` with an absolute part of its own".to_string();
        let (name, numbers) = text.split_once('=').ok_or_else(form)?;
        let dtype: DType = name.parse().map_err(|error| format!("`{name}` is {error}"))?;
        if !dtype.is_float() {
            return Err(format!("{dtype} has no tolerance: integers are compared exactly"));
        }
        let (relative, absolute) = numbers.split_once(',').unwrap_or((numbers, numbers));
        let number =
            |text: &str| text.parse().ok().filter(|number: &f64| number.is_finite() && *number >= 0.0);
        let (relative, absolute) = number(relative).zip(number(absolute)).ok_or_else(form)?;
        Ok((dtype, Tolerance { relative, absolute }))
    }
}

/// The tolerance of each dtype. Integers are compared exactly. NaN agrees with NaN alone, and an infinity with the infinity of
/// its sign.
///
/// The defaults let sums be taken in another order, and functions such as `exp` be rounded differently: for f64 and f32 some
/// thousand and some hundred units in the last place, for f16 and bf16, which are worked out in f32 and rounded when they are
/// stored, four. The absolute part supposes values around 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tolerances {
    /// In the order of [`DType::FLOATS`].
    floats: [Tolerance; DType::FLOATS.len()],
}

impl Default for Tolerances {
    fn default() -> Tolerances {
        let default = |&dtype: &DType| match dtype {
            DType::F16 => Tolerance { relative: 4e-3, absolute: 1e-3 },
            DType::Bf16 => Tolerance { relative: 3e-2, absolute: 8e-3 },
            DType::F32 => Tolerance { relative: 1e-5, absolute: 1e-5 },
            _ => Tolerance { relative: 1e-12, absolute: 1e-12 },
        };
        let mut floats = [Tolerance { relative: 0.0, absolute: 0.0 }; DType::FLOATS.len()];
        for (tolerance, dtype) in floats.iter_mut().zip(DType::FLOATS) {
            *tolerance = default(dtype);
        }
        Tolerances { floats }
    }
}

impl Tolerances {
    /// The tolerance of a dtype; `None` for an integer dtype, which has none.
    pub fn of(&self, dtype: DType) -> Option<Tolerance> {
        let place = DType::FLOATS.iter().position(|float| *float == dtype)?;
        self.floats.get(place).copied()
    }

    /// Sets the tolerance of a floating-point dtype; does nothing for an integer dtype.
    pub fn set(&mut self, dtype: DType, tolerance: Tolerance) {
        let place = DType::FLOATS.iter().position(|float| *float == dtype);
        if let Some(own) = place.and_then(|place| self.floats.get_mut(place)) {
            *own = tolerance;
        }
    }

    /// Compares an element of a dtype with the host's.
    pub(super) fn judge(&self, dtype: DType, host: Exact, other: Exact) -> Apart {
        let tolerance = self.of(dtype);
        match (host, other) {
            (Exact::Float(host), Exact::Float(other)) => {
                let allowed = tolerance.map_or(0.0, |t| t.relative * host.abs() + t.absolute);
                if host == other || (host.is_nan() && other.is_nan()) {
                    Apart { distance: 0.0, allowed }
                } else if host.is_finite() && other.is_finite() {
                    Apart { distance: (host - other).abs(), allowed }
                } else {
                    Apart { distance: f64::INFINITY, allowed: 0.0 }
                }
            }
            (Exact::Int(host), Exact::Int(other)) => {
                Apart { distance: host.abs_diff(other) as f64, allowed: 0.0 }
            }
            _ => Apart { distance: f64::INFINITY, allowed: 0.0 }, // one dtype has one kind of values
        }
    }
}

/// How far an element lies from the host's, and how far it may.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Apart {
    pub(super) distance: f64,
    pub(super) allowed: f64,
}

impl Apart {
    pub(super) fn is_too_far(self) -> bool {
        self.distance > self.allowed
    }

    /// The part of what is allowed that is used up: 0 where nothing differs, above 1 where it is too much.
    pub(super) fn share(self) -> f64 {
        if self.distance == 0.0 { 0.0 } else { self.distance / self.allowed }
    }
}

impl fmt::Display for Tolerance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:e} × |host| + {:e}", self.relative, self.absolute)
    }
}

impl Serialize for Tolerances {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.floats.len()))?;
        for (dtype, tolerance) in DType::FLOATS.iter().zip(&self.floats) {
            map.serialize_entry(dtype.name(), tolerance)?;
        }
        map.end()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn apart(dtype: DType, host: f64, other: f64) -> Apart {
        Tolerances::default().judge(dtype, Exact::Float(host), Exact::Float(other))
    }

    #[test]
    fn not_a_number_agrees_with_itself_alone() {
        for dtype in DType::FLOATS {
            assert_eq!(apart(*dtype, f64::NAN, -f64::NAN).share(), 0.0);
            for (host, other) in [(f64::NAN, 1.0), (0.0, f64::NAN), (f64::NAN, f64::INFINITY)] {
                assert!(apart(*dtype, host, other).is_too_far(), "{host} {other}");
            }
        }
    }

    #[test]
    fn infinities_agree_when_their_signs_do() {
        let infinity = f64::INFINITY;
        assert!(!apart(DType::F32, infinity, infinity).is_too_far());
        assert!(!apart(DType::F32, -infinity, -infinity).is_too_far());
        for (host, other) in [(infinity, -infinity), (infinity, 3e38), (3e38, infinity)] {
            assert!(apart(DType::F32, host, other).is_too_far(), "{host} {other}");
        }
        // What cannot even be subtracted differs.
        assert!(apart(DType::F64, f64::MAX, f64::MIN).is_too_far());
    }

    #[test]
    fn what_is_allowed_is_allowed_and_no_more() {
        for dtype in DType::FLOATS {
            let tolerance = Tolerances::default().of(*dtype).unwrap();
            for host in [0.0, 1.0, -1000.0] {
                let allowed = tolerance.relative * f64::abs(host) + tolerance.absolute;
                assert!(!apart(*dtype, host, host + 0.9 * allowed).is_too_far(), "{dtype} {host}");
                assert!(!apart(*dtype, host, host - 0.9 * allowed).is_too_far(), "{dtype} {host}");
                assert!(apart(*dtype, host, host + 1.1 * allowed).is_too_far(), "{dtype} {host}");
            }
        }
        assert_eq!(apart(DType::F32, 0.0, -0.0), Apart { distance: 0.0, allowed: 1e-5 });
        assert_eq!(apart(DType::F32, 1.0, 1.0 + 1e-5).share().round(), 1.0); // half of it, to one place
    }

    #[test]
    fn integers_are_exact_to_the_last() {
        let judge =
            |host, other| Tolerances::default().judge(DType::U64, Exact::Int(host), Exact::Int(other));
        let greatest = i128::from(u64::MAX);
        assert!(!judge(greatest, greatest).is_too_far());
        assert!(judge(greatest, greatest - 1).is_too_far());
        assert_eq!(judge(-1, 3), Apart { distance: 4.0, allowed: 0.0 });
        assert_eq!(judge(-1, 3).share(), f64::INFINITY);
    }

    #[test]
    fn a_text_is_the_tolerance_of_one_dtype() {
        let of = |relative, absolute| Tolerance { relative, absolute };
        assert_eq!(Tolerance::parse("f32=1e-4"), Ok((DType::F32, of(1e-4, 1e-4))));
        assert_eq!(Tolerance::parse("bf16=0.5,0"), Ok((DType::Bf16, of(0.5, 0.0))));
        for (text, said) in [
            ("f32", "write `f32=1e-4`"),
            ("f32=", "write `f32=1e-4`"),
            ("f32=-1", "write `f32=1e-4`"),
            ("f32=1,nan", "write `f32=1e-4`"),
            ("f32=inf", "write `f32=1e-4`"),
            ("f32=1,2,3", "write `f32=1e-4`"),
            ("f31=1", "`f31` is not a dtype; one of f16, bf16, f32"),
            ("i32=1", "i32 has no tolerance: integers are compared exactly"),
        ] {
            let error = Tolerance::parse(text).unwrap_err();
            assert!(error.contains(said), "{error}");
        }
        let mut set = Tolerances::default();
        set.set(DType::F32, of(1.0, 2.0));
        set.set(DType::I32, of(1.0, 2.0));
        assert_eq!((set.of(DType::F32), set.of(DType::I32)), (Some(of(1.0, 2.0)), None));
        assert_eq!(set.of(DType::F64), Tolerances::default().of(DType::F64));
    }

    #[test]
    fn the_documentation_states_the_defaults() {
        for dtype in DType::FLOATS {
            let tolerance = Tolerances::default().of(*dtype).unwrap();
            let row = format!("| `{dtype}` | {:e} | {:e} |", tolerance.relative, tolerance.absolute);
            assert!(
                include_str!("../../../../docs/compare.md").contains(&row),
                "docs/compare.md lacks {row}"
            );
        }
    }
}
