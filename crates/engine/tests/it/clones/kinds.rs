//! Tests of clones of all kinds of repositories: empty, bare, shallow, with worktrees, submodules or jj.

use belljar_engine::clones::default_branch;
use belljar_engine::error::ErrorKind;

use super::*;

fn clone_spec<'a>(
    branch: Option<&'a str>,
    (identity, name): &'a (Identity, BoxName),
) -> CloneSpec<'a> {
    CloneSpec { branch, uncommitted: false, identity, name }
}

#[test]
fn clone_of_an_empty_repository_has_no_base_commit() {
    let repos = Repos::empty();
    let cloned = repos.clone(false);
    assert_eq!((cloned.at.base.clone(), cloned.at.branch.as_str()), (None, "main"));
    assert_eq!(cloned.remarks.len(), 1, "{:?}", cloned.remarks);
    assert!(repos.work(&cloned.at).is_none());
    write(&repos.repo(), "a", "1\n");
    let work = collect(&repos.state, &box_name(), &cloned.at, &repos.repo()).unwrap().unwrap();
    assert_eq!(file_changes(&work), [("a".to_owned(), "added")]);
    assert!(diff(&work, DiffStyle::default()).unwrap().contains("+1"));
    branch(&work, "belljar/box").unwrap();
    assert_eq!(git(&repos.user(), &["show", "belljar/box:a"]), "1");
    // `main` is checked out although it has no commit.
    assert!(branch(&work, "main").is_err());
    fs::remove_dir_all(repos.repo()).unwrap();
    repos.write("first", "x\n");
    let cloned = repos.clone(true);
    assert!(repos.repo().join("first").exists() && cloned.at.from.is_none());
    assert!(repos.work(&cloned.at).is_none());
}

#[test]
fn clone_starts_at_a_branch_tag_commit_or_detached_head() {
    let repos = Repos::new();
    let (user, ada) = (repos.user(), (ada(), box_name()));
    let old = git(&user, &["rev-parse", "HEAD"]);
    git(&user, &["tag", "-a", "v1", "-m", "one"]);
    git(&user, &["branch", "topic"]);
    git(&user, &["update-ref", "refs/remotes/origin/theirs", &old]);
    repos.write("src/lib.rs", "newer\n");
    let new = repos.commit("Newer");
    for (name, branch) in [
        ("topic", "topic"),
        ("v1", "belljar/box"),
        (&old, "belljar/box"),
        ("origin/theirs", "theirs"),
    ] {
        let cloned = repos.clone_as(&user, &clone_spec(Some(name), &ada)).unwrap();
        assert_eq!((cloned.at.base.as_ref(), cloned.at.branch.as_str()), (Some(&old), branch));
        assert_eq!(git(&repos.repo(), &["symbolic-ref", "--short", "HEAD"]), branch);
        fs::remove_dir_all(repos.repo()).unwrap();
    }
    for name in ["nothing", "--all", "-x", ""] {
        let error = repos.clone_as(&user, &clone_spec(Some(name), &ada)).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid, "{name}: {error:#}");
    }
    let uncommitted = CloneSpec { uncommitted: true, ..clone_spec(Some("topic"), &ada) };
    assert_eq!(repos.clone_as(&user, &uncommitted).unwrap_err().kind(), ErrorKind::Invalid);
    git(&user, &["checkout", "-q", "--detach"]);
    let cloned = repos.clone(false);
    assert_eq!((cloned.at.base.as_ref(), cloned.at.branch.as_str()), (Some(&new), "belljar/box"));
    assert!(cloned.remarks[0].starts_with("no branch is checked out"), "{:?}", cloned.remarks);
}

