//! Numbers as the server reads and writes them.

use crate::version::Version;

/// An integer in its one canonical form: no sign but a minus, no zeros in front, no blanks.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    match digits {
        [b'0'] => return (text.len() == 1).then_some(0),
        [b'1'..=b'9', rest @ ..] if rest.len() < 19 && rest.iter().all(u8::is_ascii_digit) => {}
        _ => return None,
    }
    // There is one more negative number than there are positive ones.
    let negative = digits
        .iter()
        .try_fold(0_i64, |sum, digit| sum.checked_mul(10)?.checked_sub(i64::from(digit - b'0')))?;
    if digits.len() < text.len() { Some(negative) } else { negative.checked_neg() }
}

/// A number as C's `strtod` reads it, the whole of the text. Valkey reads with a function of its own, which knows no
/// hexadecimal numbers.
pub(crate) fn double(text: &[u8], version: Version) -> Option<f64> {
    let text = std::str::from_utf8(text).ok()?;
    let unsigned = text.strip_prefix(['+', '-']).unwrap_or(text);
    let hex = unsigned.strip_prefix("0x").or_else(|| unsigned.strip_prefix("0X"));
    let hex = hex.filter(|_| !version.is_valkey());
    let value = match hex {
        Some(digits) => {
            hexadecimal(digits)?.copysign(if text.starts_with('-') { -1.0 } else { 1.0 })
        }
        None => text.parse().ok()?,
    };
    let named = unsigned.starts_with(['i', 'I']);
    let digits = unsigned.bytes().take_while(|byte| !matches!(byte, b'e' | b'E'));
    let underflown =
        value == 0.0 && hex.is_none() && digits.into_iter().any(|byte| matches!(byte, b'1'..=b'9'));
    let overflown = value.is_infinite() && !named;
    (!value.is_nan() && !overflown && !underflown).then_some(value)
}

fn hexadecimal(digits: &str) -> Option<f64> {
    let whole = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_hexdigit());
    whole.then(|| {
        digits.bytes().fold(0.0, |sum, byte| {
            sum * 16.0 + f64::from(char::from(byte).to_digit(16).unwrap_or(0))
        })
    })
}

/// A score as it is sent.
pub(crate) fn score(value: f64, version: Version) -> String {
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    if version.is_recent() { shortest(value) } else { general(value) }
}

/// A Lua number as an argument of a command.
pub(crate) fn argument(out: &mut Vec<u8>, value: f64, version: Version) {
    let negative_zero = value == 0.0 && value.is_sign_negative() && !version.is_recent();
    if value == value.trunc() && value.abs() < 1e15 && !negative_zero {
        return write_integer(out, value as i64);
    }
    let text = if version.is_recent() { shortest(value) } else { general(value) };
    out.extend_from_slice(text.as_bytes());
}

/// As C's `%.17g`.
pub(crate) fn general(value: f64) -> String {
    if value.is_nan() {
        return if value.is_sign_negative() { "-nan".into() } else { "nan".into() };
    }
    if value.is_infinite() {
        return if value > 0.0 { "inf".into() } else { "-inf".into() };
    }
    let scientific = format!("{value:.16e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let without_zeros = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..17).contains(&exponent) {
        let places = usize::try_from(16 - exponent).unwrap_or(0);
        return without_zeros(&format!("{value:.places$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", without_zeros(digits), exponent.abs())
}

/// The shortest text that is read as the same number, as newer servers write it.
fn shortest(value: f64) -> String {
    let negative_zero = value == 0.0 && value.is_sign_negative();
    // Half of what an integer can be, which the server takes for safe.
    if value == value.trunc() && value.abs() <= (i64::MAX / 2) as f64 && !negative_zero {
        return (value as i64).to_string();
    }
    if value.is_nan() || value.is_infinite() {
        return general(value);
    }
    let scientific = format!("{:e}", value.abs());
    let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits = mantissa.len() as i32 - i32::from(mantissa.contains('.'));
    let last = exponent - (digits - 1); // the power of ten of the last digit
    let sign = if value.is_sign_negative() { "-" } else { "" };
    let plain = if last >= 0 { exponent < digits + 7 } else { last > -7 || exponent.abs() < 4 };
    if plain {
        return format!("{sign}{}", value.abs());
    }
    format!("{sign}{mantissa}e{}{}", if exponent < 0 { '-' } else { '+' }, exponent.abs())
}

/// A C cast to a 64-bit integer, as x86-64 carries it out.
pub(crate) fn truncated(value: f64) -> i64 {
    const END: f64 = 9_223_372_036_854_775_808.0;
    let fits = (-END..END).contains(&value);
    if fits { value as i64 } else { i64::MIN }
}

pub(crate) fn write_integer(out: &mut Vec<u8>, value: i64) {
    if (0..10).contains(&value) {
        return out.push(b'0' + value as u8);
    }
    let (mut digits, mut rest, mut at) = ([0; 20], value.unsigned_abs(), 20);
    while rest > 0 {
        at -= 1;
        digits[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    if value < 0 {
        out.push(b'-');
    }
    out.extend_from_slice(&digits[at..]);
}

/// The end of a span of scores: as a score, but looser about what stands before it.
///
/// The text ends at its first NUL. An empty one is 0, and a number that is too large is infinite. C skips blanks in
/// front and knows hexadecimal numbers, recent servers do neither.
pub(crate) fn bound(text: &[u8], version: Version) -> Option<f64> {
    let end = text.iter().position(|byte| *byte == 0).unwrap_or(text.len());
    let text = if version.is_recent() { &text[..end] } else { text[..end].trim_ascii_start() };
    if end == 0 {
        return Some(0.0);
    }
    let read: Option<f64> = std::str::from_utf8(text).ok().and_then(|text| text.parse().ok());
    let as_score = if version.is_recent() { None } else { double(text, version) };
    as_score.or(read).filter(|value| !value.is_nan())
}
