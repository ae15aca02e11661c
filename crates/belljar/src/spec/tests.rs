use belljar_model::Mode;
use belljar_model::boxes::{BoxRecord01, BoxWorkspace};
use belljar_model::{Identity, RepoAt};
use clap::Parser as _;
use proptest::prelude::*;

use super::*;
use crate::cli::boxes::UpArgs;
use crate::cli::{Cli, Command};

const DIRECTORY: &str = "/typed/a dir";
const HOME: &str = "/home/ada";

fn invocation(config: Option<&Path>) -> Invocation<'_> {
    Invocation { directory: Path::new(DIRECTORY), home: Some(Path::new(HOME)), config }
}

/// Parses the arguments after `belljar up NAME` with clap; also returns the value of `--config`.
fn parse_with_clap(words: &[String]) -> Option<(UpArgs, Option<PathBuf>)> {
    let begin = ["belljar", "up", "first"].map(str::to_owned);
    let cli = Cli::try_parse_from(begin.iter().chain(words)).ok()?;
    let Command::Up(args) = cli.command else { return None };
    Some((*args, cli.config))
}

/// Returns the spec that today's command line gives for the arguments of `belljar up`.
fn spec_from_clap(words: &[String]) -> Option<BoxSpec> {
    let (args, config) = parse_with_clap(words)?;
    box_spec(&args.options, &args.command, invocation(config.as_deref())).ok()
}

/// Returns the record that version 0.1 stored for the arguments, except for values read from the disk.
fn record(words: &[String]) -> BoxRecord01 {
    let (ground, config) = match parse_with_clap(words) {
        None => (BoxWorkspace::Nothing, None),
        Some((args, config)) => (ground(&args.options), config),
    };
    let end = words.iter().position(|word| word == "--");
    BoxRecord01 {
        name: "first".parse().unwrap(),
        created: 0,
        options: words[..end.unwrap_or(words.len())].to_vec(),
        command: end.map_or_else(Vec::new, |end| words[end + 1..].to_vec()),
        typed_in: DIRECTORY.into(),
        config: config.map(|path| Path::new(DIRECTORY).join(path)),
        ground,
        network: None,
    }
}

/// Returns the workspace of the record of version 0.1.
fn ground(options: &UpOptions) -> BoxWorkspace {
    let absolute = |path: &Path| Path::new(DIRECTORY).join(path);
    if let Some(repo) = &options.repo {
        return BoxWorkspace::Repo(Box::new(RepoAt {
            path: absolute(repo),
            git_dir: "/x/.git".into(),
            from: None,
            base: None,
            branch: "main".into(),
            identity: Identity::new("Ada", "a@b").unwrap(),
        }));
    }
    if options.no_workspace {
        return BoxWorkspace::Nothing;
    }
    let path = options.workspace.as_deref().map_or_else(|| DIRECTORY.into(), absolute);
    BoxWorkspace::Directory { path }
}

/// Returns the spec that the frozen parser for records of version 0.1 gives for the arguments.
fn spec_from_frozen_parser(words: &[String]) -> Option<BoxSpec> {
    BoxSpec::from_options_0_1(&record(words), Some(Path::new(HOME))).ok()
}

fn words(text: &[&str]) -> Vec<String> {
    text.iter().map(|word| (*word).to_owned()).collect()
}

