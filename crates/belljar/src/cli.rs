//! The command line: all commands and options.

pub(crate) mod agent;
pub(crate) mod api;
pub(crate) mod boxes;
pub(crate) mod code;
mod groups;
pub(crate) mod ledger;
pub(crate) mod mcp;
pub(crate) mod net;
pub(crate) mod network;
pub(crate) mod plan;
pub(crate) mod purpose;
pub(crate) mod runs;
pub(crate) mod schedule;
pub(crate) mod secret;
pub(crate) mod serve;
pub(crate) mod setup;
pub(crate) mod skill;
#[cfg(test)]
mod tests;
pub(crate) mod when;

use std::ffi::OsString;
use std::path::PathBuf;

use belljar_engine::runs::rows::Cursor;
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
#[command(after_help = "`belljar help COMMAND` shows the options of a command and examples.

Examples:
  belljar doctor
  belljar run -- bash")]
pub(crate) struct Cli {
    /// Read this file instead of ~/.config/belljar/belljar.toml
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
    /// Run a program in a new box
    Run(Box<RunArgs>),
    /// Create a named box and start it
    Up(Box<boxes::UpArgs>),
    /// List the named boxes
    #[command(visible_aliases = ["ls", "ps"])]
    List(boxes::ListArgs),
    /// Show the status of a box
    Status(boxes::StatusArgs),
    /// Stop a box; its home and its changes are kept
    Stop(boxes::StopArgs),
    /// Start a stopped box
    Start(boxes::StartArgs),
    /// Stop boxes and start them again
    Restart(boxes::RestartArgs),
    /// Connect this terminal to the program of a box
    Attach(boxes::terminals::AttachArgs),
    /// Run another program in a running box
    Exec(Box<boxes::terminals::ExecArgs>),
    /// Start an interactive shell in a running box
    Shell(boxes::terminals::ShellArgs),
    /// Show the output of a box
    Logs(boxes::terminals::LogsArgs),
    /// Copy files between this machine and a running box
    Cp(boxes::transfer::CopyArgs),
    /// Forward a port of this machine to a port of a running box
    Forward(boxes::transfer::ForwardArgs),
    /// Show and control all boxes in a full-screen view
    #[command(after_help = "Examples:
  belljar ui")]
    Ui,
    /// Remove a box; it stays in the trash for 14 days
    #[command(visible_alias = "rm")]
    Down(boxes::DownArgs),
    /// Save the state of a box under a tag
    Snapshot(boxes::SnapshotArgs),
    /// Create boxes from the state of a box or of a snapshot
    Fork(boxes::ForkArgs),
    /// Set a box back to its first state or to a snapshot
    Reset(boxes::ResetArgs),
    /// Remove old trash, and unused boxes without changes
    Gc(boxes::GcArgs),
    /// Restore boxes and changes from the trash
    Restore(boxes::RestoreArgs),
    /// Change the network rules of a box, also while it runs
    Network(network::NetworkChangeArgs),
    /// Approve or deny the requests of boxes that wait for an answer
    Approve(network::ApproveArgs),
    /// Run a program that a model wrote, in a new box
    Code(Box<code::CodeArgs>),
    /// List the supported agents and store their logins
    Agent(agent::AgentArgs),
    /// Show what enforces each permission of belljar.toml
    Policy(agent::PolicyArgs),
    /// Declare the services that programs in code mode can call
    Api(api::ApiArgs),
    /// Show the changes of a run or of a box
    Diff(DiffArgs),
    /// Copy the changes of a run or of a box into the workspace
    Apply(ApplyArgs),
    /// Discard the changes of a run or of a box
    Discard(DiscardArgs),
    /// List the runs of this workspace, and show and settle runs of plans
    Runs(RunsArgs),
    /// Start the run of a plan; it continues without this terminal
    Submit(runs::SubmitArgs),
    /// Follow the run of a plan until it ends
    Watch(runs::WatchArgs),
    /// Cancel the run of a plan, or one task of it
    Cancel(runs::CancelArgs),
    /// Continue the open runs of plans after a crash or a restart
    Resume(runs::ResumeArgs),
    /// Check and show plans of tasks, or let a model write one for a goal
    Plan(plan::PlanArgs),
    /// List, start, pause and resume the schedules of plans
    Schedule(schedule::ScheduleArgs),
    /// Write a first belljar.toml for the project in this directory
    Init(setup::InitArgs),
    /// Show in a minute how a box stops three attacks; needs no network
    Demo(setup::DemoArgs),
    /// Check which isolation layers this machine supports
    Doctor(DoctorArgs),
    /// Read, verify and export the signed record of all events
    Ledger(Box<ledger::LedgerArgs>),
    /// Serve code mode over MCP, and manage tools of other servers
    Mcp(Box<mcp::McpArgs>),
    /// Serve MCP over HTTP, with health checks and metrics
    Serve(serve::ServerArgs),
    /// Print a link that logs you in to the running server once
    LoginLink(serve::LoginLinkArgs),
    /// Create tenants on the running server
    Tenant(serve::TenantArgs),
    /// Show the network requests of runs and explain the rules
    Net(net::NetArgs),
    /// Store credentials that boxes use without seeing them
    Secret(secret::SecretArgs),
    /// Save programs as skills, and approve their permissions
    Skill(skill::SkillArgs),
    /// Show and check the templates of belljar.toml
    Template(TemplateArgs),
    /// Print a completion script for a shell
    #[command(after_help = "Examples:
  belljar completions bash")]
    Completions {
        /// Shell that reads the script
        shell: clap_complete::Shell,
    },
    /// Print the manual page in roff format
    #[command(after_help = "Examples:
  belljar man
  belljar man --to /usr/local/share/man/man1")]
    Man {
        /// Write the pages of all commands to this directory instead
        #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
        to: Option<PathBuf>,
    },
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar run -- bash
  belljar run --allow pypi --memory 2GiB -- pip install requests")]
pub(crate) struct RunArgs {
    /// Use this template of belljar.toml
    #[arg(long, value_name = "NAME", default_value = belljar_model::DEFAULT_TEMPLATE)]
    pub(crate) template: String,
    /// Directory to show at /workspace in the box [default: the current directory]
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) workspace: Option<PathBuf>,
    /// Start the box without a workspace
    #[arg(long, conflicts_with = "workspace")]
    pub(crate) no_workspace: bool,
    #[command(flatten)]
    pub(crate) box_options: BoxArgs,
    /// Give the program a terminal [default: if input and output are a terminal]
    #[arg(long, overrides_with = "no_tty")]
    pub(crate) tty: bool,
    /// Give the program pipes instead of a terminal
    #[arg(long, overrides_with = "tty")]
    pub(crate) no_tty: bool,
    /// Name of the run, to use instead of its id
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<RunName>,
    /// Print one JSON object about the run as the last line of standard output
    #[arg(long)]
    pub(crate) json: bool,
    /// Program and its arguments
    #[arg(required = true, trailing_var_arg = true, allow_hyphen_values = true, value_name = "CMD", value_hint = ValueHint::CommandWithArguments)]
    pub(crate) command: Vec<OsString>,
}

