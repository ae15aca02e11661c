//! `belljar forward`: forwards a port of this machine to a port of a running box.

use std::process::{Command, Stdio};

use belljar_engine::box_store::NamedBox;
use belljar_engine::error::{EngineError, ErrorKind};
use belljar_engine::supervisor::{
    self,
    protocol::{Forward, FromSupervisor, ToSupervisor},
};

use crate::cli::boxes::transfer::{ForwardArgs, Ports};
use crate::exit::Outcome;
use crate::print;
use crate::scope;

/// Runs `belljar forward`.
pub(crate) fn run(args: &ForwardArgs) -> Outcome {
    let state = scope::open(None)?;
    let named_box = NamedBox::find(&state, &args.name)?;
    let (name, Ports { host: host_port, of_box: port }) = (&args.name, args.ports);
    if args.remove {
        supervisor::ask(&state, &named_box, &ToSupervisor::RemoveForward { host_port })?;
        print::note(&format!("port {host_port} is no longer forwarded to box {name}"));
        return Ok(0);
    }
    let request = ToSupervisor::Forward(Forward { host_port, port });
    let response = supervisor::ask(&state, &named_box, &request)?;
    let url = format!("http://127.0.0.1:{host_port}");
    print::note(&format!("{url} leads to port {port} of box {name} until the box stops"));
    if matches!(response, FromSupervisor::Forwarded { is_served: false }) {
        print::note(&format!(
            "no program in box {name} listens on port {port} yet; connections are closed until one does"
        ));
    }
    if args.open {
        open(&url)?;
    }
    Ok(0)
}

/// Opens an address in the user's browser, without waiting for the browser.
fn open(url: &str) -> Result<(), EngineError> {
    let program = std::env::var_os("BROWSER").unwrap_or_else(|| "xdg-open".into());
    let mut command = Command::new(&program);
    command.arg(url).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.spawn().map(drop).map_err(|error| {
        let text = format!("cannot start {} to open {url}: {error}", program.display());
        EngineError::message(ErrorKind::Broken, text)
            .advise("set BROWSER to the program that opens addresses")
    })
}