/// Every option of `belljar up` that takes a value, with valid values.
const VALID_VALUES: [(&str, &[&str]); 29] = [
    ("--template", &["default", "a.b", "", "-"]),
    ("--agent", &["claude", "my-agent"]),
    ("--workspace", &["p", "/p", "..", "-"]),
    ("--repo", &["r", "/r"]),
    ("--branch", &["main", "", "a=b"]),
    ("--git-identity", &["Ada <ada@example.org>"]),
    ("--health", &["true", "", "curl -f x=y", "--x"]),
    ("--config", &["b.toml", "/etc/b.toml"]),
    ("--mode", &["overlay", "direct", "read-only"]),
    ("--net", &["none", "restricted", "full"]),
    ("--record", &["none", "hashes", "bodies"]),
    ("--rootfs", &["images/x", "~/x", "/x"]),
    ("--user", &["0", "1000", "+7", "-0", "007"]),
    ("--memory", &["1GiB", "512M"]),
    ("--cpus", &["0.5", "2"]),
    ("--pids", &["64", "+9"]),
    ("--disk", &["1GiB", "7"]),
    ("--files", &["128", "+5", "18446744073709551615"]),
    ("--output-limit", &["1MiB"]),
    ("--timeout", &["none", "90s", "1h30m"]),
    ("--allow", &["pypi", "GET,POST https://api.example.com/v1/**", "host-port:8080"]),
    ("--deny", &["*.com", "DELETE api.example.com"]),
    ("--ask", &["POST mail.example.com"]),
    ("--secret", &["github", "a_b"]),
    ("--mount", &["d:/d", "~/c:/c:rw", "/a:b:/m", "~:/home2"]),
    ("--env", &["A=1", "B", "C=", "D=-x", "E=a=b"]),
    ("-e", &["A=1", "B", "C=", "D=-x", "E==", "e"]),
    ("--weaken", &["seccomp", "landlock"]),
    ("--require", &["cgroup"]),
];
/// Values that many options refuse.
const INVALID_VALUES: [&str; 15] = [
    "",
    "-",
    "--",
    "-x",
    "--net",
    "=",
    "a b",
    "-1",
    "4294967296",
    "1e3",
    " 1",
    "\u{e9}",
    "none",
    "/",
    "~",
];
/// Arguments that are not options of `belljar up`, and unusual spellings of options.
const OTHER_WORDS: [&str; 22] = [
    "two",
    "three-3",
    "Four",
    "-",
    "--",
    "---",
    "--=",
    "-h",
    "--help",
    "-V",
    "--version",
    "-x",
    "-ex",
    "-e=",
    "-e",
    "--tier=native",
    "--no-tty=",
    "help",
    "up",
    "--Net=none",
    "--mem=1",
    "--tty",
];

/// Ends of an argument list that start with `--`.
const PROGRAMS: [&[&str]; 3] = [&["--"], &["--", "sh", "-c", "--net"], &["--", ""]];

/// Returns an option with a value as arguments, in one of three spellings.
fn option_arguments(option: &str, value: &str, spelling: usize) -> Vec<String> {
    match (spelling, option) {
        (0, _) => words(&[option, value]),
        (1, "-e") => words(&[&format!("-e{value}")]),
        (_, _) => words(&[&format!("{option}={value}")]),
    }
}

/// Generates an option with a valid value.
fn valid_option() -> impl Strategy<Value = Vec<String>> {
    (prop::sample::select(&VALID_VALUES[..]), any::<prop::sample::Index>(), 0..3_usize).prop_map(
        |((option, values), index, spelling)| {
            let value = values[index.index(values.len())];
            // Clap refuses a value that starts with a dash and is an argument of its own.
            let spelling = if value.starts_with('-') { spelling.max(1) } else { spelling };
            option_arguments(option, value, spelling)
        },
    )
}

/// Generates an option, a flag, a name or an invalid argument.
fn argument() -> impl Strategy<Value = Vec<String>> {
    let bad = (
        prop::sample::select(&VALID_VALUES[..]),
        prop::sample::select(&INVALID_VALUES[..]),
        0..3_usize,
    )
        .prop_map(|((option, _), value, spelling)| option_arguments(option, value, spelling));
    let flag = prop::sample::select(&["--no-tty", "--no-workspace", "--uncommitted"][..]);
    let name = prop::sample::select(&["two", "three-3", "v1.2"][..]);
    prop_oneof![
        30 => valid_option(),
        4 => flag.prop_map(|flag| words(&[flag])),
        4 => name.prop_map(|name| words(&[name])),
        2 => bad,
        1 => prop::sample::select(&OTHER_WORDS[..]).prop_map(|word| words(&[word])),
    ]
}

/// Generates arguments of `belljar up`, some of them with a program.
fn argument_lists() -> impl Strategy<Value = Vec<String>> {
    let program = prop_oneof![
        4 => Just(Vec::new()),
        1 => prop::sample::select(&PROGRAMS[..])
            .prop_map(words),
    ];
    (prop::collection::vec(argument(), 0..6), program)
        .prop_map(|(pieces, program)| pieces.into_iter().flatten().chain(program).collect())
}

