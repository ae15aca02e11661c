use super::*;

#[track_caller]
fn class_of(path: impl AsRef<[u8]>) -> Option<RiskClass> {
    classify(path.as_ref()).map(|rule| rule.class)
}

#[track_caller]
fn all(paths: &str, expect: Option<RiskClass>) {
    for path in paths.split_whitespace() {
        assert_eq!(class_of(path), expect, "{path}");
    }
}

#[test]
fn c01_agent_settings_and_instructions_are_risky() {
    all(
        ".claude .claude/settings.json .claude/settings.local.json .claude/agents/x.md CLAUDE.md
         sub/dir/CLAUDE.md AGENTS.md GEMINI.md .mcp.json .codex/config.toml .gemini/settings.json
         .cursor/mcp.json .cursorrules .windsurfrules .windsurf/x .aider.conf.yml .aiderignore
         .opencode/agent/x.md opencode.json .continue/config.yaml .github/copilot-instructions.md",
        Some(RiskClass::Automatic),
    );
}

#[test]
fn c02_c03_c04_files_that_git_runs_or_reads_as_settings_are_risky() {
    all(
        ".git .git/hooks .git/hooks/pre-commit .git/config .git/config.worktree .git/info/attributes
         .git/modules/sub/hooks/post-checkout .git/modules/sub/config .git/modules/a/b/config
         .git/modules/a/modules/b/hooks/x .git/worktrees/w/gitdir .git/objects/info/alternates .git/HEAD
         .git/commondir sub/.git sub/.git/config deep/er/.git/hooks/x .gitattributes a/.gitattributes
         .gitmodules .gitconfig .husky/pre-commit .husky/_/husky.sh .pre-commit-config.yaml lefthook.yml
         .githooks/pre-push .hg/hgrc .jj/repo/config.toml",
        Some(RiskClass::Automatic),
    );
    assert!(classify(b".git/hooks/pre-commit").unwrap().why.contains("hooks"));
    assert!(classify(b".git/modules/x/config").unwrap().why.contains("settings"));
    assert!(classify(b"a/.gitattributes").unwrap().why.contains("filter"));
    assert!(classify(b".git/HEAD").unwrap().why.contains("internal data of the git repository"));
}

#[test]
fn c05_planted_bare_repository_is_recognized_by_its_file_names() {
    let seen = |names: &str| bare_repository(names.split(' ').map(str::as_bytes)).is_some();
    assert!(seen("HEAD config objects refs"));
    assert!(seen("README HEAD objects"));
    assert!(seen("HEAD refs"));
    assert!(seen("HEAD commondir gitdir"));
    assert!(seen("head Objects"));
    assert!(!seen("HEAD config"));
    assert!(!seen("objects refs config"));
    assert!(!seen("heads object"));
    assert!(bare_repository([]).is_none());
}

#[test]
fn c06_settings_of_editors_shells_and_ci_are_risky() {
    all(
        ".vscode .vscode/tasks.json sub/.vscode/settings.json .idea/workspace.xml app.code-workspace
         .zed/tasks.json .nvim.lua .exrc .vimrc .devcontainer/devcontainer.json .devcontainer.json
         .fleet/run.json x.sublime-project .envrc sub/.envrc .bashrc .profile .zshrc .zshenv .direnv/x
         mise.toml .mise.toml mise.local.toml .tool-versions .autoenv belljar.toml sub/belljar.toml
         .github/workflows/ci.yml .github/actions/a/action.yml .gitlab-ci.yml .circleci/config.yml
         Jenkinsfile azure-pipelines.yml .buildkite/pipeline.yml .drone.yml .travis.yml
         bitbucket-pipelines.yml .gdbinit .ripgreprc",
        Some(RiskClass::Automatic),
    );
}

#[test]
fn c06_files_that_a_build_runs_are_risky() {
    all(
        "package.json sub/package.json .npmrc .yarnrc .yarnrc.yml .pnpmfile.cjs pyproject.toml setup.py
         setup.cfg tests/conftest.py tox.ini noxfile.py Makefile makefile GNUmakefile rules.mk
         justfile Taskfile.yml CMakeLists.txt build.rs crates/x/build.rs .cargo/config
         .cargo/config.toml rust-toolchain rust-toolchain.toml Cargo.toml Gemfile Rakefile
         build.gradle build.gradle.kts gradlew mvnw .mvn/wrapper/x pom.xml Dockerfile Dockerfile.dev
         Containerfile docker-compose.yml docker-compose.dev.yaml compose.yaml Vagrantfile flake.nix
         shell.nix default.nix x.gemspec composer.json deno.json bunfig.toml vite.config.ts
         webpack.config.js jest.config.mjs eslint.config.js .eslintrc.js .eslintrc.cjs .prettierrc.js
         requirements.txt requirements-dev.txt bin/setup .env __pycache__/m.cpython-312.pyc
         .pylintrc go.mod",
        Some(RiskClass::OnBuild),
    );
}

