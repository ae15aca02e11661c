//! What can be typed.

pub(crate) mod agent;
pub(crate) mod api;
pub(crate) mod boxes;
pub(crate) mod code;
mod groups;
pub(crate) mod ledger;
pub(crate) mod mcp;
pub(crate) mod net;
pub(crate) mod network;
pub(crate) mod purpose;
pub(crate) mod secret;
pub(crate) mod skill;
pub(crate) mod when;

use std::ffi::OsString;
use std::path::PathBuf;

use belljar_model::net::{Allow, Rule, SecretName};
use belljar_model::{
    ByteSize, Cpus, EnvVar, Layer, Mode, Mount, Net, Overrides, Record, Requirement, RunName,
    Timeout,
};
use clap::{Args, CommandFactory as _, Parser, Subcommand, ValueHint};

use self::purpose::PurposeChoice;

/// Runs AI agents, and the code they write, in sandboxes with review, network rules and a signed record.
#[derive(Debug, Parser)]
#[command(name = "belljar", version, propagate_version = true, arg_required_else_help = true)]
#[command(
    after_help = "`belljar help COMMAND` shows the options of a command and examples.

Examples:
  belljar doctor
  belljar run -- bash"
)]
pub(crate) struct Cli {
    /// Use this file instead of the user's own belljar.toml
    #[arg(long, global = true, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub(crate) config: Option<PathBuf>,
    #[command(subcommand)]
    pub(crate) command: Command,
}

/// Returns the whole command line for clap, with the commands in groups.
pub(crate) fn command() -> clap::Command {
    groups::with_groups(Cli::command())
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Run one command in a fresh box
    Run(Box<RunArgs>),
    /// Make a box that stays, and start it
    Up(Box<boxes::UpArgs>),
    /// List the boxes
    List(boxes::ListArgs),
    /// Show how a box is
    Status(boxes::StatusArgs),
    /// End what runs in a box; its home and its changes stay
    Stop(boxes::StopArgs),
    /// Start a box again
    Start(boxes::StartArgs),
    /// Look at the screen of a box, and type
    Attach(boxes::terminals::AttachArgs),
    /// Run one more program in a box
    Exec(Box<boxes::terminals::ExecArgs>),
    /// Show what a box wrote
    Logs(boxes::terminals::LogsArgs),
    /// See all boxes on one screen, with keys for everything
    Ui,
    /// Take a box down; it stays in the trash for 14 days
    Down(boxes::DownArgs),
    /// Keep a copy of all that a box holds
    Snapshot(boxes::SnapshotArgs),
    /// Make boxes that hold what another one holds, or held
    Fork(boxes::ForkArgs),
    /// Set a box back to what it was when it was made, or to a snapshot
    Reset(boxes::ResetArgs),
    /// Remove old trash, and boxes that hold nothing and were not used for long
    Gc(boxes::GcArgs),
    /// Bring back what `down`, `reset`, `discard` and `gc` put into the trash
    Restore(boxes::RestoreArgs),
    /// Change what a box reaches, at once if it is running
    Network(network::NetworkChangeArgs),
    /// Answer what boxes ask before they do it
    Approve(network::ApproveArgs),
    /// Run one program of a model in a fresh box, in milliseconds
    Code(Box<code::CodeArgs>),
    /// See which agents are known and what they need, and keep their logins
    Agent(agent::AgentArgs),
    /// See who keeps the rules of belljar.toml
    Policy(agent::PolicyArgs),
    /// Declare services that programs of models may use
    Api(api::ApiArgs),
    /// Show what a box changed in the workspace
    Diff(DiffArgs),
    /// Take over what a box changed
    Apply(ApplyArgs),
    /// Throw away what a box changed
    Discard(DiscardArgs),
    /// List what ran here and what still waits for review
    Runs(RunsArgs),
    /// Show what this machine can enforce
    Doctor(DoctorArgs),
    /// Look at, check and hand on the record of everything that happened
    Ledger(Box<ledger::LedgerArgs>),
    /// Serve programs to MCP clients, and look after other servers' tools
    Mcp(Box<mcp::McpArgs>),
    /// See what boxes reach, and what they tried to
    Net(net::NetArgs),
    /// Keep credentials that boxes may use and never see
    Secret(secret::SecretArgs),
    /// Keep programs that were worth keeping, and decide what they may want
    Skill(skill::SkillArgs),
    /// Look at the templates of belljar.toml
    Template(TemplateArgs),
    /// Print a completion script for a shell
    Completions { shell: clap_complete::Shell },
    /// Print the manual page
    Man,
}