/// Options of a box that override its template.
#[derive(Debug, Args)]
pub(crate) struct BoxArgs {
    /// Workspace mode: overlay (hold changes back for review), direct (apply harmless changes at the end) or read-only
    #[arg(long, value_name = "MODE")]
    pub(crate) mode: Option<Mode>,
    #[command(flatten)]
    pub(crate) network: NetworkArgs,
    /// Mount a file or directory of the host in the box
    #[arg(long = "mount", value_name = "SRC:DST[:ro|rw]")]
    pub(crate) mounts: Vec<Mount>,
    /// Use this directory as the root file system
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub(crate) rootfs: Option<PathBuf>,
    /// Set an environment variable, or pass on one of yours by name; no others are inherited
    #[arg(long = "env", short = 'e', value_name = "K[=V]")]
    pub(crate) env: Vec<EnvVar>,
    /// User id of the program in the box
    #[arg(long, value_name = "UID")]
    pub(crate) user: Option<u32>,
    /// Memory limit of the box, for example 512MiB
    #[arg(long, value_name = "SIZE")]
    pub(crate) memory: Option<ByteSize>,
    /// CPU limit of the box, for example 0.5
    #[arg(long, value_name = "N")]
    pub(crate) cpus: Option<Cpus>,
    /// Maximum number of processes and threads in the box
    #[arg(long, value_name = "N")]
    pub(crate) pids: Option<u32>,
    /// Disk limit for /tmp, home and changes together, for example 2GiB
    #[arg(long, value_name = "SIZE")]
    pub(crate) disk: Option<ByteSize>,
    /// Maximum number of open files of one process
    #[arg(long, value_name = "N")]
    pub(crate) files: Option<u64>,
    /// Maximum size of standard output and standard error together
    #[arg(long, value_name = "SIZE")]
    pub(crate) output_limit: Option<ByteSize>,
    /// Kill the box after this time: 90s, 10m or none
    #[arg(long, value_name = "TIME")]
    pub(crate) timeout: Option<Timeout>,
    /// Record hashes of the output, its bodies (contents) or none [default: hashes]
    #[arg(long, value_name = "WHAT")]
    pub(crate) record: Option<Record>,
    /// Start without this isolation layer; the ledger records it
    #[arg(long, value_name = "LAYER")]
    pub(crate) weaken: Vec<Layer>,
    /// Refuse to start if this is available only as a substitute
    #[arg(long, value_name = "WHAT")]
    pub(crate) require: Vec<Requirement>,
}

