//! `belljar template`: what the configuration files mean.

use crate::scope::host;
use anyhow::Context;
use belljar_model::{Config, Scope, display};
use serde::Serialize;

use crate::cli::{Cli, TemplateArgs, TemplateCommand};
use crate::exit::Outcome;
use crate::print;
use belljar_engine::config;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};

pub(crate) fn run(cli: &Cli, args: &TemplateArgs) -> Outcome {
    match &args.command {
        TemplateCommand::List { json } => list(&load(cli)?, *json),
        TemplateCommand::Show { name, json } => show(&load(cli)?, name, *json),
        TemplateCommand::Check { file: Some(file) } => {
            let Some(config) = config::read(file, Scope::Operator)? else {
                return Err(invalid(format!("{}: there is no such file", file.display())));
            };
            check(&config)?;
            done(&format!("{}: good\n", display::safe(file.as_os_str().as_encoded_bytes())))
        }
        TemplateCommand::Check { file: None } => {
            let config = load(cli)?;
            check(&config)?;
            done(&format!("good: {} templates\n", config.names().len()))
        }
    }
}

/// Whether each template gives rules: its secrets are declared and lead somewhere.
fn check(config: &Config) -> Result<(), EngineError> {
    for name in config.names() {
        let Some(template) = config.template(name) else { continue };
        template
            .policy(config)
            .with_context(|| format!("template {name}"))
            .kind(ErrorKind::Invalid)?;
    }
    Ok(())
}

fn load(cli: &Cli) -> Result<Config, EngineError> {
    let here = std::env::current_dir().ok();
    config::load_from(host(), cli.config.as_deref(), here.as_deref()).map(|(config, _)| config)
}

#[derive(Serialize)]
struct Listed<'a> {
    name: &'a str,
    mode: &'static str,
    net: &'static str,
}

fn list(config: &Config, json: bool) -> Outcome {
    for name in config.names() {
        let Some(template) = config.template(name) else { continue };
        let (mode, net) = (template.mode.name(), template.net.name());
        if json {
            print::json(&Listed { name, mode, net }).kind(ErrorKind::Broken)?;
        } else {
            let name = display::safe(name);
            print::out(&format!("{name:<20} {mode:<10} network {net}\n"))
                .kind(ErrorKind::Broken)?;
        }
    }
    Ok(0)
}

fn show(config: &Config, name: &str, json: bool) -> Outcome {
    let Some(template) = config.template(name) else {
        return Err(invalid(format!(
            "no template {name:?}; there are {}",
            config.names().join(", ")
        )));
    };
    if json {
        print::json(&template).kind(ErrorKind::Broken)?;
        return Ok(0);
    }
    done(&display::safe_multiline(template.to_toml()))
}

fn done(text: &str) -> Outcome {
    print::out(text).kind(ErrorKind::Broken)?;
    Ok(0)
}
