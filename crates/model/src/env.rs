//! Environment variables of a box; a box inherits only the variables that are named.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::text;

/// An environment variable with its value, or the name of a variable to inherit from the operator.
#[derive(Clone, PartialEq, Eq)]
pub struct EnvVar {
    name: String,
    value: Option<String>,
}

/// The reason why a text is not a valid environment variable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvError {
    #[error(
        "invalid environment variable; write NAME=VALUE, or NAME to inherit it (letters, digits and `_`)"
    )]
    Name,
    #[error("the value of a variable cannot contain a NUL byte")]
    Nul,
}

impl EnvVar {
    /// Creates a variable. Without a value it is inherited from the operator's environment.
    pub fn new(name: &str, value: Option<&str>) -> Result<Self, EnvError> {
        let word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        if name.is_empty()
            || !name.bytes().all(word)
            || name.starts_with(|c: char| c.is_ascii_digit())
        {
            return Err(EnvError::Name);
        }
        if value.is_some_and(|value| value.contains('\0')) {
            return Err(EnvError::Nul);
        }
        Ok(Self { name: name.to_owned(), value: value.map(str::to_owned) })
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    /// Returns the value of the variable, or `None` if it is inherited from the operator.
    pub fn value(&self) -> Option<&str> {
        self.value.as_deref()
    }

    /// Returns whether the variable controls which code other programs load or run, or which hosts
    /// they trust.
    pub fn controls_programs(&self) -> bool {
        controls_programs(&self.name)
    }
}

// Omits the value: a variable can hold a credential, and debug output ends up in logs.
impl fmt::Debug for EnvVar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.value {
            Some(_) => write!(f, "EnvVar({}=..)", self.name),
            None => write!(f, "EnvVar({})", self.name),
        }
    }
}

impl FromStr for EnvVar {
    type Err = EnvError;

    fn from_str(text: &str) -> Result<Self, EnvError> {
        match text.split_once('=') {
            Some((name, value)) => Self::new(name, Some(value)),
            None => Self::new(text, None),
        }
    }
}

impl fmt::Display for EnvVar {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.value {
            Some(value) => write!(f, "{}={value}", self.name),
            None => f.write_str(&self.name),
        }
    }
}

impl Serialize for EnvVar {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for EnvVar {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        text::parse(deserializer)
    }
}

/// The names of variables that control programs, upper case, separated by whitespace.
const CONTROL_NAMES: [&str; 6] = [
    // Commands, word splitting and lookup paths of shells.
    "PATH IFS ENV CDPATH SHELL SHELLOPTS PROMPT_COMMAND PS0 PS1 PS2 PS4 ZDOTDIR FPATH HOME TMPDIR TMP
     TEMP",
    // Files that the C library and terminal libraries load.
    "GLIBC_TUNABLES GCONV_PATH LOCPATH NLSPATH HOSTALIASES RES_OPTIONS RESOLV_HOST_CONF TERMINFO
     TERMINFO_DIRS TERMCAP TZDIR OPENSSL_CONF OPENSSL_MODULES",
    // Programs that other programs start by name.
    "EDITOR VISUAL PAGER MANPAGER BROWSER LESSOPEN LESSCLOSE LESS SUDO_ASKPASS RSYNC_RSH CVS_RSH
     SVN_SSH",
    // Compilers and build tools.
    "CC CXX CPP LD AR AS CFLAGS CXXFLAGS CPPFLAGS LDFLAGS COMPILER_PATH GCC_EXEC_PREFIX CPATH
     LIBRARY_PATH MAKEFLAGS MFLAGS GNUMAKEFLAGS MAKEFILES RUSTC RUSTC_WRAPPER RUSTC_WORKSPACE_WRAPPER
     RUSTDOC RUSTFLAGS RUSTDOCFLAGS PKG_CONFIG PKG_CONFIG_PATH GOFLAGS GOROOT GOPATH GOPROXY GOSUMDB
     GONOSUMDB GOINSECURE GOENV GOTOOLCHAIN",
    // Languages.
    "CLASSPATH JAVA_OPTS _JAVA_OPTIONS LUA_INIT LUA_PATH LUA_CPATH PHPRC PHP_INI_SCAN_DIR R_PROFILE
     R_PROFILE_USER R_ENVIRON EMACSLOADPATH VIMINIT EXINIT MYVIMRC TCLLIBPATH ERL_FLAGS ERL_AFLAGS
     ELIXIR_ERL_OPTIONS GHCRTS ELECTRON_RUN_AS_NODE",
    // Trusted certificates and connection settings.
    "SSL_CERT_FILE SSL_CERT_DIR CURL_CA_BUNDLE CURL_HOME REQUESTS_CA_BUNDLE WGETRC KUBECONFIG NETRC",
];

