//! Canonical JSON (RFC 8785), so that equal values have equal hashes.

use serde_json::{Map, Number, Value};

/// Returns the canonical JSON text of a value (RFC 8785).
pub fn canonical(value: &Value) -> String {
    let mut out = String::new();
    push(&mut out, value);
    out
}

fn push(out: &mut String, value: &Value) {
    match value {
        Value::Null | Value::Bool(_) | Value::String(_) => out.push_str(&value.to_string()),
        Value::Number(number) => out.push_str(&text_of(number)),
        Value::Array(values) => {
            out.push('[');
            for (index, value) in values.iter().enumerate() {
                if index > 0 {
                    out.push(',');
                }
                push(out, value);
            }
            out.push(']');
        }
        Value::Object(members) => push_object(out, members),
    }
}

fn push_object(out: &mut String, members: &Map<String, Value>) {
    let mut sorted: Vec<(&String, &Value)> = members.iter().collect();
    // RFC 8785 sorts by UTF-16 code units. Above U+FFFF this differs from the order of code points.
    sorted.sort_by(|(left, _), (right, _)| left.encode_utf16().cmp(right.encode_utf16()));
    out.push('{');
    for (index, (key, value)) in sorted.into_iter().enumerate() {
        if index > 0 {
            out.push(',');
        }
        push(out, &Value::String(key.clone()));
        out.push(':');
        push(out, value);
    }
    out.push('}');
}

/// Returns a JSON number as JavaScript formats it.
fn text_of(number: &Number) -> String {
    let Some(value) = number.as_f64() else { return number.to_string() };
    if value == 0.0 {
        return "0".to_owned(); // also for -0
    }
    let sign = if value < 0.0 { "-" } else { "" };
    let shortest = format!("{:e}", value.abs());
    // Of two shortest texts that are equally near, ECMA-262 chooses the one with the even last digit.
    let length = shortest.bytes().take_while(|it| *it != b'e').filter(u8::is_ascii_digit).count();
    let nearest = format!("{:.*e}", length.saturating_sub(1), value.abs());
    let is_same = nearest.parse() == Ok(value.abs());
    let shortest = if is_same { nearest } else { shortest };
    let (digits, exponent) = shortest.split_once('e').unwrap_or((&shortest, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let digits = digits.replace('.', "");
    format!("{sign}{}", placed(&digits, exponent + 1))
}

/// Returns the digits with a decimal point after `point` digits, or with an exponent (ECMA-262,
/// Number::toString).
fn placed(digits: &str, point: i32) -> String {
    let count = i32::try_from(digits.len()).unwrap_or(i32::MAX);
    let zeros = |count: i32| "0".repeat(usize::try_from(count).unwrap_or(0));
    match point {
        point if count <= point && point <= 21 => format!("{digits}{}", zeros(point - count)),
        1..=21 => {
            let (whole, rest) = digits.split_at(usize::try_from(point).unwrap_or(0));
            format!("{whole}.{rest}")
        }
        -5..=0 => format!("0.{}{digits}", zeros(-point)),
        point => {
            let (first, rest) = digits.split_at(1);
            let dot = if rest.is_empty() { "" } else { "." };
            format!("{first}{dot}{rest}e{:+}", point - 1)
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn canonical_json_formats_numbers_as_in_rfc_8785() {
        for (bits, expect) in [
            (0x0000_0000_0000_0000, "0"),
            (0x8000_0000_0000_0000, "0"),
            (0x0000_0000_0000_0001, "5e-324"),
            (0x7fef_ffff_ffff_ffff, "1.7976931348623157e+308"),
            (0x4340_0000_0000_0000, "9007199254740992"),
            (0xc340_0000_0000_0000, "-9007199254740992"),
            (0x4430_0000_0000_0000, "295147905179352830000"),
            (0x44b5_2d02_c7e1_4af5, "9.999999999999997e+22"),
            (0x44b5_2d02_c7e1_4af6, "1e+23"),
            (0x444b_1ae4_d6e2_ef4e, "999999999999999700000"),
            (0x444b_1ae4_d6e2_ef50, "1e+21"),
            (0x3eb0_c6f7_a0b5_ed8c, "9.999999999999997e-7"),
            (0x3eb0_c6f7_a0b5_ed8d, "0.000001"),
            (0x41b3_de43_5555_5553, "333333333.3333332"),
            (0xbecb_f647_612f_3696, "-0.0000033333333333333333"),
            (0x4314_3ff3_c1cb_0959, "1424953923781206.2"),
        ] {
            assert_eq!(canonical(&json!(f64::from_bits(bits))), expect);
        }
        assert_eq!(
            canonical(&json!([1, -1, 1.0, 10, u64::MAX])),
            "[1,-1,1,10,18446744073709552000]"
        );
    }

    #[test]
    fn canonical_json_sorts_keys_by_utf_16_and_escapes_strings_minimally() {
        let value = json!({
            "\u{20ac}": "Euro", "\r": "CR", "\u{fb33}": "Hebrew", "1": "One", "\u{1f600}": "Smile",
            "\u{80}": "Control", "\u{f6}": "o",
        });
        assert_eq!(
            canonical(&value),
            "{\"\\r\":\"CR\",\"1\":\"One\",\"\u{80}\":\"Control\",\"\u{f6}\":\"o\",\"\u{20ac}\":\"Euro\",\"\u{1f600}\":\"Smile\",\"\u{fb33}\":\"Hebrew\"}"
        );
        assert_eq!(
            canonical(&json!("\u{f}\n\"\\/\u{8}\u{20ac}")),
            "\"\\u000f\\n\\\"\\\\/\\b\u{20ac}\""
        );
    }
}
