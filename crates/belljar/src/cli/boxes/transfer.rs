//! Arguments of the commands that connect a running box with the host: `forward` and `cp`.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::path::PathBuf;
use std::str::FromStr;

use belljar_model::ByteSize;
use belljar_model::boxes::BoxName;
use clap::{Args, ValueHint};

/// The first port that programs without privileges can listen on.
const FIRST_PORT: u16 = 1024;

#[derive(Debug, Args)]
#[command(
    after_help = "The port is open on 127.0.0.1 until the box stops. `belljar status` lists it.

Examples:
  belljar forward dev 3000
  belljar forward dev 8080:3000 --open
  belljar forward dev 8080 --remove"
)]
pub(crate) struct ForwardArgs {
    /// Name of the box
    #[arg(value_name = "NAME")]
    pub(crate) name: BoxName,
    /// Port of this machine, and port of the box if it is another one
    #[arg(value_name = "PORT[:BOX_PORT]")]
    pub(crate) ports: Ports,
    /// Open the address in a browser: with $BROWSER, or else with xdg-open
    #[arg(long, conflicts_with = "remove")]
    pub(crate) open: bool,
    /// End the forward of this port; open connections continue
    #[arg(long)]
    pub(crate) remove: bool,
}

/// A port of the host and the port of a box that it leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ports {
    pub(crate) host: u16,
    pub(crate) of_box: u16,
}

impl FromStr for Ports {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (host, of_box) = text.split_once(':').unwrap_or((text, text));
        Ok(Self { host: port(host)?, of_box: port(of_box)? })
    }
}

#[derive(Debug, Args)]
#[command(
    after_help = "One of the two is in a running box, as NAME:PATH. Links and special files are left out.

Examples:
  belljar cp notes.md dev:/workspace
  belljar cp dev:report.pdf .
  belljar cp dev:dist ./dist --max-size 20GiB"
)]
pub(crate) struct CopyArgs {
    /// File or directory to copy
    #[arg(value_name = "SRC|NAME:SRC", value_hint = ValueHint::AnyPath)]
    pub(crate) from: OsString,
    /// New name, or directory for the copy
    #[arg(value_name = "DST|NAME:DST", value_hint = ValueHint::AnyPath)]
    pub(crate) to: OsString,
    /// Replace an existing file
    #[arg(long, short)]
    pub(crate) force: bool,
    /// Maximum size of a copy from a box
    #[arg(long, value_name = "SIZE", default_value = "4GiB")]
    pub(crate) max_size: ByteSize,
}

/// A path on the host or in a box.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    Host(PathBuf),
    Box(BoxName, PathBuf),
}

impl Place {
    /// Parses `NAME:PATH` as a path in a box. A path of the host with a colon needs a slash before it, as in
    /// `./a:b`.
    pub(crate) fn parse(text: &OsStr) -> Result<Self, String> {
        let bytes = text.as_bytes();
        let colon = bytes.iter().position(|byte| *byte == b':');
        let Some((name, path)) =
            colon.and_then(|at| Some((bytes.get(..at)?, bytes.get(at + 1..)?)))
        else {
            return Ok(Self::Host(text.into()));
        };
        if name.contains(&b'/') {
            return Ok(Self::Host(text.into()));
        }
        let shown = text.display();
        let name = std::str::from_utf8(name).ok().and_then(|name| name.parse::<BoxName>().ok());
        let name = name.ok_or_else(|| {
            format!("`{shown}` does not start with the name of a box; write ./{shown} for a file of this machine")
        })?;
        match path {
            [] => Err(format!("`{shown}` names no file; write {name}:PATH")),
            path => Ok(Self::Box(name, OsStr::from_bytes(path).into())),
        }
    }
}

fn port(text: &str) -> Result<u16, String> {
    let port =
        text.parse::<u16>().map_err(|_| format!("`{text}` is not a port from 1024 to 65535"))?;
    if port < FIRST_PORT {
        return Err(format!(
            "port {port} is below {FIRST_PORT}, which programs without privileges cannot use; choose one from {FIRST_PORT} on"
        ));
    }
    Ok(port)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn place_with_a_box_name_and_a_colon_is_in_the_box() {
        let place = |text: &str| Place::parse(OsStr::new(text));
        let name = || "dev".parse::<BoxName>().unwrap();
        assert_eq!(place("dev:/tmp/x"), Ok(Place::Box(name(), "/tmp/x".into())));
        assert_eq!(place("dev:a:b"), Ok(Place::Box(name(), "a:b".into())));
        for host in ["x", "./dev:x", "/a/dev:x", "dev"] {
            assert_eq!(place(host), Ok(Place::Host(host.into())));
        }
        assert!(place("dev:").unwrap_err().contains("names no file"));
        assert!(place(":x").unwrap_err().contains("./:x"));
        assert!(place("not a box:x").is_err());
    }

    #[test]
    fn ports_are_one_port_or_a_host_port_and_a_box_port() {
        assert_eq!("3000".parse(), Ok(Ports { host: 3000, of_box: 3000 }));
        assert_eq!("8080:3000".parse(), Ok(Ports { host: 8080, of_box: 3000 }));
        for wrong in ["", ":", "3000:", ":3000", "1:2:3", "65536", "-1", "3000:x", "+3000:1"] {
            assert!(wrong.parse::<Ports>().is_err(), "{wrong}");
        }
        for low in ["80", "0", "3000:80", "1023:3000"] {
            let error = low.parse::<Ports>().unwrap_err();
            assert!(error.contains("below 1024"), "{low}: {error}");
        }
    }
}
