//! Numbers as Redis 7.0 reads and writes them.

use bytes::Bytes;

use super::Failure;

pub(crate) const NOT_AN_INTEGER: &str = "ERR value is not an integer or out of range";
const NOT_A_FLOAT: &str = "ERR value is not a valid float";

/// Reads a decimal integer: no plus sign, no space, no leading zero.
pub(crate) fn integer(text: &[u8]) -> Option<i64> {
    let digits = text.strip_prefix(b"-").unwrap_or(text);
    let canonical = match digits {
        b"0" => digits.len() == text.len(),
        [b'1'..=b'9', rest @ ..] => rest.iter().all(u8::is_ascii_digit),
        _ => false,
    };
    let text = std::str::from_utf8(text).ok().filter(|_| canonical)?;
    text.parse().ok()
}

/// Reads an integer, or returns the error of Redis's commands.
pub(crate) fn parse_integer(text: &[u8]) -> Result<i64, Failure> {
    integer(text).ok_or_else(|| NOT_AN_INTEGER.into())
}

/// Reads a decimal fraction, exponent or infinity. Refuses NaN.
pub(crate) fn float(text: &[u8]) -> Option<f64> {
    let number: f64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (!number.is_nan()).then_some(number)
}

/// Reads a float, or returns the error of Redis's commands.
pub(crate) fn parse_float(text: &[u8]) -> Result<f64, Failure> {
    float(text).ok_or_else(|| NOT_A_FLOAT.into())
}

/// The text of an integer.
pub(crate) fn integer_text(number: i64) -> Bytes {
    match number {
        0..=9 => Bytes::copy_from_slice(&[b'0' + number as u8]),
        _ => number.to_string().into(),
    }
}

/// The text of a float.
pub(crate) fn float_text(number: f64) -> Bytes {
    general(number).into()
}

/// The format `%.17g` of C.
pub(crate) fn general(number: f64) -> String {
    if number.is_nan() {
        return if number.is_sign_negative() {
            "-nan"
        } else {
            "nan"
        }
        .into();
    }
    if number.is_infinite() {
        return if number < 0.0 { "-inf" } else { "inf" }.into();
    }
    if number == number.trunc() && number.abs() < 1e17 {
        return format!("{number:.0}");
    }
    let scientific = format!("{number:.16e}");
    let (digits, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    if (-4..17).contains(&exponent) {
        let decimals = usize::try_from(16 - exponent).unwrap_or(0);
        return without_trailing_zeros(&format!("{number:.decimals$}")).to_owned();
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    let digits = without_trailing_zeros(digits);
    format!("{digits}e{sign}{:02}", exponent.abs())
}

fn without_trailing_zeros(digits: &str) -> &str {
    if digits.contains('.') {
        digits.trim_end_matches('0').trim_end_matches('.')
    } else {
        digits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn integers_are_canonical() {
        for (text, number) in [
            ("0", 0),
            ("-1", -1),
            ("10", 10),
            ("-9223372036854775808", i64::MIN),
        ] {
            assert_eq!(integer(text.as_bytes()), Some(number));
        }
        for text in [
            "",
            "-",
            "-0",
            "01",
            "+1",
            " 1",
            "1 ",
            "1.0",
            "9223372036854775808",
        ] {
            assert_eq!(integer(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn floats_are_written_as_c_does() {
        for (number, text) in [
            (0.0, "0"),
            (-0.0, "-0"),
            (1.5, "1.5"),
            (0.1, "0.10000000000000001"),
            (1e16, "10000000000000000"),
            (1e17, "1e+17"),
            (1e-5, "1.0000000000000001e-05"),
            (123_456_789_012_345_680.0, "1.2345678901234568e+17"),
            (f64::INFINITY, "inf"),
        ] {
            assert_eq!(general(number), text);
        }
    }
}