#[test]
fn clone_accepts_bare_repositories_worktrees_and_subdirectories() {
    let repos = Repos::new();
    let (user, ada) = (repos.user(), (ada(), box_name()));
    let round_trip = |from: &Path, expect: &Path| {
        let cloned = repos.clone_as(from, &clone_spec(None, &ada)).unwrap();
        assert_eq!(cloned.at.path, expect);
        write(&repos.repo(), "a", "1\n");
        let work = collect(&repos.state, &box_name(), &cloned.at, &repos.repo()).unwrap().unwrap();
        branch(&work, "belljar/box").unwrap();
        fs::remove_dir_all(repos.repo()).unwrap();
        cloned
    };
    let subdirectory = round_trip(&user.join("src"), &user);
    assert!(
        subdirectory.remarks[0].contains("the complete repository"),
        "{:?}",
        subdirectory.remarks
    );
    git(&user, &["update-ref", "-d", "refs/heads/belljar/box"]);
    git(&user, &["worktree", "add", "-q", "../tree", "-b", "tree"]);
    let tree = repos.top.join("tree");
    write(&tree, "src/lib.rs", "of the tree\n");
    let cloned = round_trip(&tree, &tree);
    assert_eq!((cloned.at.branch.as_str(), &cloned.at.git_dir), ("tree", &user.join(".git")));
    assert!(
        cloned.remarks[0].starts_with("uncommitted changes of 1 file are"),
        "{:?}",
        cloned.remarks
    );
    git(&repos.top, &["clone", "-q", "--bare", "user", "bare.git"]);
    git(&repos.top.join("bare.git"), &["update-ref", "-d", "refs/heads/belljar/box"]);
    round_trip(&repos.top.join("bare.git"), &repos.top.join("bare.git"));
    // A directory inside a bare repository is refused, because an attacker may have planted it.
    assert_eq!(
        find_source(&repos.state, &repos.top.join("bare.git/refs")).unwrap_err().kind(),
        ErrorKind::Invalid
    );
    assert_eq!(find_source(&repos.state, &repos.top).unwrap_err().kind(), ErrorKind::Invalid);
    assert_eq!(
        find_source(&repos.state, &user.join("README.md")).unwrap_err().kind(),
        ErrorKind::Invalid
    );
    assert_eq!(
        find_source(&repos.state, &user.join("nowhere")).unwrap_err().kind(),
        ErrorKind::Invalid
    );
}

#[test]
fn work_returns_to_a_shallow_repository_and_to_a_sha256_repository() {
    let repos = Repos::new();
    repos.write("src/lib.rs", "newer\n");
    repos.commit("Newer");
    let (user, ada) = (repos.user(), (ada(), box_name()));
    let url = format!("file://{}", user.display());
    git(&repos.top, &["clone", "-q", "--depth=1", &url, "shallow"]);
    let sha256 = repos.top.join("sha256");
    git(&repos.top, &["init", "-q", "--object-format=sha256", "-b", "main", "sha256"]);
    write(&sha256, "a", "0\n");
    commit(&sha256, "Begin");
    for (name, is_shallow) in [("shallow", true), ("sha256", false)] {
        let from = repos.top.join(name);
        let cloned = repos.clone_as(&from, &clone_spec(None, &ada)).unwrap();
        assert_eq!(
            cloned.remarks.iter().any(|text| text.contains("history in the box is incomplete")),
            is_shallow
        );
        assert_eq!(git(&repos.repo(), &["rev-list", "--count", "HEAD"]), "1");
        assert!(repos.work(&cloned.at).is_none());
        write(&repos.repo(), "a", "1\n");
        let work = collect(&repos.state, &box_name(), &cloned.at, &repos.repo()).unwrap().unwrap();
        branch(&work, "belljar/box").unwrap();
        assert_eq!(git(&from, &["show", "belljar/box:a"]), "1");
        git(&from, &["fsck"]);
        fs::remove_dir_all(repos.repo()).unwrap();
    }
}