#[test]
fn c07_installed_programs_are_risky() {
    all(
        ".venv/bin/python .venv/bin venv/bin/pip env/bin/activate sub/.venv/bin/python
         node_modules/.bin/tsc packages/a/node_modules/.bin/x vendor/bin/phpunit .cargo/bin/cargo
         .local/bin/ls .yarn/releases/yarn-4.cjs sitecustomize.py lib/evil.pth
         .venv/lib/python3/site-packages/a.pth",
        Some(RiskClass::Automatic),
    );
}

#[test]
fn c06_files_that_tools_execute_when_a_project_is_opened_committed_or_pushed_are_risky() {
    all(
        ".bsp/sbt.json .factorypath .settings/org.eclipse.jdt.apt.core.prefs omnisharp.json
         rust-analyzer.toml .merlin .ropeproject/config.py .lintr Package@swift-5.9.swift
         config/runtime.exs project/Build.scala platformio.ini build.hxml nim.cfg .ansible-lint
         .cfnlintrc .sqlfluff .RData renv/activate.R user.clj dev/user.clj profiles.clj
         jupyter_notebook_config.py .rvmrc .rbenv-vars .prototools .rspec-local .byebugrc grumphp.yml
         captainhook.json hk.pkl rusty-hook.toml .hooks/pre-commit .czrc .gitlint .reviewboardrc
         .arclint .zuul.yaml amplify.yml .ebextensions/01.config atlantis.yaml .packit.yaml
         renovate.json .github/settings.yml conductor.json .coderabbit.yaml",
        Some(RiskClass::Automatic),
    );
    all(
        "app.csproj.user binding.gyp .bazeliskrc .actrc nest.config.json webpack.mix.js conanfile.py
         docs/conf.py phpcs.xml dub.json rescript.json tauri.conf.json
         Properties/launchSettings.json",
        Some(RiskClass::OnBuild),
    );
}

#[test]
fn c07_installed_and_compiled_code_is_risky() {
    all(
        "node_modules node_modules/a/index.js packages/x/node_modules/a/index.js .venv
         .venv/lib/python3.12/site-packages/a.py venv/lib/x.py vendor/github.com/a/b.go
         target/debug/deps/libx.so target/x86_64-unknown-linux-gnu/release/deps/libx.so lib/a.so
         lib/libx.so.1 x.dll addon.node lib/a.jar A.class",
        Some(RiskClass::OnBuild),
    );
}

#[test]
fn c06_only_sources_and_documents_are_inert() {
    let inert = "README.md docs/guide.txt LICENSE src/main.rs src/lib.rs a/b/c.py index.js App.TSX style.css
        data.csv logo.png .gitignore sub/.gitkeep tests/test_x.py include/x.h notes.org Main.java";
    for path in inert.split_whitespace() {
        assert!(is_inert(path.as_bytes()), "{path}");
    }
    let held_back =
        "unknown noext script.sh run.bat data.json x.yml x.yaml x.toml x.xml x.ini x.cfg x.conf
        x.properties a.ipynb x.snap x.lock x.exs x.nix x.vim x.el .hidden .hidden/a.md .new/x.py
        node_modules/a/README.md vendor/a/b.go target/doc/a.html build/x.js dist/app.js venv/a.py
        Makefile package.json setup.py CLAUDE.md .github/CODEOWNERS A.SH NODE_MODULES/x.js
        b\u{200b}uild/x.js";
    for path in held_back.split_whitespace() {
        assert!(!is_inert(path.as_bytes()), "{path}");
    }
    assert!(!is_inert(b"") && !is_inert(b"."));
    // Nothing that the table has is inert.
    for rule in rules() {
        let example = rule.pattern.replace("/**", "/x.md").replace('*', "x");
        assert!(!is_inert(example.as_bytes()), "{example}");
    }
}

#[test]
fn ordinary_files_are_not_risky() {
    all(
        "README.md src/main.rs src/lib.rs main.c index.js app/models/user.rb data.json .gitignore
         .editorconfig LICENSE docs/git/hooks.md git/config hooks/pre-commit config github/workflows/x
         .github .github/CODEOWNERS .github/ISSUE_TEMPLATE/bug.md
         src/bin/tool.rs a/bin/x envrc .envrc.example src/build/x build WORKSPACE
         package.jsonx Makefiles/x x.mkv config.js tsconfig.json agents.mdx
         .gitx a.git x/HEAD",
        None,
    );
    assert_eq!(class_of(""), None);
    assert_eq!(class_of("/"), None);
    assert_eq!(class_of(b"\xff\xfe/\xff"), None);
}

