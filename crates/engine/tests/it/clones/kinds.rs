//! Repositories of every kind.

use belljar_engine::clones::default_branch;
use belljar_engine::error::ErrorKind;

use super::*;

fn wish<'a>(branch: Option<&'a str>, (identity, name): &'a (Identity, BoxName)) -> CloneSpec<'a> {
    CloneSpec { branch, uncommitted: false, identity, name }
}

#[test]
fn an_empty_repository_begins_without_a_commit() {
    let repos = Repos::empty();
    let cloned = repos.clone(false);
    assert_eq!((cloned.at.base.clone(), cloned.at.branch.as_str()), (None, "main"));
    assert_eq!(cloned.remarks.len(), 1, "{:?}", cloned.remarks);
    assert!(repos.work(&cloned.at).is_none());
    write(&repos.repo(), "a", "1\n");
    let work = collect(&repos.state, &boxed(), &cloned.at, &repos.repo()).unwrap().unwrap();
    assert_eq!(names(&work), [("a".to_owned(), "added")]);
    assert!(diff(&cloned.at, &work, DiffStyle::default()).unwrap().contains("+1"));
    branch(&cloned.at, &work, "belljar/box").unwrap();
    assert_eq!(git(&repos.user(), &["show", "belljar/box:a"]), "1");
    // `main` is checked out, if only by name.
    assert!(branch(&cloned.at, &work, "main").is_err());
    fs::remove_dir_all(repos.repo()).unwrap();
    repos.write("first", "x\n");
    let cloned = repos.clone(true);
    assert!(repos.repo().join("first").exists() && cloned.at.from.is_none());
    assert!(repos.work(&cloned.at).is_none());
}

#[test]
fn branches_tags_commits_and_a_detached_head_are_where_one_can_begin() {
    let repos = Repos::new();
    let (user, ada) = (repos.user(), (ada(), boxed()));
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
        let cloned = repos.clone_as(&user, &wish(Some(name), &ada)).unwrap();
        assert_eq!((cloned.at.base.as_ref(), cloned.at.branch.as_str()), (Some(&old), branch));
        assert_eq!(git(&repos.repo(), &["symbolic-ref", "--short", "HEAD"]), branch);
        fs::remove_dir_all(repos.repo()).unwrap();
    }
    for name in ["nothing", "--all", "-x", ""] {
        let refused = repos.clone_as(&user, &wish(Some(name), &ada)).unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{name}: {refused:#}");
    }
    let uncommitted = CloneSpec { uncommitted: true, ..wish(Some("topic"), &ada) };
    assert_eq!(repos.clone_as(&user, &uncommitted).unwrap_err().kind(), ErrorKind::Invalid);
    git(&user, &["checkout", "-q", "--detach"]);
    let cloned = repos.clone(false);
    assert_eq!((cloned.at.base.as_ref(), cloned.at.branch.as_str()), (Some(&new), "belljar/box"));
    assert!(cloned.remarks[0].starts_with("no branch is checked out"), "{:?}", cloned.remarks);
}

