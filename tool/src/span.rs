//! Spans of time as people write them: `30`, `1.5s`, `200ms`, `1h30m`.

use std::time::Duration;

/// The longest span that any option takes: a year.
const LONGEST: f64 = 365.0 * 86_400.0;

/// Reads a span. A number without a unit is in seconds, as in flock(1).
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let unclear = || format!("{text:?} is no time: write 30, 1.5s, 200ms or 1h30m");
    let checked = |seconds: f64| match seconds {
        0.0..=LONGEST => Ok(Duration::from_secs_f64(seconds)),
        LONGEST.. => Err(format!("{text:?} is longer than a year")),
        _ => Err(unclear()),
    };
    if let Ok(seconds) = text.parse::<f64>() {
        return checked(seconds);
    }
    let (mut rest, mut sum) = (text, 0.0);
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit() && c != '.').ok_or_else(unclear)?;
        let (number, tail) = rest.split_at(digits);
        let (unit, tail) =
            tail.split_at(tail.find(|c: char| !c.is_alphabetic()).unwrap_or(tail.len()));
        sum +=
            number.parse::<f64>().map_err(|_| unclear())? * seconds_of(unit).ok_or_else(unclear)?;
        rest = tail;
    }
    if text.is_empty() { Err(unclear()) } else { checked(sum) }
}

fn seconds_of(unit: &str) -> Option<f64> {
    Some(match unit {
        "ms" => 0.001,
        "s" | "sec" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "d" => 86_400.0,
        _ => return None,
    })
}

/// A span in few characters, for tables: `850ms`, `12.3s`, `4m05s`, `3h12m`, `2d04h`.
pub(crate) fn short(span: Duration) -> String {
    let (seconds, millis) = (span.as_secs(), span.subsec_millis());
    match seconds {
        0 => format!("{millis}ms"),
        1..60 => format!("{seconds}.{}s", millis / 100),
        60..3600 => format!("{}m{:02}s", seconds / 60, seconds % 60),
        3600..86_400 => format!("{}h{:02}m", seconds / 3600, seconds / 60 % 60),
        _ => format!("{}d{:02}h", seconds / 86_400, seconds / 3600 % 24),
    }
}

/// A span as a measurement: `0.35 ms`.
pub(crate) fn in_ms(span: Duration) -> String {
    format!("{:.2} ms", span.as_secs_f64() * 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_bare_number_is_in_seconds() {
        assert_eq!(parse("30"), Ok(Duration::from_secs(30)));
        assert_eq!(parse("0"), Ok(Duration::ZERO));
        assert_eq!(parse("0.25"), Ok(Duration::from_millis(250)));
    }

    #[test]
    fn units_add_up() {
        assert_eq!(parse("200ms"), Ok(Duration::from_millis(200)));
        assert_eq!(parse("1.5s"), Ok(Duration::from_millis(1500)));
        assert_eq!(parse("1h30m"), Ok(Duration::from_secs(5400)));
        assert_eq!(parse("1d1min"), Ok(Duration::from_secs(86_460)));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for text in ["", "s", "5x", "-1", "1h-", "nan", "inf", "1e300", "5 s", "1.2.3s", "400d"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn a_time_that_is_too_long_is_told_so() {
        for text in ["400d", "99999999999", "1e300"] {
            assert_eq!(parse(text), Err(format!("{text:?} is longer than a year")));
        }
    }

    #[test]
    fn a_span_is_shown_in_few_characters() {
        let shown = |ms| short(Duration::from_millis(ms));
        assert_eq!([shown(850), shown(12_345), shown(245_000)], ["850ms", "12.3s", "4m05s"]);
        assert_eq!([shown(11_520_000), shown(187_200_000)], ["3h12m", "2d04h"]);
    }
}
