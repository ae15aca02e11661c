//! Invalid arguments of `belljar diff` and `belljar apply`.

use crate::{lab, transcript};

#[test]
fn diff_and_apply_refuse_invalid_arguments_with_exit_code_2() {
    insta::assert_snapshot!(transcript(&lab(), &[
        "diff --stat --conflicts",
        "diff --home",
        "diff a --since tag",
        "apply --branch x --theirs y",
    ]), @r##"
$ belljar diff --stat --conflicts
belljar: the argument '--stat' cannot be used with '--conflicts'

Usage: belljar diff --stat [RUN] [-- <PATH>...]

For more information, try '--help'.
[exit 2]

$ belljar diff --home
belljar: the following required arguments were not provided:
  <RUN>

Usage: belljar diff --home <RUN> [-- <PATH>...]

For more information, try '--help'.
[exit 2]

$ belljar diff a --since tag
belljar: the following required arguments were not provided:
  --home

Usage: belljar diff --home --since <TAG> <RUN> [-- <PATH>...]

For more information, try '--help'.
[exit 2]

$ belljar apply --branch x --theirs y
belljar: the argument '--branch [<BRANCH>]' cannot be used with '--theirs <PATH>'

Usage: belljar apply --branch [<BRANCH>] [RUN] [-- <PATH>...]

For more information, try '--help'.
[exit 2]
"##);
}