/// The prefixes of variables that control programs, upper case; such families grow too fast to list
/// their members.
const CONTROL_PREFIXES: &str = "LD_ DYLD_ GIT_ BASH_ NODE_ NPM_ YARN_ PNPM_ COREPACK_ DENO_ BUN_
    PYTHON PIP_ UV_ POETRY_ CONDA_ VIRTUAL_ENV PERL RUBY GEM_ BUNDLE_ BUNDLER_ JAVA_TOOL_ JDK_JAVA_
    MAVEN_ GRADLE_ SBT_ DOTNET_ COR_ CORECLR_ NUGET_ CARGO_ RUSTUP_ CMAKE_ CCACHE_ MALLOC_ XDG_ SSH_
    GPG_ GNUPG DOCKER_ AWS_ AZURE_ GOOGLE_ CLOUDSDK_ CLAUDE_ ANTHROPIC_ OPENAI_ CODEX_ GEMINI_ MCP_
    BELLJAR_";

/// The suffixes of variables that set where requests and credentials are sent, upper case.
const CONTROL_SUFFIXES: &str = "_PROXY _BASE_URL _API_BASE _API_URL _ENDPOINT _PRELOAD";

/// Returns whether a variable controls which code programs load or run, or which hosts they trust
/// (threat F15).
///
/// A project's file can set variables, but none of these: the operator chooses the program in the box
/// and the helper programs that it starts.
fn controls_programs(name: &str) -> bool {
    // Some variables are also read in lower case: http_proxy, npm_config_*.
    let name = name.to_ascii_uppercase();
    let any = |list: &str, fits: fn(&str, &str) -> bool| {
        list.split_whitespace().any(|entry| fits(&name, entry))
    };
    CONTROL_NAMES.iter().any(|list| any(list, |name, entry| name == entry))
        || any(CONTROL_PREFIXES, |name, prefix| name.starts_with(prefix))
        || any(CONTROL_SUFFIXES, |name, suffix| name.ends_with(suffix))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn environment_variable_has_a_value_or_is_inherited() {
        for (text, name, value) in [
            ("A=1", "A", Some("1")),
            ("A=", "A", Some("")),
            ("A=b=c", "A", Some("b=c")),
            ("_x9=é\n", "_x9", Some("é\n")),
            ("A", "A", None),
        ] {
            let var: EnvVar = text.parse().unwrap();
            assert_eq!((var.name(), var.value()), (name, value));
        }
        for text in
            ["", "=", "=x", "1A=x", "A-B=x", "A B", "é=1", "A\0=1", "BASH_FUNC_x%%=() { :; }"]
        {
            assert_eq!(text.parse::<EnvVar>(), Err(EnvError::Name), "{text}");
        }
        assert_eq!("A=x\0y".parse::<EnvVar>(), Err(EnvError::Nul));
    }

    #[test]
    fn debug_output_of_a_variable_does_not_contain_its_value() {
        assert_eq!(format!("{:?}", "TOKEN=hush".parse::<EnvVar>().unwrap()), "EnvVar(TOKEN=..)");
    }

    #[test]
    fn f15_variables_that_control_loaders_and_helpers_are_recognized() {
        let known = "LD_PRELOAD LD_LIBRARY_PATH LD_AUDIT BASH_ENV ENV NODE_OPTIONS PYTHONSTARTUP
            PYTHONPATH PERL5OPT PERL5LIB RUBYOPT JAVA_TOOL_OPTIONS _JAVA_OPTIONS GIT_SSH_COMMAND
            GIT_CONFIG_COUNT GIT_EXTERNAL_DIFF PATH IFS PROMPT_COMMAND http_proxy HTTPS_PROXY
            npm_config_registry ANTHROPIC_BASE_URL SSL_CERT_FILE GCONV_PATH GLIBC_TUNABLES
            RUSTC_WRAPPER CARGO_BUILD_RUSTC MAKEFLAGS PS4 SSH_ASKPASS";
        for name in known.split_whitespace() {
            assert!(EnvVar::new(name, Some("x")).unwrap().controls_programs(), "{name}");
        }
        for name in
            ["DEBUG", "RUST_LOG", "LANG", "TZ", "CI", "NO_COLOR", "APP_MODE", "PORT", "PATHS"]
        {
            assert!(!EnvVar::new(name, Some("x")).unwrap().controls_programs(), "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn variable_parser_never_panics_and_a_variable_survives_a_round_trip(
            text in "[A-Za-z_0-9]{0,4}=?.{0,4}|(?s).*"
        ) {
            if let Ok(var) = text.parse::<EnvVar>() {
                proptest::prop_assert_eq!(var.to_string(), &text[..]);
            }
        }
    }
}