#[derive(Debug, Args)]
pub(crate) struct RunArgs {
    /// Start from this template of belljar.toml
    #[arg(long, value_name = "NAME", default_value = belljar_model::DEFAULT_TEMPLATE)]
    pub(crate) template: String,
    /// The directory that the box sees at /workspace [default: the current directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
    /// Give the box no workspace
    #[arg(long, conflicts_with = "workspace")]
    pub(crate) no_workspace: bool,
    #[command(flatten)]
    pub(crate) furnish: BoxArgs,
    /// Give the program a terminal of its own [default: when used interactively]
    #[arg(long, overrides_with = "no_tty")]
    pub(crate) tty: bool,
    /// Give the program pipes, even when used interactively
    #[arg(long, overrides_with = "tty")]
    pub(crate) no_tty: bool,
    /// A name for the run, to be used instead of its id
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<RunName>,
    /// Print one JSON object about the run as the last line of standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// The program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// How a box is furnished, on top of its template.
#[derive(Debug, Args)]
pub(crate) struct BoxArgs {
    /// overlay: hold changes back for review; direct: take over what is harmless at the end; read-only
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<Mode>,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// Show a file or directory of the host inside the box
    #[arg(long = "mount", value_name = "SRC:DST[:ro|rw]")]
    pub(crate) mounts: Vec<Mount>,
    /// Use this directory as the root file system
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) rootfs: Option<PathBuf>,
    /// Set a variable, or pass one on by name; nothing else is inherited
    #[arg(long = "env", short = 'e', value_name = "K[=V]")]
    pub(crate) env: Vec<EnvVar>,
    /// User id inside the box
    #[arg(long, value_name = "UID")]
    pub(crate) user: Option<u32>,
    /// Memory of the whole box
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<ByteSize>,
    /// CPUs of the whole box, for example 0.5
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Option<Cpus>,
    /// Processes and threads of the box
    #[arg(long, value_name = "N")]
    pub(crate) pids: Option<u32>,
    /// What the box may write, in /tmp, its home and the overlay
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<ByteSize>,
    /// Open files of one process
    #[arg(long, value_name = "N")]
    pub(crate) files: Option<u64>,
    /// Bytes of standard output and error together
    #[arg(long, value_name = "SIZE")]
    pub(crate) output_limit: Option<ByteSize>,
    /// Kill the box after this time, for example 90s, 10m, none
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Timeout>,
    /// What of the program's output goes on record: hashes, bodies or none [default: hashes]
    #[arg(long, value_name = "WHAT")]
    pub(crate) record: Option<Record>,
    /// Go without a layer; shown and recorded
    #[arg(long, value_name = "LAYER")]
    pub(crate) weaken: Vec<Layer>,
    /// Refuse to start on a stand-in for this
    #[arg(long, value_name = "WHAT")]
    pub(crate) require: Vec<Requirement>,
}

impl BoxArgs {
    /// What the flags say about the box.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            mode: self.mode,
            record: self.record,
            mounts: self.mounts.clone(),
            rootfs: self.rootfs.clone(),
            env: self.env.clone(),
            user: self.user,
            memory: self.memory,
            cpus: self.cpus,
            pids: self.pids,
            disk: self.disk,
            files: self.files,
            output: self.output_limit,
            timeout: self.timeout,
            weaken: self.weaken.clone(),
            require: self.require.clone(),
            ..self.network.overrides()
        }
    }
}

/// What a box may reach.
#[derive(Debug, Args)]
pub(crate) struct NetworkArgs {
    /// none; restricted: what rules allow; full: everything public [default: none, or restricted with --allow, --ask or --secret]
    #[arg(long, value_name = "NET")]
    pub(crate) net: Option<Net>,
    /// Let the box reach a host (GET,POST https://HOST:PORT/path/**), tcp://HOST:PORT, host-port:PORT or a preset such as pypi
    #[arg(long, value_name = "RULE")]
    pub(crate) allow: Vec<Allow>,
    /// Never let the box reach this, whatever else is allowed
    #[arg(long, value_name = "RULE", value_parser = Rule::deny)]
    pub(crate) deny: Vec<Rule>,
    /// Ask the operator about each request to this, written as for --allow; see `belljar approve`
    #[arg(long, value_name = "RULE", value_parser = Rule::ask)]
    pub(crate) ask: Vec<Rule>,
    /// Let the box use a stored secret by a placeholder, toward the secret's own hosts
    #[arg(long = "secret", value_name = "NAME")]
    pub(crate) secrets: Vec<SecretName>,
}