#[test]
fn bare_repositories_worktrees_and_directories_within_are_understood() {
    let repos = Repos::new();
    let (user, ada) = (repos.user(), (ada(), boxed()));
    let round = |from: &Path, expect: &Path| {
        let cloned = repos.clone_as(from, &wish(None, &ada)).unwrap();
        assert_eq!(cloned.at.path, expect);
        write(&repos.repo(), "a", "1\n");
        let work = collect(&repos.state, &boxed(), &cloned.at, &repos.repo()).unwrap().unwrap();
        branch(&cloned.at, &work, "belljar/box").unwrap();
        fs::remove_dir_all(repos.repo()).unwrap();
        cloned
    };
    let within = round(&user.join("src"), &user);
    assert!(within.remarks[0].contains("the complete repository"), "{:?}", within.remarks);
    git(&user, &["update-ref", "-d", "refs/heads/belljar/box"]);
    git(&user, &["worktree", "add", "-q", "../tree", "-b", "tree"]);
    let tree = repos.top.join("tree");
    write(&tree, "src/lib.rs", "of the tree\n");
    let cloned = round(&tree, &tree);
    assert_eq!((cloned.at.branch.as_str(), &cloned.at.git_dir), ("tree", &user.join(".git")));
    assert!(
        cloned.remarks[0].starts_with("uncommitted changes of 1 file are"),
        "{:?}",
        cloned.remarks
    );
    git(&repos.top, &["clone", "-q", "--bare", "user", "bare.git"]);
    git(&repos.top.join("bare.git"), &["update-ref", "-d", "refs/heads/belljar/box"]);
    round(&repos.top.join("bare.git"), &repos.top.join("bare.git"));
    // Beneath one that has no checkout there is none: somebody may have planted it.
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
fn a_shallow_clone_and_one_with_other_hashes_go_there_and_back() {
    let repos = Repos::new();
    repos.write("src/lib.rs", "newer\n");
    repos.commit("Newer");
    let (user, ada) = (repos.user(), (ada(), boxed()));
    let url = format!("file://{}", user.display());
    git(&repos.top, &["clone", "-q", "--depth=1", &url, "shallow"]);
    let modern = repos.top.join("modern");
    git(&repos.top, &["init", "-q", "--object-format=sha256", "-b", "main", "modern"]);
    write(&modern, "a", "0\n");
    commit(&modern, "Begin");
    for (name, cut) in [("shallow", true), ("modern", false)] {
        let from = repos.top.join(name);
        let cloned = repos.clone_as(&from, &wish(None, &ada)).unwrap();
        assert_eq!(
            cloned.remarks.iter().any(|text| text.contains("history in the box is incomplete")),
            cut
        );
        assert_eq!(git(&repos.repo(), &["rev-list", "--count", "HEAD"]), "1");
        assert!(repos.work(&cloned.at).is_none());
        write(&repos.repo(), "a", "1\n");
        let work = collect(&repos.state, &boxed(), &cloned.at, &repos.repo()).unwrap().unwrap();
        branch(&cloned.at, &work, "belljar/box").unwrap();
        assert_eq!(git(&from, &["show", "belljar/box:a"]), "1");
        git(&from, &["fsck"]);
        fs::remove_dir_all(repos.repo()).unwrap();
    }
}

#[test]
fn submodules_nested_repositories_and_lfs_pointers_are_said() {
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
    let said = cloned.remarks.join("\n");
    assert!(said.contains("only empty directories for 1 submodule: vendor/library"), "{said}");
    assert!(said.contains("only the pointers of 1 git-lfs file"), "{said}");
    assert!(said.contains("the box does not contain 1 nested repository: nested/"), "{said}");
    assert!(!repos.repo().join("nested").exists());
    assert!(repos.work(&cloned.at).is_none(), "an empty submodule is no change");
}

#[test]
fn jj_beside_git_is_git_and_a_store_of_its_own_needs_a_bookmark() {
    let repos = Repos::new();
    let (user, ada) = (repos.user(), (ada(), boxed()));
    git(&user, &["checkout", "-q", "--detach"]);
    write(&user, ".jj/repo/store/git_target", "../../../.git");
    write(&user, ".jj/.gitignore", "/*\n");
    let cloned = repos.clone(false);
    assert_eq!(cloned.at.git_dir, user.join(".git"));
    assert!(!repos.repo().join(".jj").exists());
    fs::remove_dir_all(repos.repo()).unwrap();

    let alone = repos.top.join("alone");
    write(&alone, ".jj/repo/store/git_target", "git");
    git(&alone, &["clone", "-q", "--bare", user.to_str().unwrap(), ".jj/repo/store/git"]);
    let refused = repos.clone_as(&alone, &wish(None, &ada)).unwrap_err();
    assert!(refused.kind() == ErrorKind::Invalid && format!("{refused:#}").contains("bookmark"));
    let cloned = repos.clone_as(&alone, &wish(Some("main"), &ada)).unwrap();
    assert_eq!(cloned.at.git_dir, alone.join(".jj/repo/store/git"));
    write(&repos.repo(), "a", "1\n");
    let work = collect(&repos.state, &boxed(), &cloned.at, &repos.repo()).unwrap().unwrap();
    branch(&cloned.at, &work, "belljar/box").unwrap();
}

#[test]
fn two_boxes_on_one_repository_do_not_meet() {
    let repos = Repos::new();
    let (user, ada) = (repos.user(), (ada(), boxed()));
    let source = find_source(&repos.state, &user).unwrap();
    let root = is_root();
    let mut made = Vec::new();
    for name in ["one", "two"] {
        let into = repos.top.join("state").join(name);
        let name: BoxName = name.parse().unwrap();
        let wish = CloneSpec { branch: None, uncommitted: false, identity: &ada.0, name: &name };
        let at = clone(&source, &wish, &into, root.then_some((65534, 65534))).unwrap().at;
        write(&into, "who", name.as_str());
        made.push((name, into, at));
    }
    for (name, into, at) in &made {
        let work = collect(&repos.state, name, at, into).unwrap().unwrap();
        branch(at, &work, &format!("belljar/{name}")).unwrap();
        assert_eq!(git(&user, &["show", &format!("belljar/{name}:who")]), name.as_str());
    }
}

#[test]
fn who_the_user_is_comes_from_the_users_own_settings() {
    let repos = Repos::new();
    git(&repos.user(), &["config", "user.name", "Grace"]);
    git(&repos.user(), &["config", "user.email", "g@h"]);
    let source = find_source(&repos.state, &repos.user()).unwrap();
    assert_eq!(source.identity().unwrap().to_string(), "Grace <g@h>");
    assert_eq!(source.path(), repos.user());
}

#[test]
fn every_name_of_a_box_has_a_branch() {
    for (name, branch) in
        [("a.b", "a.b"), ("a..b", "a%2e%2eb"), ("a.lock", "a%2elock"), ("a.", "a%2e")]
    {
        let made = default_branch(&name.parse().unwrap());
        assert_eq!(made, format!("belljar/{branch}"));
        git(Path::new("/"), &["check-ref-format", "--branch", &made]);
    }
}
