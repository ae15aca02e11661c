//! Parser for `[tier.NAME]`, which maps a tier of models to a model and its server.

use std::net::SocketAddr;

use super::Config;
use super::keys::{Invalid, ParseValue, Value, invalid, number, scalar, set, table, text};
use crate::code::BaseUrl;
use crate::net::{MicroUsd, SecretName};
use crate::plan::{ModelTier, TierName, TierProvider, TokenPrice};

/// The parsed keys of a tier, before they are checked together.
#[derive(Debug, Default)]
struct Raw {
    provider: Option<TierProvider>,
    model: Option<String>,
    secret: Option<SecretName>,
    url: Option<BaseUrl>,
    connect: Option<SocketAddr>,
    price: Option<TokenPrice>,
    context_window: Option<u64>,
}

const KEYS: [(&str, ParseValue<Raw>); 7] = [
    ("provider", |raw, value| set(&mut raw.provider, scalar(value))),
    ("model", |raw, value| set(&mut raw.model, model(value))),
    ("secret", |raw, value| set(&mut raw.secret, scalar(value))),
    ("url", |raw, value| set(&mut raw.url, scalar(value))),
    ("connect", |raw, value| set(&mut raw.connect, scalar(value))),
    ("price", |raw, value| set(&mut raw.price, price(value))),
    ("context-window", |raw, value| set(&mut raw.context_window, window(value))),
];

#[derive(Debug, Default)]
struct RawPrice {
    input: Option<MicroUsd>,
    output: Option<MicroUsd>,
}

const PRICE: [(&str, ParseValue<RawPrice>); 2] = [
    ("input", |raw, value| set(&mut raw.input, scalar(value))),
    ("output", |raw, value| set(&mut raw.output, scalar(value))),
];

/// Parses a `[tier.NAME]` section; an error about the whole section is `Invalid::Here`.
pub(super) fn read(name: TierName, value: &Value<'_>) -> Result<ModelTier, Invalid> {
    let mut raw = Raw::default();
    table(&mut raw, &KEYS, value)?;
    // Destructured without `..`, so that a new key cannot be ignored by mistake.
    let Raw { provider, model, secret, url, connect, price, context_window } = raw;
    if secret.is_none() && url.is_none() {
        return Err(invalid(
            "`secret` is missing; it names the key of the provider (only a server with `url` needs none)",
        ));
    }
    if connect.is_some() && url.is_none() {
        return Err(invalid("`connect` is only possible together with `url`"));
    }
    Ok(ModelTier {
        name,
        provider: provider.ok_or_else(|| invalid("`provider` is missing"))?,
        model: model.ok_or_else(|| invalid("`model` is missing"))?,
        secret,
        url,
        connect,
        price,
        context_window,
    })
}

fn model(value: &Value<'_>) -> Result<String, Invalid> {
    let text = text(value)?;
    if text.is_empty() || text.len() > 256 || !text.chars().all(|c| matches!(c, '!'..='~')) {
        return Err(invalid("must be the name of a model, without spaces"));
    }
    Ok(text)
}

fn price(value: &Value<'_>) -> Result<TokenPrice, Invalid> {
    let mut raw = RawPrice::default();
    table(&mut raw, &PRICE, value)?;
    let missing = || invalid("write the prices of a million tokens as `input` and `output`");
    Ok(TokenPrice {
        input: raw.input.ok_or_else(missing)?,
        output: raw.output.ok_or_else(missing)?,
    })
}

fn window(value: &Value<'_>) -> Result<u64, Invalid> {
    match number(value)? {
        0 => Err(invalid("a model needs room for at least one token")),
        tokens => Ok(tokens),
    }
}

impl Config {
    /// Returns the tiers of models, sorted by name.
    pub fn tiers(&self) -> impl Iterator<Item = &ModelTier> {
        self.tiers.values()
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::Scope;

    fn parse(text: &str, scope: Scope) -> Result<Vec<ModelTier>, String> {
        let config = Config::parse(text, Path::new("belljar.toml"), scope);
        config.map(|it| it.tiers().cloned().collect()).map_err(|error| error.to_string())
    }

    #[test]
    fn tier_has_all_its_values() {
        let text = "[tier.cheap]\nprovider = 'anthropic'\nmodel = 'claude-haiku-4-5'\nsecret = 'anthropic'\nprice = { input = '1 USD', output = '$5' }\ncontext-window = 200000\n[tier.local]\nprovider = 'openai-chat'\nmodel = 'qwen3:8b'\nurl = 'http://localhost:11434/v1'\n";
        let tiers = parse(text, Scope::Operator).unwrap();
        let [cheap, local] = tiers.as_slice() else { panic!("two tiers") };
        assert_eq!(
            (cheap.provider, cheap.model.as_str()),
            (TierProvider::Anthropic, "claude-haiku-4-5")
        );
        let price = TokenPrice { input: MicroUsd(1_000_000), output: MicroUsd(5_000_000) };
        assert_eq!((cheap.price, cheap.context_window), (Some(price), Some(200_000)));
        assert_eq!(cheap.secret.as_ref().map(SecretName::as_str), Some("anthropic"));
        let url = local.url.as_ref().map(ToString::to_string);
        assert_eq!(url.as_deref(), Some("http://localhost:11434/v1"));
        assert_eq!((local.secret.as_ref(), local.price), (None, None));
    }

    #[test]
    fn invalid_tier_is_refused_with_its_line() {
        let whole = "provider = 'openai-chat'\nmodel = 'm'\nsecret = 's'\n";
        for (text, expect) in [
            ("provider = 'anthropic'\nsecret = 's'", "1: tier `x`: `model` is missing"),
            ("model = 'm'\nsecret = 's'", "1: tier `x`: `provider` is missing"),
            ("provider = 'anthropic'\nmodel = 'm'", "1: tier `x`: `secret` is missing"),
            (
                "provider = 'openai'",
                "2: `provider = 'openai'`: unknown provider; write `anthropic`, `openai-chat` or `openai-responses`",
            ),
            (
                &format!("{whole}price = {{ input = '1 USD' }}"),
                "5: `price = { input = '1 USD' }`: write the prices",
            ),
            (
                &format!("{whole}price = {{ input = 1, output = 1 }}"),
                "5: `input = 1`: invalid amount of money",
            ),
            (&format!("{whole}url = 'localhost'"), "5: `url = 'localhost'`: invalid URL"),
            (&format!("{whole}context-window = 0"), "5: `context-window = 0`: a model needs room"),
            (&format!("{whole}modle = 'x'"), "5: unknown key `modle`; did you mean `model`?"),
            ("model = 'a b'", "2: `model = 'a b'`: must be the name of a model"),
        ] {
            let error = parse(&format!("[tier.x]\n{text}\n"), Scope::Operator).unwrap_err();
            assert!(error.starts_with(&format!("belljar.toml:{expect}")), "{error}");
        }
    }

    #[test]
    fn c08_project_cannot_set_tiers() {
        let text = "[tier.x]\nprovider = 'anthropic'\nmodel = 'm'\nsecret = 's'\n";
        let error = parse(text, Scope::Project).unwrap_err();
        assert!(error.contains("only valid in the operator's own file"), "{error}");
        assert!(parse(text, Scope::Operator).is_ok());
    }
}
