//! `belljar api add`: previews a new section of the operator's belljar.toml and writes it if confirmed.

use belljar_engine::apis::{Apis, NewApi};
use belljar_engine::error::{ErrorKind, WithKind as _, invalid};
use belljar_model::display::safe_multiline;

use crate::cli::api::AddArgs;
use crate::exit::Outcome;
use crate::print;
use crate::scope;

/// Runs `belljar api add`.
pub(super) fn run(apis: &Apis, args: &AddArgs) -> Outcome {
    let addition = apis.prepare(&new_api(args), &scope::current_dir()?)?;
    print::out(&safe_multiline(addition.section())).kind(ErrorKind::Broken)?;
    for remark in &addition.service().remarks {
        print::note(remark);
    }
    let question = format!("add this section to {}?", addition.file().display());
    if !args.yes && !print::confirm(&question).kind(ErrorKind::Broken)? {
        return Err(invalid(
            "nothing was written, because it was not confirmed; `--yes` skips the question",
        ));
    }
    let service = addition.write()?;
    let operations = match service.operations() {
        0 => String::new(),
        count => format!(" with {count} operations"),
    };
    print::note(&format!(
        "programs can call the service as apis.{}{operations}",
        args.name.identifier()
    ));
    Ok(0)
}

/// Converts the arguments into the description of a service.
fn new_api(args: &AddArgs) -> NewApi {
    NewApi {
        name: args.name.clone(),
        description: args.description.clone(),
        openapi: args.openapi.clone(),
        hosts: args.hosts.clone(),
        allow: args.allow.clone(),
        secrets: args.secrets.clone(),
        restricted: args.restricted.clone(),
        base_url: args.base_url.clone(),
        reference: args.reference.clone(),
    }
}