/// Parses the arguments with clap and with the frozen parser, and asserts that both give the same spec.
#[track_caller]
fn parse_with_both(list: &[&str]) -> BoxSpec {
    let list = words(list);
    let spec = spec_from_clap(&list);
    assert_eq!(spec_from_frozen_parser(&list), spec, "{list:?}");
    spec.unwrap_or_else(|| panic!("{list:?} is refused"))
}

#[test]
fn up_option_alone_gives_the_same_spec_with_clap_and_with_the_frozen_parser() {
    for (option, values) in VALID_VALUES {
        for (value, spelling) in values.iter().flat_map(|value| [0, 1, 2].map(|n| (value, n))) {
            let mut list = option_arguments(option, value, spelling);
            if option == "--branch" {
                list.extend(words(&["--repo", "r"]));
            }
            assert_eq!(spec_from_frozen_parser(&list), spec_from_clap(&list), "{list:?}");
            let separate_dash = spelling == 0 && value.len() > 1 && value.starts_with('-');
            assert_eq!(spec_from_clap(&list).is_none(), separate_dash, "{list:?}");
        }
    }
}

#[test]
fn every_option_of_up_is_compared_with_the_frozen_parser() {
    use clap::CommandFactory as _;
    let mut cli = Cli::command();
    cli.build();
    let up = cli.find_subcommand("up").unwrap();
    let known: Vec<&str> = VALID_VALUES
        .iter()
        .map(|(option, _)| option.trim_start_matches('-'))
        .chain(["no-tty", "no-workspace", "uncommitted", "help", "version"])
        .collect();
    for long in up.get_arguments().filter_map(clap::Arg::get_long) {
        assert!(known.contains(&long), "--{long} is missing from VALID_VALUES");
    }
}

#[test]
fn up_with_relative_paths_gives_a_box_spec_with_absolute_paths() {
    let spec = parse_with_both(&[
        "two",
        "--config=b.toml",
        "--repo",
        "../r",
        "--branch=v1",
        "--uncommitted",
        "--mount",
        "d:/d",
        "-eA=1",
        "--rootfs",
        "~/x",
        "--no-tty",
        "--health",
        "true",
        "--",
        "sh",
        "-c",
        "true",
    ]);
    let repo = Path::new(DIRECTORY).join("../r");
    let branch = Some("v1".to_owned());
    assert_eq!(spec.workspace, WorkspaceSpec::Clone { repo, branch, uncommitted: true });
    assert_eq!(spec.config_file, Some(Path::new(DIRECTORY).join("b.toml")));
    assert_eq!(spec.overrides.rootfs, Some(Path::new(HOME).join("x")));
    assert_eq!(spec.program, Some(Argv::new(["sh", "-c", "true"]).unwrap()));
    assert_eq!((spec.terminal, spec.health.as_deref()), (false, Some("true")));
}

#[test]
fn run_gives_a_run_spec_with_its_program_and_terminal() {
    let words = ["belljar", "run", "--workspace", "p", "--mode=direct", "--name=fix", "make", "-j"];
    let Command::Run(args) = Cli::try_parse_from(words).unwrap().command else { panic!() };
    let terminal = Some(TerminalSize { rows: 24, columns: 80 });
    let spec = run_spec(&args, terminal, invocation(None)).unwrap();
    assert_eq!(spec.program, Argv::new(["make", "-j"]).unwrap());
    assert_eq!((spec.terminal, spec.on.terminal, &spec.on.program), (terminal, false, &None));
    assert_eq!(spec.on.overrides.mode, Some(Mode::Direct));
    let directory = Path::new(DIRECTORY).join("p");
    assert_eq!(spec.on.workspace, WorkspaceSpec::Directory(directory));
    assert_eq!(spec.name.map(|name| name.to_string()).as_deref(), Some("fix"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    #[test]
    fn up_with_random_arguments_gives_the_same_spec_with_clap_and_with_the_frozen_parser(list in argument_lists()) {
        let expect = spec_from_clap(&list);
        prop_assert_eq!(&spec_from_frozen_parser(&list), &expect);
        // Records can also have the program among the options.
        let record = BoxRecord01 { options: list.clone(), command: Vec::new(), ..record(&list) };
        let whole = BoxSpec::from_options_0_1(&record, Some(Path::new(HOME))).ok();
        prop_assert_eq!(&whole, &expect);
    }
}
