//! Invalid values of the options of `belljar run`.

use crate::{lab, transcript};

#[test]
fn run_refuses_invalid_option_values_with_exit_code_2() {
    insta::assert_snapshot!(transcript(&lab(), &[
        "run --template large -- true",
        "run --workspace LAB/missing -- true",
        "run --mode fast -- true",
        "run --net some -- true",
        "run --allow 'a b c' -- true",
        "run --allow nothing -- true",
        "run --deny '*' -- true",
        "run --ask 'a b c' -- true",
        "run --secret 'a b' -- true",
        "run --secret undeclared -- true",
        "run --mount relative -- true",
        "run --mount /etc:/proc/x -- true",
        "run --mount /etc:relative -- true",
        "run --mount /etc:/x:rx -- true",
        "run --env =x -- true",
        "run --env 'A B=x' -- true",
        "run --user me -- true",
        "run --user=-1 -- true",
        "run --memory much -- true",
        "run --memory 1KiB -- true",
        "run --cpus none -- true",
        "run --cpus 0 -- true",
        "run --pids many -- true",
        "run --pids 0 -- true",
        "run --disk -1 -- true",
        "run --disk 0 -- true",
        "run --files few -- true",
        "run --files 0 -- true",
        "run --output-limit x -- true",
        "run --timeout soon -- true",
        "run --timeout 0s -- true",
        "run --record all -- true",
        "run --weaken walls -- true",
        "run --require moon -- true",
        "run --weaken cgroup --require cgroup -- true",
        "run --name ../x -- true",
        "run --name '' -- true",
    ]), @r##"
$ belljar run --template large -- true
belljar: --template: unknown template "large"; the known templates are: default
[exit 2]

$ belljar run --workspace LAB/missing -- true
belljar: --workspace: cannot open [LAB]/missing: No such file or directory (os error 2)
[exit 2]

$ belljar run --mode fast -- true
belljar: invalid value 'fast' for '--mode <MODE>': unknown mode; write `overlay`, `direct` or `read-only`

For more information, try '--help'.
[exit 2]

$ belljar run --net some -- true
belljar: invalid value 'some' for '--net <NET>': unknown network level; write `none`, `restricted` or `full`

For more information, try '--help'.
[exit 2]

$ belljar run --allow 'a b c' -- true
belljar: invalid value 'a b c' for '--allow <RULE>': invalid `methods`: HTTP methods must be upper case, for example GET

For more information, try '--help'.
[exit 2]

$ belljar run --allow nothing -- true
belljar: invalid value 'nothing' for '--allow <RULE>': unknown preset; the presets are anthropic, openai, gemini, github, pypi, npm, crates, debian, git-https

For more information, try '--help'.
[exit 2]

$ belljar run --deny '*' -- true
belljar: invalid value '*' for '--deny <RULE>': invalid `host`: a wildcard must be the whole first label, as in *.example.com

For more information, try '--help'.
[exit 2]

$ belljar run --ask 'a b c' -- true
belljar: invalid value 'a b c' for '--ask <RULE>': invalid `methods`: HTTP methods must be upper case, for example GET

For more information, try '--help'.
[exit 2]

$ belljar run --secret 'a b' -- true
belljar: invalid value 'a b' for '--secret <NAME>': invalid secret name; use 1 to 64 characters of a-z, 0-9, `-` and `_`, and start with a letter or digit

For more information, try '--help'.
[exit 2]

$ belljar run --secret undeclared -- true
belljar: there is no secret `undeclared`: write `[secret.undeclared]` with its `hosts` into your own belljar.toml and store it with `belljar secret set undeclared`; the secrets are anthropic, gemini, github, openai
[exit 2]

$ belljar run --mount relative -- true
belljar: invalid value 'relative' for '--mount <SRC:DST[:ro|rw]>': invalid mount; write SRC:DST, SRC:DST:ro or SRC:DST:rw

For more information, try '--help'.
[exit 2]

$ belljar run --mount /etc:/proc/x -- true
belljar: invalid value '/etc:/proc/x' for '--mount <SRC:DST[:ro|rw]>': cannot mount at /proc, which the box itself provides; choose another target

For more information, try '--help'.
[exit 2]

$ belljar run --mount /etc:relative -- true
belljar: invalid value '/etc:relative' for '--mount <SRC:DST[:ro|rw]>': the target of the mount must be an absolute path without `.`, `..` or `//`

For more information, try '--help'.
[exit 2]

$ belljar run --mount /etc:/x:rx -- true
belljar: invalid value '/etc:/x:rx' for '--mount <SRC:DST[:ro|rw]>': invalid access at the end of the mount; write `:ro`, `:rw` or nothing

For more information, try '--help'.
[exit 2]

$ belljar run --env =x -- true
belljar: invalid value '=x' for '--env <K[=V]>': invalid environment variable; write NAME=VALUE, or NAME to inherit it (letters, digits and `_`)

For more information, try '--help'.
[exit 2]

$ belljar run --env 'A B=x' -- true
belljar: invalid value 'A B=x' for '--env <K[=V]>': invalid environment variable; write NAME=VALUE, or NAME to inherit it (letters, digits and `_`)

For more information, try '--help'.
[exit 2]

$ belljar run --user me -- true
belljar: invalid value 'me' for '--user <UID>': invalid digit found in string

For more information, try '--help'.
[exit 2]

$ belljar run --user=-1 -- true
belljar: invalid value '-1' for '--user <UID>': -1 is not in 0..=4294967295

For more information, try '--help'.
[exit 2]

$ belljar run --memory much -- true
belljar: invalid value 'much' for '--memory <SIZE>': invalid size; write for example "512MiB" or "2GiB"

For more information, try '--help'.
[exit 2]

$ belljar run --memory 1KiB -- true
belljar: the memory limit must be at least 16MiB, or no program can start
[exit 2]

$ belljar run --cpus none -- true
belljar: invalid value 'none' for '--cpus <N>': invalid number of CPUs; write for example "2" or "0.5"

For more information, try '--help'.
[exit 2]

$ belljar run --cpus 0 -- true
belljar: invalid value '0' for '--cpus <N>': the number of CPUs must be greater than zero

For more information, try '--help'.
[exit 2]

$ belljar run --pids many -- true
belljar: invalid value 'many' for '--pids <N>': invalid digit found in string

For more information, try '--help'.
[exit 2]

$ belljar run --pids 0 -- true
belljar: the process limit must be at least 2; Belljar itself needs one process
[exit 2]

$ belljar run --disk -1 -- true
belljar: invalid value '-1' for '--disk <SIZE>': a size cannot be negative

For more information, try '--help'.
[exit 2]

$ belljar run --disk 0 -- true
belljar: invalid value '0' for '--disk <SIZE>': a size cannot be zero; write the intended size

For more information, try '--help'.
[exit 2]

$ belljar run --files few -- true
belljar: invalid value 'few' for '--files <N>': invalid digit found in string

For more information, try '--help'.
[exit 2]

$ belljar run --files 0 -- true
belljar: the limit of open files must be at least 16, or no program can start
[exit 2]

$ belljar run --output-limit x -- true
belljar: invalid value 'x' for '--output-limit <SIZE>': invalid size; write for example "512MiB" or "2GiB"

For more information, try '--help'.
[exit 2]

$ belljar run --timeout soon -- true
belljar: invalid value 'soon' for '--timeout <TIME>': invalid time; write for example "90s", "10m", "1h30m" or "none"

For more information, try '--help'.
[exit 2]

$ belljar run --timeout 0s -- true
belljar: invalid value '0s' for '--timeout <TIME>': a timeout of zero would kill every program at once; write "none" for no timeout

For more information, try '--help'.
[exit 2]

$ belljar run --record all -- true
belljar: invalid value 'all' for '--record <WHAT>': unknown recording level; write `hashes`, `bodies` or `none`

For more information, try '--help'.
[exit 2]

$ belljar run --weaken walls -- true
belljar: invalid value 'walls' for '--weaken <LAYER>': unknown layer; the layers are namespaces, time-namespace, read-only-system, proc-mask, seccomp, landlock, capabilities, no-new-privs, nested-userns, cgroup, rlimits, self-test

For more information, try '--help'.
[exit 2]

$ belljar run --require moon -- true
belljar: invalid value 'moon' for '--require <WHAT>': unknown requirement; the only one is `cgroup`

For more information, try '--help'.
[exit 2]

$ belljar run --weaken cgroup --require cgroup -- true
belljar: the layer `cgroup` is both required and weakened
[exit 2]

$ belljar run --name ../x -- true
belljar: invalid value '../x' for '--name <NAME>': invalid name; use 1 to 63 characters of a-z, 0-9, `-`, `_` and `.`, and start with a letter or digit

For more information, try '--help'.
[exit 2]

$ belljar run --name '' -- true
belljar: invalid value '' for '--name <NAME>': invalid name; use 1 to 63 characters of a-z, 0-9, `-`, `_` and `.`, and start with a letter or digit

For more information, try '--help'.
[exit 2]
"##);
}
