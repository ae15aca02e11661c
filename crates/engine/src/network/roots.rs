//! The root certificates that Belljar verifies servers with: those of the system, and those of `[tls] roots`.

use std::path::PathBuf;

use anyhow::Context as _;
use belljar_broker::tls::Roots;
use belljar_model::Config;

use crate::error::{EngineError, ErrorKind, WithKind as _};
use crate::host::HostEnv;

/// Reads the root certificates of the system and of these files.
pub(super) fn read(files: &[PathBuf]) -> anyhow::Result<Roots> {
    let mut roots = Roots::system();
    for path in files {
        let pem = std::fs::read(path)
            .with_context(|| format!("[tls] roots: cannot read {}", path.display()))?;
        roots.add_pem(&pem, &path.display().to_string())?;
    }
    Ok(roots)
}

/// Returns the root certificates of a configuration.
pub(crate) fn of_config(config: &Config, host: &HostEnv) -> Result<Roots, EngineError> {
    read(&config.roots(host.user_home().as_deref())).kind(ErrorKind::Invalid)
}

/// Returns the root certificates that servers are verified with, in DER.
pub fn certificates(config: &Config, host: &HostEnv) -> Result<Vec<Vec<u8>>, EngineError> {
    let files = config.roots(host.user_home().as_deref());
    let roots = read(&files).kind(ErrorKind::Invalid)?;
    Ok(roots.iter().map(<[u8]>::to_vec).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scope::of_test;

    #[test]
    fn certificates_include_those_of_the_configuration_and_a_missing_file_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let state = of_test(dir.path());
        let parse = |text: &str| {
            let file = dir.path().join("belljar.toml");
            Config::parse(text, &file, belljar_model::Scope::Operator).unwrap()
        };
        let system = certificates(&parse(""), state.host()).unwrap().len();
        let authority = belljar_testkit::Authority::new();
        std::fs::write(dir.path().join("corp.pem"), authority.pem()).unwrap();
        let config = parse("[tls]\nroots = [\"corp.pem\"]\n");
        assert_eq!(certificates(&config, state.host()).unwrap().len(), system + 1);
        let config = parse("[tls]\nroots = [\"none.pem\"]\n");
        let error = certificates(&config, state.host()).unwrap_err();
        assert!(format!("{error:#}").contains("none.pem"), "{error:#}");
    }
}