impl NetworkArgs {
    /// What the flags say about the network.
    pub(crate) fn overrides(&self) -> Overrides {
        Overrides {
            net: self.net,
            allow: self.allow.clone(),
            deny: self.deny.clone(),
            ask: self.ask.clone(),
            secrets: self.secrets.clone(),
            ..Overrides::default()
        }
    }
}

/// Which run is meant.
#[derive(Debug, Args)]
pub(crate) struct Which {
    /// Name of a box, or id (or its beginning) or name of a run [default: the newest of this workspace with changes]
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<String>,
}

#[derive(Debug, Args)]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Only these paths (and what is beneath them), after `--`
    #[arg(last = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// One line per file
    #[arg(long)]
    pub(crate) stat: bool,
    /// Only where host and box both changed: what each did
    #[arg(long, conflicts_with = "stat")]
    pub(crate) conflicts: bool,
    /// What differs in the home of a box from what it began with
    #[arg(long, conflicts_with_all = ["stat", "conflicts"], requires = "run")]
    pub(crate) home: bool,
    /// With --home: from what it was in this snapshot
    #[arg(long, value_name = "TAG", requires = "home")]
    pub(crate) since: Option<RunName>,
    /// One JSON object
    #[arg(long, conflicts_with_all = ["stat", "conflicts"])]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Only these paths (and what is beneath them), after `--`
    #[arg(last = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// Also take a file that something on the host would execute; `**` means all
    #[arg(long, value_name = "PATH")]
    pub(crate) include_executable: Vec<OsString>,
    /// Of a box with a clone: put its work on this branch of your repository [default: belljar/NAME]
    #[arg(long, value_name = "BRANCH", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["theirs", "ours"])]
    pub(crate) branch: Option<String>,
    /// Where both sides changed this path, take the box's
    #[arg(long, value_name = "PATH")]
    pub(crate) theirs: Vec<OsString>,
    /// Where both sides changed this path, keep the host's
    #[arg(long, value_name = "PATH")]
    pub(crate) ours: Vec<OsString>,
    /// Do not ask
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DiscardArgs {
    #[command(flatten)]
    pub(crate) which: Which,
    /// Do not ask
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// Of a box: really throw away what nobody took over
    #[arg(long)]
    pub(crate) discard_work: bool,
}

#[derive(Debug, Args)]
pub(crate) struct RunsArgs {
    /// Runs of all workspaces, not only of this one
    #[arg(long)]
    pub(crate) all: bool,
    /// Only runs whose changes wait for review
    #[arg(long)]
    pub(crate) pending: bool,
    /// Every run of this purpose that is on record, also without a directory; may be repeated [default:
    /// kept runs that a user started]
    #[arg(long = "purpose", value_name = "PURPOSE")]
    pub(crate) purposes: Vec<PurposeChoice>,
    /// One JSON object per line
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DoctorArgs {
    /// Run the attacks of the threat model here and report
    #[arg(long)]
    pub(crate) prove: bool,
    /// With --prove: only these ids, for example C10
    #[arg(long, value_name = "ID", requires = "prove")]
    pub(crate) only: Vec<String>,
    /// One JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the attacking program to a file and stop
    #[arg(long, value_name = "FILE", hide = true, conflicts_with_all = ["prove", "json"])]
    pub(crate) write_probe: Option<PathBuf>,
    /// Lock this process in as a broker, try what it must not, tell each answer and stop
    #[arg(long, hide = true, conflicts_with_all = ["prove", "json", "write_probe"])]
    pub(crate) try_jail: bool,
    /// The same without the lock, to compare
    #[arg(long, hide = true, requires = "try_jail")]
    pub(crate) outside: bool,
}

#[derive(Debug, Args)]
pub(crate) struct TemplateArgs {
    #[command(subcommand)]
    pub(crate) command: TemplateCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TemplateCommand {
    /// Names of all templates, and where they come from
    List {
        #[arg(long)]
        json: bool,
    },
    /// One template with everything that it implies
    Show {
        #[arg(default_value = belljar_model::DEFAULT_TEMPLATE)]
        name: String,
        #[arg(long)]
        json: bool,
    },
    /// Check a file, or the files that are in force
    Check {
        /// Check this file as the operator's
        file: Option<PathBuf>,
    },
}