impl BoxArgs {
    /// Returns the values of the options as overrides of a template.
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

/// Network options of a box.
#[derive(Debug, Args)]
pub(crate) struct NetworkArgs {
    /// Network mode: none, restricted (by rules) or full (all public hosts) [default: none, or restricted with --allow, --ask or --secret]
    #[arg(long, value_name = "NET")]
    pub(crate) net: Option<Net>,
    /// Allow a HOST, a rule (GET,POST https://HOST:PORT/path/**), tcp://HOST:PORT, host-port:PORT or a preset such as pypi
    #[arg(long, value_name = "RULE")]
    pub(crate) allow: Vec<Allow>,
    /// Deny requests that match this rule, even if another rule allows them
    #[arg(long, value_name = "RULE", value_parser = Rule::deny)]
    pub(crate) deny: Vec<Rule>,
    /// Hold each request that matches this rule until `belljar approve` answers it
    #[arg(long, value_name = "RULE", value_parser = Rule::ask)]
    pub(crate) ask: Vec<Rule>,
    /// Let the box use this stored secret, only for the hosts of the secret
    #[arg(long = "secret", value_name = "NAME")]
    pub(crate) secrets: Vec<SecretName>,
}

impl NetworkArgs {
    /// Returns the values of the network options as overrides of a template.
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

/// Argument that selects a run.
#[derive(Debug, Args)]
pub(crate) struct RunSelector {
    /// Name of a box, or id, id prefix or name of a run [default: the newest run of this workspace with changes]
    #[arg(value_name = "RUN")]
    pub(crate) run: Option<String>,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar diff
  belljar diff my-run --stat
  belljar diff fix-login/fix[0] --stat
  belljar diff my-run -- src")]
pub(crate) struct DiffArgs {
    #[command(flatten)]
    pub(crate) which: RunSelector,
    /// Only these files and directories; write them after `--`
    #[arg(last = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// Print one line per file instead of contents
    #[arg(long)]
    pub(crate) stat: bool,
    /// Show only files that changed both on the host and in the box
    #[arg(long, conflicts_with = "stat")]
    pub(crate) conflicts: bool,
    /// Show the changes in the home directory of a box since its creation
    #[arg(long, conflicts_with_all = ["stat", "conflicts"], requires = "run")]
    pub(crate) home: bool,
    /// With --home: show the changes since this snapshot
    #[arg(long, value_name = "TAG", requires = "home")]
    pub(crate) since: Option<RunName>,
    /// Print one JSON object
    #[arg(long, conflicts_with_all = ["stat", "conflicts"])]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar apply
  belljar apply my-run -- src/main.rs
  belljar apply my-box --branch fix-1")]
pub(crate) struct ApplyArgs {
    #[command(flatten)]
    pub(crate) which: RunSelector,
    /// Only these files and directories; write them after `--`
    #[arg(last = true, value_name = "PATH")]
    pub(crate) paths: Vec<OsString>,
    /// Also apply this file that the host could execute; `**` selects all such files
    #[arg(long, value_name = "PATH")]
    pub(crate) include_executable: Vec<OsString>,
    /// For a box with a clone: write its commits to this branch of your repository [default: belljar/NAME]
    #[arg(long, value_name = "BRANCH", num_args = 0..=1, default_missing_value = "", conflicts_with_all = ["theirs", "ours"])]
    pub(crate) branch: Option<String>,
    /// Use the version of the box if both sides changed this path
    #[arg(long, value_name = "PATH")]
    pub(crate) theirs: Vec<OsString>,
    /// Keep the version of the host if both sides changed this path
    #[arg(long, value_name = "PATH")]
    pub(crate) ours: Vec<OsString>,
    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar discard my-run
  belljar discard my-run --yes")]
pub(crate) struct DiscardArgs {
    #[command(flatten)]
    pub(crate) which: RunSelector,
    /// Do not ask for confirmation
    #[arg(long, short = 'y')]
    pub(crate) yes: bool,
    /// For a box: discard changes that were not applied
    #[arg(long)]
    pub(crate) discard_work: bool,
}

#[derive(Debug, Args)]
#[command(args_conflicts_with_subcommands = true)]
#[command(after_help = "Examples:
  belljar runs --pending
  belljar runs --all --json
  belljar runs show fix-login")]
pub(crate) struct RunsArgs {
    #[command(subcommand)]
    pub(crate) command: Option<runs::RunsCommand>,
    /// List runs of all workspaces
    #[arg(long)]
    pub(crate) all: bool,
    /// List only runs that wait for a review of their changes or for another decision
    #[arg(long)]
    pub(crate) pending: bool,
    /// List all recorded runs of this purpose, also removed ones; can be repeated [default:
    /// kept runs that a user started]
    #[arg(long = "purpose", value_name = "PURPOSE")]
    pub(crate) purposes: Vec<PurposeChoice>,
    /// List at most this number of runs, newest first
    #[arg(long, value_name = "NUMBER", default_value_t = 100,
        value_parser = clap::value_parser!(u16).range(1..=1000))]
    pub(crate) limit: u16,
    /// List the runs after the page that ended with this cursor
    #[arg(long, value_name = "CURSOR")]
    pub(crate) after: Option<Cursor>,
    /// Print one JSON object per line; if there are more runs, the last one has the cursor `next`
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar doctor
  belljar doctor --prove --only C10")]
pub(crate) struct DoctorArgs {
    /// Run the attacks of the threat model on this machine and report the results
    #[arg(long)]
    pub(crate) prove: bool,
    /// With --prove: run only the attack with this id, for example C10
    #[arg(long, value_name = "ID", requires = "prove")]
    pub(crate) only: Vec<String>,
    /// Print one JSON object
    #[arg(long)]
    pub(crate) json: bool,
    /// Write the attack program to this file and exit
    #[arg(long, value_name = "FILE", hide = true, conflicts_with_all = ["prove", "json"])]
    pub(crate) write_probe: Option<PathBuf>,
    /// Lock this process down as a broker, attempt forbidden operations and print each result
    #[arg(long, hide = true, conflicts_with_all = ["prove", "json", "write_probe"])]
    pub(crate) try_jail: bool,
    /// With --try-jail: attempt the operations without the lockdown, as a control
    #[arg(long, hide = true, requires = "try_jail")]
    pub(crate) outside: bool,
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  belljar template list
  belljar template show build")]
pub(crate) struct TemplateArgs {
    #[command(subcommand)]
    pub(crate) command: TemplateCommand,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TemplateCommand {
    /// List all templates and the files that define them
    #[command(after_help = "Examples:
  belljar template list")]
    List {
        /// Print one JSON object per line
        #[arg(long)]
        json: bool,
    },
    /// Show a template with all its values and defaults
    #[command(after_help = "Examples:
  belljar template show
  belljar template show build --json")]
    Show {
        /// Name of the template
        #[arg(default_value = belljar_model::DEFAULT_TEMPLATE)]
        name: String,
        /// Print one JSON object
        #[arg(long)]
        json: bool,
    },
    /// Check the syntax and values of a file, or of the files in use
    #[command(after_help = "Examples:
  belljar template check
  belljar template check belljar.toml")]
    Check {
        /// File to check as the operator's belljar.toml
        file: Option<PathBuf>,
    },
}
