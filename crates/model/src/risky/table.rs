//! The table of risky paths. Patterns are grouped by reason; the first match of a path is shown.
//!
//! Sources: the documentation of each tool; the lists of Claude Code's sandbox-runtime and of sandy;
//! git-config(1), githooks(5), gitattributes(5), gitrepository-layout(5).
//!
//! Left out on purpose: `.editorconfig`, `.gitignore`, `.nvmrc` and similar files, which do not execute
//! code; Bazel's bare `BUILD` and `WORKSPACE`, which ignoring letter case are common directory names.

use super::RiskClass::{self, Automatic, OnBuild};
use super::RulePlace::{self, Anywhere, Root};

/// Patterns of risky paths with the same reason.
#[derive(Clone, Copy)]
pub(super) struct Group {
    pub(super) class: RiskClass,
    pub(super) place: RulePlace,
    pub(super) why: &'static str,
    /// The path patterns of the group, separated by whitespace.
    pub(super) patterns: &'static str,
}

const fn automatic(why: &'static str, patterns: &'static str) -> Group {
    Group { class: Automatic, place: Anywhere, why, patterns }
}

const fn on_build(why: &'static str, patterns: &'static str) -> Group {
    Group { class: OnBuild, place: Anywhere, why, patterns }
}

pub(super) const GROUPS: &[Group] = &[
    // Version control.
    automatic(
        "git runs its hooks on commit, checkout, merge and push",
        ".git/hooks/** .git/modules/*/hooks/** .git/worktrees/*/hooks/** .githooks/** .git-hooks/**",
    ),
    automatic(
        "git settings can name programs that even `git status` runs",
        ".git/config .git/config.worktree .git/modules/*/config .git/modules/*/config.worktree
         .git/worktrees/*/config.worktree .gitconfig .config/git/**",
    ),
    automatic(
        "attributes choose which filter and diff programs git runs",
        ".gitattributes .git/info/attributes .git/modules/*/info/attributes",
    ),
    automatic("sets where git fetches submodules and LFS files from", ".gitmodules .lfsconfig"),
    // NTFS and FAT give `.git` the short name `git~1`.
    automatic(
        "internal data of the git repository, hooks and settings included",
        ".git/** git~1/**",
    ),
    automatic(
        "repository settings and hooks of other version control systems",
        ".hg/** .hgrc .jj/** .sl/** .bzr/** .svn/** .repo/**",
    ),
    automatic(
        "commands that run as git hooks",
        ".husky/** .huskyrc* .pre-commit-config.yaml .pre-commit-config.yml .pre-commit-hooks.yaml
         lefthook.yml lefthook.yaml lefthook.toml lefthook.json lefthook-local.* .lefthook.yml
         .lefthook.yaml .lefthook.toml .lefthook.json .lefthook-local.* .lefthook/**
         .overcommit.yml .simple-git-hooks.* simple-git-hooks.* .lintstagedrc*
         lint-staged.config.* .commitlintrc* prek.toml grumphp.yml grumphp.yaml grumphp.yml.dist
         grumphp.dist.yml captainhook.json captainhook.config.json hk.pkl .hk.pkl rusty-hook.toml
         .rusty-hook.toml .hooks/** .czrc .cz.toml .cz.json .cz.yaml .gitlint .reviewboardrc .arclint
         .arcconfig",
    ),
    // Belljar itself (C08).
    automatic("Belljar's settings for this project", "belljar.toml .belljar/**"),
    // Agents (C01).
    automatic(
        "settings, hooks, commands and tools of coding agents",
        ".claude/** .claude.json .claude-plugin/** .mcp.json mcp.json .codex/** .gemini/**
         .qwen/** .cursor/** .windsurf/** .aider* .opencode/** opencode.json opencode.jsonc
         .continue/** .continuerc.json .copilot/** .roo/** .roomodes .cline/** .kilocode/**
         .kilocodemodes .kiro/** .trae/** .augment/** .junie/** .amp/** .agents/** .agent/**
         .goose/** .crush/** .crush.json crush.json .amazonq/** .tabnine/** .devin/** .factory/**
         .openhands/** conductor.json .coderabbit.yaml .coderabbit.yml .mcp/** .vibe/** .antigravity/** .pi/** .grok/** .cody/** .sourcegraph/**
         .github/hooks/** .github/agents/** .github/chatmodes/** .github/skills/**",
    ),
    automatic(
        "instructions that coding agents obey",
        "CLAUDE.md CLAUDE.local.md AGENTS.md AGENTS.override.md AGENT.md GEMINI.md QWEN.md WARP.md
         CRUSH.md SKILL.md .cursorrules .windsurfrules .clinerules/** .clinerules-* .roorules*
         .goosehints .augment-guidelines .kilocoderules .rules .github/copilot-instructions.md
         .github/instructions/** .github/prompts/**",
    ),
    // Editors (C06).
    automatic(
        "editors run tasks, debuggers, plugins and language servers from this file",
        ".vscode/** *.code-workspace .idea/** .run/** .fleet/** .zed/** .helix/** .nvim/**
         .nvim.lua .nvimrc .lazy.lua .neoconf.json .exrc .vimrc _vimrc .gvimrc .lvimrc .vim/**
         .vimspector.json .ycm_extra_conf.py .dir-locals.el .dir-locals-2.el .emacs .emacs.d/**
         *.sublime-project *.sublime-workspace *.sublime-build .theia/** .vs/** .project
         .externalToolBuilders/** nbproject/** .luarc.json .luarc.jsonc .kakrc .bsp/** .factorypath
         .settings/** .classpath omnisharp.json rust-analyzer.toml .rust-analyzer.toml .merlin
         .ropeproject/** .lintr .ansible-lint .ansible-lint.yml .config/ansible-lint.yml .cfnlintrc*
         .sqlfluff platformio.ini *.hxml nim.cfg Package@swift-*.swift config/*.exs project/*.scala",
    ),
    automatic(
        "describes a development container, with commands that also run on the host",
        ".devcontainer/** .devcontainer.json .gitpod.yml .gitpod.Dockerfile .replit replit.nix
         devfile.yaml .devfile.yaml .ddev/** .lando.yml",
    ),
    // Shells and the environment.
    automatic(
        "loaded when a shell enters the directory",
        ".envrc .direnv/** .autoenv .autoenv.zsh .autoenv_leave.zsh .env.fish mise.toml
         mise.*.toml .mise.toml .mise.*.toml .mise/** .config/mise/** .config/mise.toml
         .tool-versions .rtx.toml .asdfrc .devbox/** .devenv/** .rvmrc .rbenv-vars .prototools",
    ),
    automatic(
        "a shell or session runs this file when it starts",
        ".bashrc .bash_profile .bash_login .bash_logout .bash_aliases .profile .zshrc .zshenv
         .zprofile .zlogin .zlogout .kshrc .mkshrc .cshrc .tcshrc .login .logout .inputrc
         .config/fish/** .config/environment.d/** .config/autostart/** .config/systemd/**
         .pam_environment .xprofile .xinitrc .xsession .xsessionrc .screenrc .tmux.conf *.desktop",
    ),
    automatic(
        "a program runs commands from this file when it starts here",
        ".gdbinit .gdbearlyinit .lldbinit .pdbrc .pdbrc.py .pythonrc .pythonrc.py .irbrc .pryrc
         .Rprofile .Renviron .psqlrc .sqliterc .my.cnf .ghci .ocamlinit .iex.exs .erlang .octaverc
         .guile .sbclrc .proverc .ackrc .ripgreprc .perldb .nanorc .lesskey .terraformrc .curlrc
         .wgetrc .netrc .ssh/** .gnupg/** .kube/** .RData renv/activate.R user.clj profiles.clj
         jupyter_*_config.py jupyter_*_config.json .rspec-local .byebugrc",
    ),
    // CI runs these with the project's credentials as soon as they are pushed.
    automatic(
        "runs in CI as soon as it is pushed",
        ".github/workflows/** .github/actions/** action.yml action.yaml .gitlab-ci.yml
         .gitlab-ci.yaml .gitlab/** .circleci/** Jenkinsfile Jenkinsfile.* *.jenkinsfile
         azure-pipelines.yml azure-pipelines.yaml azure-pipelines-*.yml .azure-pipelines/**
         .azuredevops/** .buildkite/** .drone.yml .drone.yaml .drone.jsonnet .drone.star
         .travis.yml bitbucket-pipelines.yml .woodpecker/** .woodpecker.yml .woodpecker.yaml
         .gitea/** .forgejo/** appveyor.yml .appveyor.yml .cirrus.yml .cirrus.star .semaphore/**
         wercker.yml cloudbuild.yaml cloudbuild.yml cloudbuild.json buildspec.yml buildspec.yaml
         .teamcity/** .builds/** .build.yml .ci/** .harness/** codefresh.yml .tekton/**
         .concourse/** .prow.yaml .pipelines/** codemagic.yaml .zuul.yaml .zuul.yml zuul.yaml .zuul.d/**
         zuul.d/** amplify.yml amplify.yaml .ebextensions/** .platform/** atlantis.yaml atlantis.yml
         .packit.yaml .packit.yml packit.yaml renovate.json renovate.json5 .renovaterc*
         .github/renovate.json .github/renovate.json5 .github/settings.yml .github/dependabot.yml",
    ),
    // Installed programs (C07).
    automatic(
        "the host can run these programs instead of its own",
        ".venv/bin/** .venv/Scripts/** .venv/pyvenv.cfg venv/bin/** venv/Scripts/**
         venv/pyvenv.cfg env/bin/** env/Scripts/** env/pyvenv.cfg virtualenv/bin/**
         node_modules/.bin/** vendor/bin/** vendor/bundle/** .bundle/** .local/bin/**
         .cargo/bin/** .tox/** .nox/** __pypackages__/** .yarn/releases/** .yarn/plugins/**
         .yarn/sdks/** .pnp.cjs .pnp.js .pnp.loader.mjs .bin/** .conda/** .pixi/**",
    ),
    automatic(
        "Python runs this file at every start, or loads it instead of the source",
        "sitecustomize.py usercustomize.py *.pth *.egg-link",
    ),
    on_build(
        "installed code, which nobody reviews and the host runs",
        "node_modules/** bower_components/** jspm_packages/** .venv/** venv/lib/** venv/lib64/**
         env/lib/** env/lib64/** virtualenv/** site-packages/** dist-packages/** .eggs/** vendor/**
         target/debug/** target/release/** target/*/debug/** target/*/release/** Pods/**",
    ),
    on_build(
        "compiled code that programs load",
        "*.so *.so.* *.dylib *.dll *.pyd *.node *.jar *.war *.class *.wasm *.a *.o *.rlib *.rmeta *.beam",
    ),
    Group {
        class: OnBuild,
        place: Root,
        why: "programs that users start from this project",
        patterns: "bin/** sbin/** tools/bazel ",
    },
    on_build("compiled code that Python loads instead of the source", "__pycache__/** *.pyc *.pyo"),
    // Package managers.
    on_build(
        "scripts and dependencies that the next install or build runs (JavaScript)",
        "package.json package.json5 package.yaml package-lock.json npm-shrinkwrap.json .npmrc
         .yarnrc .yarnrc.yml yarn.lock .pnpmfile.cjs .pnpmfile.mjs pnpmfile.js pnpm-workspace.yaml
         pnpm-lock.yaml bun.lock bun.lockb bunfig.toml deno.json deno.jsonc deno.lock lerna.json
         nx.json project.json turbo.json turbo.jsonc rush.json .yarn/** angular.json nodemon.json
         electron-builder.* wrangler.toml wrangler.json wrangler.jsonc",
    ),
    on_build(
        "JavaScript that build tools, linters and test runners load as their settings",
        "*.config.js *.config.cjs *.config.mjs *.config.ts *.config.cts *.config.mts *.conf.js
         *.conf.cjs *.conf.ts .eslintrc* .prettierrc* .babelrc* .stylelintrc* .mocharc*
         .postcssrc* .nycrc* .swcrc .taprc .c8rc* .releaserc* .remarkrc* .xo-config* gulpfile.*
         Gruntfile.* .parcelrc .ember-cli* ember-cli-build.js brunch-config.* .storybook/**
         jakefile* .graphqlrc* .dependency-cruiser.* *.config.json webpack.mix.js binding.gyp *.gyp
         *.gypi rescript.json bsconfig.json tauri.conf.json tauri.conf.json5 tauri.*.conf.json",
    ),
    on_build(
        "code and dependencies that the next install, build or test runs (Python)",
        "pyproject.toml setup.py setup.cfg conftest.py tox.ini tox.toml noxfile.py pytest.ini
         .pytest.ini pytest.toml .pytest.toml requirements*.txt requirements*.in requirements/**
         constraints*.txt Pipfile Pipfile.lock poetry.lock poetry.toml uv.lock uv.toml pdm.lock
         pdm.toml pixi.toml pixi.lock pylock*.toml environment.yml environment.yaml hatch.toml
         pip.conf .pypirc .pylintrc pylintrc pylintrc.toml .pylintrc.toml mypy.ini .mypy.ini
         .flake8 .coveragerc conanfile.py conanfile.txt docs/conf.py doc/conf.py docs/source/conf.py
         doc/source/conf.py fabfile.py dodo.py MANIFEST.in buildout.cfg Snakefile",
    ),
    on_build(
        "code and dependencies that cargo builds and runs",
        "Cargo.toml Cargo.lock build.rs .cargo/config .cargo/config.toml .cargo/** rust-toolchain
         rust-toolchain.toml",
    ),
    on_build(
        "code and dependencies that the next install, build or test runs (Ruby)",
        "Gemfile Gemfile.lock gems.rb gems.locked Rakefile rakefile Rakefile.rb rakefile.rb *.rake
         *.gemspec .rspec .rubocop.yml .rubocop.yaml .solargraph.yml Guardfile Capfile Podfile
         Podfile.lock Fastfile fastlane/** Brewfile Dangerfile Thorfile Berksfile config.ru
         Appraisals Steepfile",
    ),
    on_build(
        "code and dependencies that Gradle, Maven, sbt or Ant run",
        "build.gradle build.gradle.kts settings.gradle settings.gradle.kts init.gradle
         init.gradle.kts *.gradle *.gradle.kts gradle.properties gradle/** buildSrc/** gradlew
         gradlew.bat mvnw mvnw.cmd .mvn/** pom.xml build.sbt *.sbt project/build.properties
         .sbtopts .jvmopts build.sc build.mill build.xml ivy.xml project.clj deps.edn bb.edn
         shadow-cljs.edn boot.properties build.boot",
    ),
    on_build(
        "targets and packages that the next .NET build runs",
        "*.csproj *.fsproj *.vbproj *.vcxproj *.proj *.targets *.props *.sln *.slnx nuget.config
         global.json .config/dotnet-tools.json build.cake Directory.Build.*
         Directory.Packages.props *.csx *.ruleset .nuke/** *.csproj.user *.vcxproj.user *.fsproj.user
         launchSettings.json",
    ),
    on_build(
        "recipes that a build runs",
        "Makefile makefile GNUmakefile BSDmakefile Makefile.* *.mk *.mak justfile Justfile
         .justfile *.just Taskfile.yml taskfile.yml Taskfile.yaml taskfile.yaml Taskfile.dist.yml
         taskfile.dist.yml Taskfile.dist.yaml taskfile.dist.yaml Taskfile.*.yml CMakeLists.txt
         *.cmake CMakePresets.json CMakeUserPresets.json configure configure.ac configure.in
         autogen.sh meson.build meson.options wscript SConstruct SConscript premake5.lua xmake.lua
         *.ninja *.pro *.pri BUILD.bazel WORKSPACE.bazel WORKSPACE.bzlmod MODULE.bazel *.bzl
         .bazelrc .bazeliskrc .actrc .bazelversion .buckconfig .buckconfig.local pants.toml Earthfile Tiltfile
         Procfile Procfile.* magefile.go magefiles/** wireit.json moon.yml .moon/** .please/**
         .plzconfig tup.* Tupfile Tuprules.* Jamroot Jamfile jamfile.*",
    ),
    on_build(
        "code and dependencies that other languages' builds run",
        "go.mod go.sum go.work go.work.sum vendor/modules.txt .golangci.yml .golangci.yaml
         .golangci.toml .air.toml mix.exs mix.lock rebar.config rebar.config.script rebar.lock
         .formatter.exs .credo.exs dune dune-project dune-workspace dune.inc *.opam Package.swift
         Package.resolved .swiftpm/** Cartfile Tuist.swift *.xcodeproj/** *.xcworkspace/** *.cabal
         cabal.project cabal.project.local Setup.hs Setup.lhs stack.yaml hie.yaml .hlint.yaml
         build.zig build.zig.zon Makefile.PL Build.PL cpanfile *.nimble *.nims shard.yml
         composer.json composer.lock phpunit.xml phpunit.xml.dist phpunit.dist.xml
         .php-cs-fixer.php .php-cs-fixer.dist.php rector.php phpstan.neon phpstan.neon.dist
         phpcs.xml .phpcs.xml phpcs.xml.dist .phpcs.xml.dist dub.json dub.sdl
         .phpstorm.meta.php .user.ini .htaccess deps/build.jl Manifest.toml pubspec.yaml
         pubspec.lock build.yaml analysis_options.yaml spago.yaml spago.dhall elm.json gleam.toml
         *.rockspec .luacheckrc lakefile.lean lakefile.toml lean-toolchain lake-manifest.json
         foundry.toml truffle.js hardhat.config.* Anchor.toml Move.toml",
    ),
    on_build(
        "describes containers, machines or environments that tools build and start",
        "Dockerfile dockerfile Dockerfile.* *.dockerfile Containerfile Containerfile.*
         docker-compose*.yml docker-compose*.yaml compose.yml compose.yaml compose.*.yml
         compose.*.yaml podman-compose*.yml docker-bake.hcl docker-bake.json Vagrantfile flake.nix
         flake.lock shell.nix default.nix *.nix devenv.yaml devenv.lock devbox.json devbox.lock
         guix.scm manifest.scm channels.scm skaffold.yaml *.pkr.hcl *.tf *.tf.json *.tofu
         .terraform/** .terraform.lock.hcl terragrunt.hcl Pulumi.yaml Pulumi.*.yaml ansible.cfg
         cdk.json samconfig.toml serverless.yml serverless.yaml netlify.toml vercel.json
         heroku.yml render.yaml fly.toml werf.yaml okteto.yml garden.yml",
    ),
    // Data files that can set NODE_OPTIONS and LD_PRELOAD for the programs that load them.
    on_build(
        "sets variables that can make the programs that load it run other code",
        ".env .env.local .env.*.local .env.development .env.production .env.test .env.staging
         .flaskenv .dev.vars",
    ),
];
