//! Arguments of the commands that connect a running box with the host: `forward`.

use std::str::FromStr;

use belljar_model::boxes::BoxName;
use clap::Args;

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
