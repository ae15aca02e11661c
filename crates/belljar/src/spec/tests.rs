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

fn typed_in(config: Option<&Path>) -> TypedIn<'_> {
    TypedIn { directory: Path::new(DIRECTORY), home: Some(Path::new(HOME)), config }
}

/// What clap makes of the words behind `belljar up NAME`, and the file that `--config` names.
fn by_clap(words: &[String]) -> Option<(UpArgs, Option<PathBuf>)> {
    let begin = ["belljar", "up", "first"].map(str::to_owned);
    let cli = Cli::try_parse_from(begin.iter().chain(words)).ok()?;
    let Command::Up(args) = cli.command else { return None };
    Some((*args, cli.config))
}

fn spec_by_clap(words: &[String]) -> Option<BoxSpec> {
    let (args, config) = by_clap(words)?;
    box_spec(&args.options, &args.command, typed_in(config.as_deref())).ok()
}

/// What 0.1 stored for the same words, but for the look at the disk.
fn record(words: &[String]) -> BoxRecord01 {
    let (ground, config) = match by_clap(words) {
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

fn spec_by_frozen_parser(words: &[String]) -> Option<BoxSpec> {
    BoxSpec::from_options_0_1(&record(words), Some(Path::new(HOME))).ok()
}

fn words(text: &[&str]) -> Vec<String> {
    text.iter().map(|word| (*word).to_owned()).collect()
}

/// Every option that takes a value, with values that it accepts.
const GOOD: [(&str, &[&str]); 29] = [
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
const BAD_VALUES: [&str; 15] = [
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

const PROGRAMS: [&[&str]; 3] = [&["--"], &["--", "sh", "-c", "--net"], &["--", ""]];

/// One option with a value, in one of its spellings.
fn spelled(option: &str, value: &str, spelling: usize) -> Vec<String> {
    match (spelling, option) {
        (0, _) => words(&[option, value]),
        (1, "-e") => words(&[&format!("-e{value}")]),
        (_, _) => words(&[&format!("{option}={value}")]),
    }
}

fn good() -> impl Strategy<Value = Vec<String>> {
    (prop::sample::select(&GOOD[..]), any::<prop::sample::Index>(), 0..3_usize).prop_map(
        |((option, values), index, spelling)| {
            let value = values[index.index(values.len())];
            // Clap takes no separate value that begins with a dash.
            let spelling = if value.starts_with('-') { spelling.max(1) } else { spelling };
            spelled(option, value, spelling)
        },
    )
}

fn piece() -> impl Strategy<Value = Vec<String>> {
    let bad = (prop::sample::select(&GOOD[..]), prop::sample::select(&BAD_VALUES[..]), 0..3_usize)
        .prop_map(|((option, _), value, spelling)| spelled(option, value, spelling));
    let flag = prop::sample::select(&["--no-tty", "--no-workspace", "--uncommitted"][..]);
    let name = prop::sample::select(&["two", "three-3", "v1.2"][..]);
    prop_oneof![
        30 => good(),
        4 => flag.prop_map(|flag| words(&[flag])),
        4 => name.prop_map(|name| words(&[name])),
        2 => bad,
        1 => prop::sample::select(&OTHER_WORDS[..]).prop_map(|word| words(&[word])),
    ]
}

fn lists() -> impl Strategy<Value = Vec<String>> {
    let program = prop_oneof![
        4 => Just(Vec::new()),
        1 => prop::sample::select(&PROGRAMS[..])
            .prop_map(words),
    ];
    (prop::collection::vec(piece(), 0..6), program)
        .prop_map(|(pieces, program)| pieces.into_iter().flatten().chain(program).collect())
}

#[track_caller]
fn both_accept(list: &[&str]) -> BoxSpec {
    let list = words(list);
    let spec = spec_by_clap(&list);
    assert_eq!(spec_by_frozen_parser(&list), spec, "{list:?}");
    spec.unwrap_or_else(|| panic!("{list:?} is refused"))
}

#[test]
fn each_option_of_up_alone_gives_the_same_spec_by_clap_and_by_the_frozen_parser() {
    for (option, values) in GOOD {
        for (value, spelling) in values.iter().flat_map(|value| [0, 1, 2].map(|n| (value, n))) {
            let mut list = spelled(option, value, spelling);
            if option == "--branch" {
                list.extend(words(&["--repo", "r"]));
            }
            assert_eq!(spec_by_frozen_parser(&list), spec_by_clap(&list), "{list:?}");
            let separate_dash = spelling == 0 && value.len() > 1 && value.starts_with('-');
            assert_eq!(spec_by_clap(&list).is_none(), separate_dash, "{list:?}");
        }
    }
}

#[test]
fn every_option_of_up_is_known_to_the_frozen_parser() {
    use clap::CommandFactory as _;
    let mut cli = Cli::command();
    cli.build();
    let up = cli.find_subcommand("up").unwrap();
    let known: Vec<&str> = GOOD
        .iter()
        .map(|(option, _)| option.trim_start_matches('-'))
        .chain(["no-tty", "no-workspace", "uncommitted", "help", "version"])
        .collect();
    for long in up.get_arguments().filter_map(clap::Arg::get_long) {
        assert!(known.contains(&long), "--{long} is not among the options that are tested here");
    }
}

#[test]
fn box_spec_of_up_with_many_options_has_absolute_paths() {
    let spec = both_accept(&[
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
fn run_spec_of_run_has_the_program_and_the_terminal_of_the_run() {
    let words = ["belljar", "run", "--workspace", "p", "--mode=direct", "--name=fix", "make", "-j"];
    let Command::Run(args) = Cli::try_parse_from(words).unwrap().command else { panic!() };
    let terminal = Some(TerminalSize { rows: 24, columns: 80 });
    let spec = run_spec(&args, terminal, typed_in(None)).unwrap();
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
    fn any_options_give_the_same_spec_by_clap_and_by_the_frozen_parser(list in lists()) {
        let expect = spec_by_clap(&list);
        prop_assert_eq!(&spec_by_frozen_parser(&list), &expect);
        // The program may also stand among the options.
        let record = BoxRecord01 { options: list.clone(), command: Vec::new(), ..record(&list) };
        let whole = BoxSpec::from_options_0_1(&record, Some(Path::new(HOME))).ok();
        prop_assert_eq!(&whole, &expect);
    }
}
