//! The spellings of a job's devices, in `[world] devices` and on the command line.

use std::ops::Range;

use super::place::TextError;
use crate::suggest::nearest;

/// The devices of a job's ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Devices {
    /// Whatever the machine offers.
    Auto,
    /// In rank order; not empty.
    Listed(Vec<DeviceSpec>),
}

/// One or several devices of one backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeviceSpec {
    /// The backend: `cuda` or `host`.
    pub backend: &'static str,
    /// Which of its devices.
    pub which: Which,
}

/// Some devices of a backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Which {
    /// All that the machine has; never of `host`, which has as many as are asked for.
    All,
    /// One, by its index.
    One(u32),
    /// Several; not empty.
    Range(Range<u32>),
}

/// The kinds of devices.
pub const BACKENDS: &[&str] = &["cuda", "host"];

impl Devices {
    /// Reads one entry: `auto`, `cuda`, `cuda:1`, `host:0..4`.
    pub fn parse(text: &str) -> Result<Devices, TextError> {
        if text == "auto" {
            return Ok(Devices::Auto);
        }
        let spec = DeviceSpec::parse(text).map_err(|error| match nearest(text, ["auto"]) {
            Some(_) => TextError { help: Some("did you mean `auto`?".to_owned()), ..error },
            None => error,
        })?;
        Ok(Devices::Listed(vec![spec]))
    }

    /// Reads entries with commas between them, as the command line has them: `cuda:1,cuda:0`. All are of one kind.
    pub fn parse_list(text: &str) -> Result<Devices, TextError> {
        if !text.contains(',') {
            return Devices::parse(text);
        }
        let (mut specs, mut start): (Vec<DeviceSpec>, usize) = (Vec::new(), 0);
        for entry in text.split(',') {
            let range = start..start + entry.len();
            let spec = DeviceSpec::parse(entry).map_err(|error| TextError {
                range: start + error.range.start..start + error.range.end,
                ..error
            })?;
            if let Some(other) = specs.first().filter(|first| first.backend != spec.backend) {
                let kinds = format!("{} and {}", other.backend, spec.backend);
                let message = format!("a job runs on devices of one kind, not on {kinds}");
                return Err(TextError { range, message, help: None });
            }
            specs.push(spec);
            start += entry.len() + 1;
        }
        Ok(Devices::Listed(specs))
    }
}

impl DeviceSpec {
    /// Reads `cuda`, `cuda:1` or `host:0..4`.
    pub fn parse(text: &str) -> Result<DeviceSpec, TextError> {
        let (name, index) = match text.split_once(':') {
            Some((name, index)) => (name, Some(index)),
            None => (text, None),
        };
        let Some(backend) = BACKENDS.iter().copied().find(|backend| *backend == name) else {
            let help = match name.to_ascii_lowercase().as_str() {
                "gpu" | "nvidia" => "did you mean `cuda`?".to_owned(),
                "cpu" => "did you mean `host`?".to_owned(),
                "auto" if index.is_some() => "`auto` takes no index".to_owned(),
                "auto" => "`auto` is no device among others; it stands alone, without brackets".to_owned(),
                lower if lower.parse::<u32>().is_ok() => format!("name the kind too: `cuda:{lower}`"),
                _ => match nearest(name, BACKENDS.iter().copied()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => "devices are `cuda`, `cuda:0..2`, `host:0..4`, or `auto` alone".to_owned(),
                },
            };
            return Err(TextError::new(0..name.len(), format!("`{name}` is no kind of device"), help));
        };
        let which = match index {
            None if backend == "host" => {
                let message = "`host` leaves open how many devices";
                return Err(TextError::new(0..name.len(), message, "four of them are `host:0..4`"));
            }
            None => Which::All,
            Some(index) => which(index, name.len() + 1)?,
        };
        Ok(DeviceSpec { backend, which })
    }
}

fn which(text: &str, start: usize) -> Result<Which, TextError> {
    let whole = start..start + text.len();
    let malformed = || {
        let message = format!("`{text}` is neither an index nor a range");
        TextError::new(whole.clone(), message, "write an index as `1` or a range without its end as `0..4`")
    };
    let number = |digits: &str| {
        if digits.bytes().all(|byte| byte.is_ascii_digit()) { digits.parse::<u32>().ok() } else { None }
    };
    let Some((first, end)) = text.split_once("..") else {
        return number(text).map(Which::One).ok_or_else(malformed);
    };
    let range = number(first).ok_or_else(malformed)?..number(end).ok_or_else(malformed)?;
    if range.is_empty() {
        let message = format!("`{text}` holds no device, and a job has at least one rank");
        return Err(TextError::new(whole, message, "the end is excluded: two devices are `0..2`"));
    }
    Ok(Which::Range(range))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_spelling_is_read() {
        let one = |backend, which| Devices::Listed(vec![DeviceSpec { backend, which }]);
        assert_eq!(Devices::parse("auto"), Ok(Devices::Auto));
        assert_eq!(Devices::parse("cuda"), Ok(one("cuda", Which::All)));
        assert_eq!(Devices::parse("cuda:3"), Ok(one("cuda", Which::One(3))));
        assert_eq!(Devices::parse("host:0..4"), Ok(one("host", Which::Range(0..4))));
    }

    #[test]
    fn lists_are_of_one_kind() {
        let spec = |index| DeviceSpec { backend: "cuda", which: Which::One(index) };
        assert_eq!(Devices::parse_list("auto"), Ok(Devices::Auto));
        assert_eq!(Devices::parse_list("cuda:1,cuda:0"), Ok(Devices::Listed(vec![spec(1), spec(0)])));
        let range = |text: &str| Devices::parse_list(text).unwrap_err().range;
        assert_eq!(range("host:0,cuda:1"), 7..13);
        assert_eq!(range("host:0,cpu:1"), 7..10);
        assert_eq!(range("host:0,"), 7..7);
        assert_eq!(range("host:0,auto"), 7..11);
    }

    #[test]
    fn what_is_wrong_is_placed() {
        let range = |text: &str| Devices::parse(text).unwrap_err().range;
        assert_eq!(range("gpu:0"), 0..3);
        assert_eq!(range("host"), 0..4);
        assert_eq!(range("host:0..0"), 5..9);
        assert_eq!(range("host:4..2"), 5..9);
        assert_eq!(range("cuda:+1"), 5..7);
        assert_eq!(range("cuda:"), 5..5);
        assert_eq!(range("cuda:0..99999999999"), 5..19);
        assert_eq!(range(""), 0..0);
    }

    #[test]
    fn habits_get_a_hint() {
        let help = |text: &str| Devices::parse(text).unwrap_err().help.unwrap();
        assert!(help("gpu").contains("`cuda`"));
        assert!(help("cpu:0").contains("`host`"));
        assert!(help("0").contains("`cuda:0`"));
        assert!(help("CUDA:0").contains("`cuda`"));
        assert!(help("Auto").contains("`auto`?"));
        let of_list = |text: &str| DeviceSpec::parse(text).unwrap_err().help.unwrap();
        assert!(of_list("auto").contains("stands alone"));
        assert!(!of_list("aut").contains("`auto`?"));
    }
}
