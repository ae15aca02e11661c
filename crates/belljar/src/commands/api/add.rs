//! `belljar api add`: shows the new section of the operator's file, and writes it on a yes.

use belljar_engine::apis::{Apis, NewApi};
use belljar_engine::error::{ErrorKind, WithKind as _, invalid};
use belljar_model::display::safe_multiline;

use crate::cli::api::AddArgs;
use crate::exit::Outcome;
use crate::print;
use crate::scope;

pub(super) fn run(apis: &Apis, args: &AddArgs) -> Outcome {
    let addition = apis.prepare(&new_api(args), &scope::here()?)?;
    print::out(&safe_multiline(addition.section())).kind(ErrorKind::Broken)?;
    for remark in &addition.service().remarks {
        print::note(remark);
    }
    let question = format!("write this into {}?", addition.file().display());
    if !args.yes && !print::confirm(&question).kind(ErrorKind::Broken)? {
        return Err(invalid("nothing was written; -y writes without asking"));
    }
    let service = addition.write()?;
    let operations = match service.operations() {
        0 => String::new(),
        count => format!(" with {count} operations"),
    };
    print::note(&format!("programs find it as apis.{}{operations}", args.name.identifier()));
    Ok(0)
}

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