#[test]
fn c18_unusual_spellings_of_a_risky_name_are_recognized() {
    for path in [
        ".GIT/HOOKS/pre-commit",
        ".Git",
        "./.git/config",
        ".git//config",
        ".git/./config",
        ".git/",
        ".g\u{200c}it/config",
        ".git\u{200d}",
        ".git.",
        ".git ",
        ".git::$INDEX_ALLOCATION",
        "git~1",
        "GIT~1/config",
        ".EnvRC",
        ".VSCode/tasks.json",
        "MAKEFILE",
        "ma\u{212a}efile",
        ".git/con\u{fb01}g",
        "Package.JSON",
        "claude.MD",
        "\u{feff}.envrc",
        ".v\u{17f}code/tasks.json",
    ] {
        assert!(classify(path.as_bytes()).is_some(), "{path}");
    }
    // Characters with a meaning in patterns have no special meaning in names.
    for path in
        ["[x]/.envrc", "*/.envrc", "**/.git/config", "a\nb/.envrc", "\\/.envrc", "?/Makefile"]
    {
        assert!(classify(path.as_bytes()).is_some(), "{path}");
    }
    let deep = format!("{}.envrc", "d/".repeat(500));
    assert!(classify(deep.as_bytes()).is_some());
    assert!(classify(b"\xff/.envrc").is_some());
}

#[test]
fn link_in_place_of_a_directory_is_as_risky_as_the_files_in_it() {
    for path in
        [".github", ".venv", "node_modules", "a/node_modules", ".config", ".cargo", ".envrc"]
    {
        assert!(classify_link(path.as_bytes()).is_some(), "{path}");
    }
    for path in ["src", "README.md", "a/b", "lib/tools"] {
        assert!(classify_link(path.as_bytes()).is_none(), "{path}");
    }
    // `tools/bazel` applies only at the root.
    assert!(classify_link(b"tools").is_some());
}

#[test]
fn every_rule_for_risky_paths_is_well_formed_and_matches_its_own_pattern() {
    let mut seen = std::collections::HashSet::new();
    for rule in rules() {
        let RiskyRule { pattern, why, class: _, place: _ } = *rule;
        assert!(seen.insert(pattern), "{pattern} is in the table twice");
        assert!(!why.is_empty() && !why.ends_with('.'), "{pattern}");
        let (path, tree) = match pattern.strip_suffix("/**") {
            Some(dir) => (dir, true),
            None => (pattern, false),
        };
        assert!(
            !path.contains("**") && !path.starts_with('/') && !path.ends_with('/'),
            "{pattern}"
        );
        assert!(
            path.split('/')
                .all(|part| !matches!(part, "" | "." | ".." | "*") || path.contains("/*/"))
        );
        let example = path.replace('*', "x");
        for spelling in [example.clone(), example.to_uppercase()] {
            let found = classify(spelling.as_bytes());
            assert!(found.is_some(), "{pattern}");
            assert!(!tree || classify(format!("{spelling}/a/b").as_bytes()).is_some(), "{pattern}");
        }
        let below = classify(format!("sub/{example}").as_bytes());
        assert!(rule.place == RulePlace::Root || below.is_some(), "{pattern}");
    }
}

#[test]
fn protected_paths_have_no_wildcards_and_do_not_overlap() {
    let paths: Vec<_> = protected_at_root().collect();
    for expect in [
        (".git", PathKind::Dir),
        (".envrc", PathKind::File),
        (".vscode", PathKind::Dir),
        (".claude", PathKind::Dir),
        ("CLAUDE.md", PathKind::File),
        ("belljar.toml", PathKind::File),
        (".github/workflows", PathKind::Dir),
        (".venv", PathKind::Dir),
        ("package.json", PathKind::File),
        ("Makefile", PathKind::File),
        ("makefile", PathKind::File),
    ] {
        assert!(paths.contains(&expect), "{expect:?}");
    }
    for (path, _) in &paths {
        assert!(!path.contains('*') && classify(path.as_bytes()).is_some(), "{path}");
        let above = |(dir, _): &&(&str, PathKind)| path.starts_with(&format!("{dir}/"));
        assert_eq!(paths.iter().find(above), None, "{path}");
        assert_eq!(paths.iter().filter(|(other, _)| other == path).count(), 1, "{path}");
    }
    assert!(!paths.iter().any(|(path, _)| path.starts_with(".git/")));
}

proptest::proptest! {
    #[test]
    fn classify_never_panics_on_any_path(path: Vec<u8>) {
        let plain = classify(&path);
        proptest::prop_assert!(plain.is_none() || classify_link(&path) .is_some());
    }

    #[test]
    fn risky_file_is_risky_at_any_depth(prefix in "([a-z\u{e9} *]{1,5}/){0,4}") {
        let path = format!("{prefix}.git/hooks/pre-commit");
        proptest::prop_assert_eq!(class_of(path), Some(RiskClass::Automatic));
    }
}
