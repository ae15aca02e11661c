//! `belljar template`: lists, shows and checks the templates of belljar.toml.

use crate::scope::host;
use anyhow::Context;
use belljar_model::{Config, Scope, display};
use serde::Serialize;

use crate::cli::{Cli, TemplateArgs, TemplateCommand};
use crate::exit::Outcome;
use crate::print;
use belljar_engine::config;
use belljar_engine::error::{EngineError, ErrorKind, WithKind as _, invalid};

/// Runs `belljar template`.
pub(crate) fn run(cli: &Cli, args: &TemplateArgs) -> Outcome {
    match &args.command {
        TemplateCommand::List { json } => list(&load(cli)?, *json),
        TemplateCommand::Show { name, json } => show(&load(cli)?, name, *json),
        TemplateCommand::Check { file: Some(file) } => {
            let Some(config) = config::read(file, Scope::Operator)? else {
                return Err(invalid(format!(
                    "cannot check {}: the file does not exist",
                    file.display()
                )));
            };
            check(&config)?;
            print_text(&format!("{}: valid\n", display::safe(file.as_os_str().as_encoded_bytes())))
        }
        TemplateCommand::Check { file: None } => {
            let config = load(cli)?;
            check(&config)?;
            print_text(&format!("valid: {} templates\n", config.names().len()))
        }
    }
}

/// Checks that the network policy of each template is valid, including its secrets.
fn check(config: &Config) -> Result<(), EngineError> {
    for name in config.names() {
        let Some(template) = config.template(name) else { continue };
        template
            .policy(config)
            .with_context(|| format!("the template {name} is invalid"))
            .kind(ErrorKind::Invalid)?;
    }
    Ok(())
}

/// Loads the configuration of the operator and of the project in the current directory.
fn load(cli: &Cli) -> Result<Config, EngineError> {
    let current_dir = std::env::current_dir().ok();
    config::load_from(host(), cli.config.as_deref(), current_dir.as_deref())
        .map(|(config, _)| config)
}

/// A template in the list, as JSON.
#[derive(Serialize)]
struct TemplateLine<'a> {
    name: &'a str,
    mode: &'static str,
    net: &'static str,
}

/// Prints the names, modes and networks of all templates.
fn list(config: &Config, json: bool) -> Outcome {
    for name in config.names() {
        let Some(template) = config.template(name) else { continue };
        let (mode, net) = (template.mode.name(), template.net.name());
        if json {
            print::json(&TemplateLine { name, mode, net }).kind(ErrorKind::Broken)?;
        } else {
            let name = display::safe(name);
            print::out(&format!("{name:<20} {mode:<10} network {net}\n"))
                .kind(ErrorKind::Broken)?;
        }
    }
    Ok(0)
}

/// Prints one template with all its values.
fn show(config: &Config, name: &str, json: bool) -> Outcome {
    let Some(template) = config.template(name) else {
        return Err(invalid(format!(
            "unknown template {name:?}; known templates: {}",
            config.names().join(", ")
        )));
    };
    if json {
        print::json(&template).kind(ErrorKind::Broken)?;
        return Ok(0);
    }
    print_text(&display::safe_multiline(template.to_toml()))
}

/// Prints a text and returns exit code 0.
fn print_text(text: &str) -> Outcome {
    print::out(text).kind(ErrorKind::Broken)?;
    Ok(0)
}
