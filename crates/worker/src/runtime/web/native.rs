//! Native functions for random bytes, hashes, base64 and delays.

use std::time::Duration;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig, STANDARD};
use rquickjs::function::{Async, Func};
use rquickjs::{Ctx, Exception, Function, Object, Result};

use super::binary::Binary;
use super::digest;

pub(super) fn natives<'js>(ctx: &Ctx<'js>, natives: &Object<'js>) -> Result<()> {
    natives.set("hash", Function::new(ctx.clone(), hash)?)?;
    natives.set("hmac", Function::new(ctx.clone(), hmac)?)?;
    natives.set("random", Function::new(ctx.clone(), random)?)?;
    natives.set("uuid", Function::new(ctx.clone(), uuid)?)?;
    natives.set("base64Encode", Func::from(|bytes: Binary| STANDARD.encode(bytes.0)))?;
    natives.set("base64Decode", Func::from(base64_decode))?;
    natives.set("sleep", Function::new(ctx.clone(), Async(sleep))?)?;
    natives.set("userAgent", crate::runtime::http::USER_AGENT)
}

fn hash(ctx: Ctx<'_>, algorithm: String, bytes: Binary) -> Result<Binary> {
    let hashed = digest::hash(&algorithm, &bytes.0).map(Binary);
    hashed.ok_or_else(|| Exception::throw_type(&ctx, &format!("unknown algorithm: {algorithm}")))
}

fn hmac(ctx: Ctx<'_>, algorithm: String, key: Binary, bytes: Binary) -> Result<Binary> {
    let code = digest::hmac(&algorithm, &key.0, &bytes.0).map(Binary);
    code.ok_or_else(|| Exception::throw_type(&ctx, &format!("unknown algorithm: {algorithm}")))
}

fn random(ctx: Ctx<'_>, length: usize) -> Result<Binary> {
    let mut bytes = vec![0; length];
    match getrandom::fill(&mut bytes) {
        Ok(()) => Ok(Binary(bytes)),
        Err(error) => {
            Err(Exception::throw_internal(&ctx, &format!("cannot read random bytes: {error}")))
        }
    }
}

/// Returns a random UUID (RFC 9562, version 4).
fn uuid(ctx: Ctx<'_>) -> Result<String> {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).map_err(|error| {
        Exception::throw_internal(&ctx, &format!("cannot read random bytes: {error}"))
    })?;
    let number = u128::from_be_bytes(bytes) & !(0xf << 76) & !(3 << 62) | 4 << 76 | 2 << 62;
    let hex = format!("{number:032x}");
    let (a, rest) = hex.split_at(8);
    let (b, rest) = rest.split_at(4);
    let (c, rest) = rest.split_at(4);
    let (d, e) = rest.split_at(4);
    Ok(format!("{a}-{b}-{c}-{d}-{e}"))
}

/// Decodes base64 text as leniently as Node's `Buffer`: both alphabets, optional padding,
/// whitespace.
fn base64_decode(text: String) -> Option<Binary> {
    const LENIENT: GeneralPurposeConfig = GeneralPurposeConfig::new()
        .with_decode_allow_trailing_bits(true)
        .with_decode_padding_mode(DecodePaddingMode::Indifferent);
    const ANY: GeneralPurpose = GeneralPurpose::new(&alphabet::STANDARD, LENIENT);
    let encoded: Vec<u8> = text
        .bytes()
        .filter(|byte| !byte.is_ascii_whitespace())
        .map(|byte| match byte {
            b'-' => b'+',
            b'_' => b'/',
            other => other,
        })
        .collect();
    ANY.decode(encoded).ok().map(Binary)
}

async fn sleep(milliseconds: f64) {
    let wait = Duration::try_from_secs_f64(milliseconds / 1000.0).unwrap_or_default();
    tokio::time::sleep(wait).await;
}
