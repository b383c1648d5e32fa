//! `[pipeline]`.

use std::time::Duration;

use squall_core::{Diagnostic, Label};
use toml::de::DeValue;

use super::levels;
use super::model::{Pipeline, Stop};
use super::place::{At, TextError};
use super::reader::{Field, Fields, Reader};
use super::scope::Scope;
use crate::codes;

const TIMEOUT: Duration = Duration::from_secs(60);

/// Steps between two looks at `stop_when`: reading a value waits for the devices.
const STOP_EVERY: u64 = 10;

/// Reads `[pipeline]`, which may be left out.
pub(crate) fn read<'s>(reader: &mut Reader<'s>, root: &Fields<'_, 's>) -> Pipeline {
    let fields = root.get("pipeline").and_then(|field| reader.table(field, &levels::PIPELINE));
    let get = |key| fields.and_then(|fields| fields.get(key));
    if let (Some(steps), Some(epochs)) = (get("steps"), get("epochs")) {
        reader.conflict(steps, epochs);
    }
    Pipeline {
        name: get("name").and_then(|field| reader.word(field)),
        steps: get("steps").and_then(|field| reader.integer(field, 1)).unwrap_or(At::default(1)),
        epochs: get("epochs").and_then(|field| reader.integer(field, 1)),
        stop: fields.and_then(|fields| stop(reader, &fields)),
        step_timeout: get("step_timeout")
            .and_then(|field| duration(reader, field))
            .unwrap_or(At::default(TIMEOUT)),
        init_timeout: get("init_timeout")
            .and_then(|field| duration(reader, field))
            .unwrap_or(At::default(TIMEOUT)),
        cuda_graph: get("cuda_graph").and_then(|field| reader.boolean(field)).unwrap_or(At::default(false)),
        block: get("block").and_then(|field| reader.dims(field, Scope::default())),
        seed: get("seed").and_then(|field| reader.integer(field, 0)).unwrap_or(At::default(0)),
    }
}

/// `stop_when` and `stop_every`.
fn stop<'s>(reader: &mut Reader<'s>, fields: &Fields<'_, 's>) -> Option<Stop> {
    let (when, every) = (fields.get("stop_when"), fields.get("stop_every"));
    if let (None, Some(every)) = (when, every)
        && !fields.misspells(&["stop_when"])
    {
        let label = Label::at(every.key_span, "nothing is looked at");
        let report = Diagnostic::error(codes::CONFLICTING_KEYS, "`stop_every` needs a `stop_when`", label);
        reader.report(report.with_help("say on what the run ends, as `stop_when = \"loss < 0.01\"`"));
    }
    let every = every.map_or(Some(At::default(STOP_EVERY)), |field| reader.integer(field, 1));
    let scope = Scope { buffers: true, ..Scope::default() };
    let when = when.and_then(|field| Some((field, reader.condition(field, scope)?)));
    let (field, when) = when?;
    let text = match field.node.get_ref() {
        DeValue::String(text) => text.as_ref().to_owned(),
        _ => when.expr.to_string(),
    };
    Some(Stop { when, text, every: every? })
}

fn duration<'s>(reader: &mut Reader<'s>, field: Field<'_, 's>) -> Option<At<Duration>> {
    if let DeValue::Integer(seconds) = field.node.get_ref() {
        let help = hint(&format!("{}s", seconds.as_str()));
        return reader.wrong_type_with_help(field, "a duration, as `\"30s\"`", Some(help));
    }
    let text = reader.text_or(field, "a duration, as `\"30s\"`")?;
    match parse_duration(&text.value) {
        Ok(duration) => Some(At::new(duration, field.span())),
        Err(error) => reader.text_error(error, &text.place),
    }
}

/// Longer waits are no waits; the bound keeps every sum of a time and a duration representable.
const LONGEST: Duration = Duration::from_secs(365 * 24 * 3600);

const FORMS: &str = "a whole number and a unit: `\"500ms\"`, `\"30s\"`, `\"2m\"`, `\"1h\"`";

/// The hint to write `mended`, if that is a duration.
fn hint(mended: &str) -> String {
    match parse_duration(mended) {
        Ok(_) => format!("a duration has its unit: `\"{mended}\"`"),
        Err(_) => FORMS.to_owned(),
    }
}

/// Reads `500ms`, `30s`, `2m`, `1h`, for whoever takes a duration beside the manifest: a command line.
pub fn parse_duration(text: &str) -> Result<Duration, TextError> {
    let whole = 0..text.len();
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let malformed =
        |help: String| Err(TextError::new(whole.clone(), format!("`{text}` is not a duration"), help));
    if number.is_empty() {
        return malformed(FORMS.to_owned());
    }
    let milliseconds: u64 = match unit.trim_start() {
        "ms" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "" | "sec" | "secs" | "second" | "seconds" => return malformed(hint(&format!("{number}s"))),
        "min" | "mins" | "minute" | "minutes" => return malformed(hint(&format!("{number}m"))),
        _ => return malformed(FORMS.to_owned()),
    };
    let total = number.parse::<u64>().ok().and_then(|number| number.checked_mul(milliseconds));
    match total.map(Duration::from_millis) {
        Some(Duration::ZERO) => Err(TextError::new(
            whole,
            "the duration is zero, and nothing is done in no time",
            "allow some time: `\"60s\"`",
        )),
        Some(duration) if duration <= LONGEST => Ok(duration),
        _ => Err(TextError::new(whole, format!("`{text}` is longer than a year"), "at most `\"8760h\"`")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_unit() {
        assert_eq!(parse_duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(parse_duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(parse_duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(parse_duration("8760h"), Ok(LONGEST));
        for refused in
            ["", "2", "0s", "-1s", "1.5s", "s", "8761h", "99999999999999999999s", "18446744073709551615h"]
        {
            assert!(parse_duration(refused).is_err(), "{refused}");
        }
        assert!(parse_duration("2").unwrap_err().help.unwrap().contains("`\"2s\"`"));
        for without_mend in ["0", "-2", "99999999999", "0 sec"] {
            assert!(
                parse_duration(without_mend).unwrap_err().help.unwrap().contains("`\"30s\"`"),
                "{without_mend}"
            );
        }
        assert!(parse_duration("2 min").unwrap_err().help.unwrap().contains("`\"2m\"`"));
    }
}