#[test]
fn clone_has_remarks_about_submodules_nested_repositories_and_lfs_pointers() {
    let repos = Repos::new();
    let user = repos.user();
    let sub = repos.top.join("library");
    git(&repos.top, &["init", "-q", "-b", "main", "library"]);
    write(&sub, "x", "x\n");
    let oid = commit(&sub, "Theirs");
    git(&user, &["update-index", "--add", "--cacheinfo", &format!("160000,{oid},vendor/library")]);
    repos.write(".gitmodules", "[submodule \"l\"]\n\tpath = vendor/library\n\turl = ../library\n");
    repos.write(".gitattributes", "*.bin filter=lfs diff=lfs merge=lfs -text\n");
    repos.write("big.bin", "version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n");
    git(&user, &["add", ".gitmodules", ".gitattributes", "big.bin"]);
    git(&user, &["commit", "-q", "-m", "Use a library"]);
    git(&user, &["init", "-q", "nested"]);
    commit(&user.join("nested"), "Nested");
    let cloned = repos.clone(true);
    let remarks = cloned.remarks.join("\n");
    assert!(
        remarks.contains("only empty directories for 1 submodule: vendor/library"),
        "{remarks}"
    );
    assert!(remarks.contains("only the pointers of 1 git-lfs file"), "{remarks}");
    assert!(remarks.contains("the box does not contain 1 nested repository: nested/"), "{remarks}");
    assert!(!repos.repo().join("nested").exists());
    assert!(repos.work(&cloned.at).is_none(), "an empty submodule is no change");
}

#[test]
fn clone_of_a_colocated_jj_repository_uses_git_and_a_separate_jj_store_needs_a_bookmark() {
    let repos = Repos::new();
    let (user, ada) = (repos.user(), (ada(), box_name()));
    git(&user, &["checkout", "-q", "--detach"]);
    write(&user, ".jj/repo/store/git_target", "../../../.git");
    write(&user, ".jj/.gitignore", "/*\n");
    let cloned = repos.clone(false);
    assert_eq!(cloned.at.git_dir, user.join(".git"));
    assert!(!repos.repo().join(".jj").exists());
    fs::remove_dir_all(repos.repo()).unwrap();

    let separate = repos.top.join("separate");
    write(&separate, ".jj/repo/store/git_target", "git");
    git(&separate, &["clone", "-q", "--bare", user.to_str().unwrap(), ".jj/repo/store/git"]);
    let error = repos.clone_as(&separate, &clone_spec(None, &ada)).unwrap_err();
    assert!(error.kind() == ErrorKind::Invalid && format!("{error:#}").contains("bookmark"));
    let cloned = repos.clone_as(&separate, &clone_spec(Some("main"), &ada)).unwrap();
    assert_eq!(cloned.at.git_dir, separate.join(".jj/repo/store/git"));
    write(&repos.repo(), "a", "1\n");
    let work = collect(&repos.state, &box_name(), &cloned.at, &repos.repo()).unwrap().unwrap();
    branch(&work, "belljar/box").unwrap();
}

#[test]
fn two_boxes_on_one_repository_return_their_own_work() {
    let repos = Repos::new();
    let (user, ada) = (repos.user(), (ada(), box_name()));
    let source = find_source(&repos.state, &user).unwrap();
    let root = is_root();
    let mut made = Vec::new();
    for name in ["one", "two"] {
        let into = repos.top.join("state").join(name);
        let name: BoxName = name.parse().unwrap();
        let spec = CloneSpec { branch: None, uncommitted: false, identity: &ada.0, name: &name };
        let at = clone(&source, &spec, &into, root.then_some((65534, 65534))).unwrap().at;
        write(&into, "who", name.as_str());
        made.push((name, into, at));
    }
    for (name, into, at) in &made {
        let work = collect(&repos.state, name, at, into).unwrap().unwrap();
        branch(&work, &format!("belljar/{name}")).unwrap();
        assert_eq!(git(&user, &["show", &format!("belljar/{name}:who")]), name.as_str());
    }
}

#[test]
fn identity_for_commits_comes_from_the_git_settings_of_the_user() {
    let repos = Repos::new();
    git(&repos.user(), &["config", "user.name", "Grace"]);
    git(&repos.user(), &["config", "user.email", "g@h"]);
    let source = find_source(&repos.state, &repos.user()).unwrap();
    assert_eq!(source.identity().unwrap().to_string(), "Grace <g@h>");
    assert_eq!(source.path(), repos.user());
}

#[test]
fn default_branch_is_a_valid_branch_name_for_every_box_name() {
    for (name, branch) in
        [("a.b", "a.b"), ("a..b", "a%2e%2eb"), ("a.lock", "a%2elock"), ("a.", "a%2e")]
    {
        let made = default_branch(&name.parse().unwrap());
        assert_eq!(made, format!("belljar/{branch}"));
        git(Path::new("/"), &["check-ref-format", "--branch", &made]);
    }
}
