use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};

use tempfile::TempDir;

use super::*;

fn model() -> Author {
    client("mcp")
}

/// Returns the author for a client with this name.
fn client(name: &str) -> Author {
    Author::Caller { client: name.to_owned(), session: String::new() }
}

fn name(text: &str) -> SkillName {
    text.parse().unwrap()
}

fn draft(code: &str) -> Draft {
    Draft {
        description: "adds".to_owned(),
        code: code.to_owned(),
        language: Dialect::Ts,
        wants: Wants::default(),
    }
}

fn hosts(hosts: &[&str]) -> Wants {
    let hosts = hosts.iter().map(|host| host.parse().unwrap()).collect();
    Wants { hosts, ..Wants::default() }
}

/// Returns a draft of a skill that requests these hosts.
fn draft_with_hosts(code: &str, wanted: &[&str]) -> Draft {
    Draft { wants: hosts(wanted), ..draft(code) }
}

fn store() -> (TempDir, Skills) {
    let home = tempfile::tempdir().unwrap();
    let skills = Skills::open(home.path()).unwrap();
    (home, skills)
}

/// Saves a skill in the name of a client and approves it. The client owns the skill.
fn save_approved(skills: &Skills, name: &SkillName, draft: Draft) -> Version {
    let version = skills.save(name, draft, &model()).unwrap().version;
    skills.approve(name, &version).unwrap();
    version
}

fn waits(more: &[&str]) -> VersionState {
    VersionState::Waits { more: more.iter().map(|it| (*it).to_owned()).collect() }
}

#[test]
fn saved_skill_is_returned_and_listed() {
    let (home, skills) = store();
    let add = name("add");
    assert!(matches!(skills.get(&add), Err(SkillError::NotFound { .. })));
    let saved = skills.save(&add, draft("export default 1"), &model()).unwrap();
    assert_eq!(saved.state, VersionState::Active);
    let skill = Skills::open(home.path()).unwrap().get(&add).unwrap();
    assert_eq!((skill.code.as_str(), &skill.version), ("export default 1", &saved.version));
    let listed = skills.list().unwrap();
    assert_eq!(listed.len(), 1);
    assert_eq!(listed[0].state, SkillState::Active { skill, waiting: None });
    let mode = fs::metadata(home.path().join("skills/add")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700);
}

#[test]
fn skill_version_hash_depends_only_on_the_content() {
    let (_home, skills) = store();
    let of =
        |skill: &str, draft: Draft| skills.save(&name(skill), draft, &model()).unwrap().version;
    let one = of("one", draft("1"));
    assert_eq!(one, of("two", draft("1")));
    assert_eq!(one, draft("1").version(&name("x")).unwrap().version);
    assert_ne!(one, of("two", draft("2")));
    assert_ne!(one, of("two", Draft { description: "other".into(), ..draft("1") }));
    assert_ne!(one, of("two", Draft { language: Dialect::Js, ..draft("1") }));
    assert_ne!(one, of("two", draft_with_hosts("1", &["a.example"])));
}

#[test]
fn skill_history_contains_every_saved_version() {
    let (_home, skills) = store();
    let add = name("add");
    let first = skills.save(&add, draft("1"), &model()).unwrap().version;
    let second = skills.save(&add, draft("2"), &Author::Operator).unwrap().version;
    let past = skills.history(&add).unwrap();
    let log: Vec<_> = past.iter().map(|it| (it.by.as_str(), it.step, it.is_active)).collect();
    assert_eq!(log, [("caller mcp", Step::Saved, false), ("operator", Step::Saved, true)]);
    assert_eq!(skills.version(&add, &first).unwrap().code, "1");
    assert_eq!(skills.find(&add, &first.as_str()[..8]).unwrap(), first);
    assert!(skills.find(&add, "").is_err(), "the prefix is too short");
    // Approving the old version activates it again.
    skills.approve(&add, &first).unwrap();
    assert_eq!(skills.get(&add).unwrap().code, "1");
    assert!(skills.version(&add, &second).is_ok());
    // Saving identical content again adds no event.
    let before = skills.history(&add).unwrap().len();
    skills.save(&add, draft("3"), &Author::Operator).unwrap();
    skills.save(&add, draft("3"), &Author::Operator).unwrap();
    assert_eq!(skills.history(&add).unwrap().len(), before + 1);
}

#[test]
fn oldest_skill_versions_are_deleted_but_never_the_active_one() {
    let (home, skills) = store();
    let add = name("add");
    let active = save_approved(&skills, &add, draft_with_hosts("0", &["a.example"]));
    for number in 0..MAX_VERSIONS + 20 {
        // Each new version waits, so the first one stays active.
        let wide = draft_with_hosts(&number.to_string(), &["a.example", "b.example"]);
        assert_ne!(skills.save(&add, wide, &model()).unwrap().state, VersionState::Active);
    }
    assert_eq!(skills.get(&add).unwrap().version, active);
    let files = fs::read_dir(home.path().join("skills/add")).unwrap().count();
    assert!(files <= MAX_VERSIONS + 2, "{files} files");
}

#[test]
fn f10_skill_version_with_new_requests_waits_while_the_old_one_stays_active() {
    let (_home, skills) = store();
    let add = name("add");
    save_approved(&skills, &add, draft_with_hosts("1", &["a.example"]));
    let wider =
        skills.save(&add, draft_with_hosts("2", &["a.example", "b.example"]), &model()).unwrap();
    assert_eq!(wider.state, waits(&["host b.example"]));
    assert_eq!(skills.get(&add).unwrap().code, "1");
    let SkillState::Active { waiting: Some(waiting), .. } = skills.info(&add).unwrap().state else {
        panic!("the version must wait");
    };
    assert_eq!((waiting.skill.code.as_str(), waiting.more), ("2", vec!["host b.example".into()]));
    // After approval, the wider version is active.
    skills.approve(&add, &wider.version).unwrap();
    assert_eq!(skills.get(&add).unwrap().code, "2");
}

#[test]
fn f10_other_code_of_an_approved_skill_waits_even_if_it_requests_nothing_new() {
    let (_home, skills) = store();
    let (add, plain) = (name("add"), name("plain"));
    let approved = draft_with_hosts("1", &["a.example"]);
    save_approved(&skills, &add, approved.clone());
    let replaces = waits(&["to replace approved code"]);
    for other in [draft_with_hosts("2", &["a.example"]), draft("3")] {
        assert_eq!(skills.save(&add, other, &model()).unwrap().state, replaces);
        assert_eq!(skills.get(&add).unwrap().code, "1");
    }
    let edit = [Edit { search: "3".into(), replace: "4".into() }];
    assert_eq!(skills.edit(&add, &edit, &model()).unwrap().state, replaces);
    assert_eq!(skills.get(&add).unwrap().code, "1");
    let listed = skills.info(&add).unwrap().state;
    assert!(
        matches!(&listed, SkillState::Active { waiting: Some(it), .. } if it.more == ["to replace approved code"]),
        "{listed:?}"
    );
    // Control: the approved code itself, and a skill without any approval, are active at once.
    assert_eq!(skills.save(&add, approved, &model()).unwrap().state, VersionState::Active);
    for code in ["1", "2"] {
        let saved = skills.save(&plain, draft(code), &model()).unwrap();
        assert_eq!(saved.state, VersionState::Active);
    }
    // Control: the operator replaces approved code without waiting.
    let saved = skills.save(&add, draft_with_hosts("5", &["a.example"]), &Author::Operator);
    assert_eq!(saved.unwrap().state, VersionState::Active);
    // An approved version that is not active any more waits as well: it can have a known fault.
    let old = skills.save(&add, draft_with_hosts("1", &["a.example"]), &model());
    assert!(matches!(old, Err(SkillError::NotOwner { .. })), "the operator owns the skill now");
}

#[test]
fn f10_skill_of_the_operator_or_of_another_client_cannot_be_changed_or_removed() {
    let (home, skills) = store();
    let (mine, theirs) = (name("mine"), name("theirs"));
    skills.save(&mine, draft_with_hosts("1", &["a.example"]), &Author::Operator).unwrap();
    skills.save(&theirs, draft("1"), &client("alice")).unwrap();
    let edit = [Edit { search: "1".into(), replace: "2".into() }];
    for (skill, owner) in [(&mine, "operator"), (&theirs, "caller alice")] {
        for by in [client("bob"), client(""), client("operator"), client("alice\u{200b}2")] {
            let attempts = [
                skills.save(skill, draft("3"), &by).map(drop),
                skills.save(skill, draft_with_hosts("3", &["a.example"]), &by).map(drop),
                skills.edit(skill, &edit, &by).map(drop),
                skills.remove(skill, &by),
            ];
            for attempt in attempts {
                let error = attempt.unwrap_err();
                assert!(matches!(&error, SkillError::NotOwner { owner: it, .. } if it == owner));
                assert!(error.to_string().contains("under another name"), "{error}");
            }
        }
        assert_eq!(skills.get(skill).unwrap().code, "1");
        assert_eq!(skills.history(skill).unwrap().len(), 1, "nothing waits and nothing was noted");
    }
    // Control: the owner and the operator change and remove the skill. A session is not an owner.
    let later = Author::Caller { client: "alice".into(), session: "2".into() };
    skills.edit(&theirs, &edit, &later).unwrap();
    assert_eq!(skills.get(&theirs).unwrap().code, "2");
    skills.remove(&theirs, &later).unwrap();
    // A removed skill keeps its owner, also for a process that is started later.
    let again = Skills::open(home.path()).unwrap();
    let taken = again.save(&theirs, draft("3"), &client("bob"));
    assert!(matches!(taken, Err(SkillError::NotOwner { .. })));
    again.save(&theirs, draft("3"), &client("alice")).unwrap();
    // After a change by the operator, the skill is the operator's.
    again.save(&theirs, draft("4"), &Author::Operator).unwrap();
    assert!(again.save(&theirs, draft("5"), &client("alice")).is_err());
    again.remove(&theirs, &Author::Operator).unwrap();
    // After `forget` the name is free.
    again.forget(&theirs).unwrap();
    again.save(&theirs, draft("6"), &client("bob")).unwrap();
}

#[test]
fn f10_skill_saved_before_skills_had_owners_belongs_to_the_operator() {
    let (home, skills) = store();
    let add = name("add");
    skills.save(&add, draft("1"), &model()).unwrap();
    let file = home.path().join("skills/add/index");
    let mut index: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert_eq!(index.as_object_mut().unwrap().remove("owner").unwrap(), "mcp");
    skills.save(&add, draft("2"), &model()).unwrap();
    fs::write(&file, index.to_string()).unwrap();
    assert_eq!(skills.get(&add).unwrap().code, "1");
    assert_eq!(skills.info(&add).unwrap().author.as_deref(), Some("caller mcp"));
    assert!(matches!(skills.save(&add, draft("2"), &model()), Err(SkillError::NotOwner { .. })));
    skills.save(&add, draft("2"), &Author::Operator).unwrap();
    let index: serde_json::Value = serde_json::from_slice(&fs::read(&file).unwrap()).unwrap();
    assert!(index.get("owner").is_none(), "an older version can read the file: {index}");
}

#[test]
fn f10_first_skill_version_with_requests_waits_unless_the_operator_saved_it() {
    let (_home, skills) = store();
    let wants = [
        hosts(&["a.example"]),
        Wants { secrets: BTreeSet::from(["github".parse().unwrap()]), ..Wants::default() },
        Wants { paths: BTreeSet::from(["/data".to_owned()]), ..Wants::default() },
    ];
    for (number, wants) in wants.into_iter().enumerate() {
        let skill = name(&format!("s{number}"));
        let wanted = Draft { wants: wants.clone(), ..draft("1") };
        let saved = skills.save(&skill, wanted.clone(), &model()).unwrap();
        assert_eq!(saved.state, VersionState::Waits { more: wants.words() });
        let refused = skills.get(&skill).unwrap_err();
        assert!(matches!(refused, SkillError::Waits { .. }), "{refused}");
        assert!(refused.to_string().contains("belljar skill approve"));
        let saved = skills.save(&skill, wanted, &Author::Operator).unwrap();
        assert_eq!(saved.state, VersionState::Active, "the control");
        skills.get(&skill).unwrap();
    }
}

#[test]
fn f10_removing_and_saving_a_skill_again_grants_nothing() {
    let (_home, skills) = store();
    let add = name("add");
    save_approved(&skills, &add, draft_with_hosts("1", &["a.example"]));
    assert_eq!(skills.get(&add).unwrap().code, "1", "the control");
    skills.remove(&add, &model()).unwrap();
    assert!(matches!(skills.get(&add), Err(SkillError::NotFound { .. })));
    assert!(skills.list().unwrap().is_empty());
    assert!(matches!(skills.remove(&add, &model()), Err(SkillError::NotFound { .. })));
    let wider = skills.save(&add, draft_with_hosts("2", &["b.example"]), &model()).unwrap();
    assert_eq!(wider.state, waits(&["host b.example"]));
    assert!(
        matches!(skills.get(&add), Err(SkillError::Waits { .. })),
        "the old version is removed"
    );
    // The earlier approval does not apply to other code, nor to the removed code.
    for code in ["3", "1"] {
        let again = skills.save(&add, draft_with_hosts(code, &["a.example"]), &model()).unwrap();
        assert_eq!(again.state, waits(&["to replace approved code"]));
    }
    // Forgetting a skill revokes its approvals.
    skills.forget(&add).unwrap();
    let anew = skills.save(&add, draft_with_hosts("3", &["a.example"]), &model()).unwrap();
    assert_eq!(anew.state, waits(&["host a.example"]));
    assert_eq!(skills.history(&add).unwrap().len(), 1);
}

#[test]
fn f10_two_skill_approvals_do_not_approve_both_requests_together() {
    let (_home, skills) = store();
    let add = name("add");
    save_approved(&skills, &add, draft_with_hosts("1", &["a.example"]));
    save_approved(&skills, &add, draft_with_hosts("2", &["b.example"]));
    let both =
        skills.save(&add, draft_with_hosts("3", &["a.example", "b.example"]), &model()).unwrap();
    assert!(matches!(both.state, VersionState::Waits { ref more } if more.len() == 1));
    for (code, host) in [("4", "a.example"), ("5", "b.example")] {
        let one = skills.save(&add, draft_with_hosts(code, &[host]), &model()).unwrap();
        assert_eq!(one.state, waits(&["to replace approved code"]), "the control");
    }
}

#[test]
fn f10_requests_in_the_first_comment_of_a_skill_need_approval() {
    let (_home, skills) = store();
    let add = name("add");
    let code = "/**\n * Adds.\n * @hosts a.example, *.b.example\n * @secrets github\n * @paths /data\n * @author somebody\n */\nexport default 1";
    let saved = skills.save(&add, draft(code), &model()).unwrap();
    let more = ["host a.example", "host *.b.example", "secret github", "path /data"];
    let VersionState::Waits { more: log } = saved.state else { panic!("the version must wait") };
    let sorted = |list: &mut Vec<String>| list.sort();
    let (mut log, mut more) = (log, more.map(str::to_owned).to_vec());
    sorted(&mut log);
    sorted(&mut more);
    assert_eq!(log, more);
    // Control: the same comment elsewhere in the code requests nothing.
    let later = format!("1;\n{code}");
    assert_eq!(skills.save(&add, draft(&later), &model()).unwrap().state, VersionState::Active);
}

#[test]
fn f10_skill_edit_that_adds_a_request_waits_for_approval() {
    let (_home, skills) = store();
    let add = name("add");
    let code = "export default 1";
    skills.save(&add, draft(code), &model()).unwrap();
    let edit = |search: &str, replace: &str| {
        let edit = Edit { search: search.into(), replace: replace.into() };
        skills.edit(&add, &[edit], &model()).unwrap().state
    };
    assert_eq!(edit("export", "/** @hosts b.example */\nexport"), waits(&["host b.example"]));
    // An edit applies to the newest version, even if it waits.
    assert_eq!(edit("default 1", "default 2"), waits(&["host b.example"]));
    assert_eq!(skills.get(&add).unwrap().code, code);
    assert_eq!(edit("/** @hosts b.example */\n", ""), VersionState::Active, "the control");
    assert_eq!(skills.get(&add).unwrap().code, "export default 2");
    assert!(skills.get(&add).unwrap().wants.is_empty());
}

#[test]
fn failed_skill_edit_leaves_the_skill_unchanged() {
    let (_home, skills) = store();
    let add = name("add");
    skills.save(&add, draft("let a = 1; let b = 1;"), &model()).unwrap();
    let version = skills.get(&add).unwrap().version;
    let edit = |pairs: &[(&str, &str)]| {
        let edits: Vec<Edit> = pairs
            .iter()
            .map(|(search, replace)| Edit {
                search: (*search).to_owned(),
                replace: (*replace).to_owned(),
            })
            .collect();
        skills.edit(&add, &edits, &model()).map_err(|error| error.to_string())
    };
    for (pairs, expect) in [
        (
            vec![("a = 1", "a = 2"), ("c = 1", "")],
            "cannot apply edit 2: `search` was not found in the code; nothing was changed",
        ),
        (
            vec![("a = 1", "a = 2"), ("let", "")],
            "cannot apply edit 2: `search` occurs 2 times in the code, not once; nothing was changed",
        ),
        (
            vec![("= 1", "= 2")],
            "cannot apply edit 1: `search` occurs 2 times in the code, not once; nothing was changed",
        ),
        (vec![("", "x")], "cannot apply edit 1: the text `search` is empty"),
        (vec![], "the list of edits of the skill is empty"),
        (vec![("let a = 1; let b = 1;", " ")], "cannot save the skill: it has no code"),
    ] {
        assert_eq!(edit(&pairs).unwrap_err(), expect);
        assert_eq!(skills.get(&add).unwrap().version, version);
    }
    // Overlapping matches count as two.
    let twice = skills.save(&name("o"), draft("aaa"), &model()).and_then(|_| {
        let edit = Edit { search: "aa".into(), replace: "b".into() };
        skills.edit(&name("o"), &[edit], &model())
    });
    assert!(matches!(twice, Err(SkillError::ManyMatches { count: 2, .. })));
    edit(&[("a = 1", "a = 2"), ("a = 2; let b = 1", "c = 3")]).unwrap();
    assert_eq!(
        skills.get(&add).unwrap().code,
        "let c = 3;",
        "each edit applies to the result of the one before"
    );
    assert!(skills.edit(&name("none"), &[], &model()).is_err());
}

#[test]
fn skill_drafts_above_the_limits_are_refused() {
    let (_home, skills) = store();
    let save =
        |draft| skills.save(&name("big"), draft, &model()).map_err(|error| error.to_string());
    let long = "x".repeat(MAX_CODE + 1);
    assert!(save(draft(&long)).unwrap_err().contains("the limit is 1048576"));
    assert!(save(draft(&"é".repeat(MAX_DESCRIPTION + 1))).is_ok(), "the control");
    let wordy = Draft { description: "é".repeat(MAX_DESCRIPTION + 1), ..draft("1") };
    assert!(save(wordy).unwrap_err().contains("2000 characters"));
    assert_eq!(save(draft(" \n")).unwrap_err(), "cannot save the skill: it has no code");
    let many: Vec<String> = (0..65).map(|number| format!("h{number}.example")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    assert!(save(draft_with_hosts("1", &many)).unwrap_err().contains("more than 64"));
    // A search text that almost matches everywhere does not take quadratic time.
    skills.save(&name("big"), draft(&"a".repeat(MAX_CODE)), &model()).unwrap();
    let search = format!("{}b", "a".repeat(MAX_CODE / 2));
    let edit = Edit { search, replace: String::new() };
    assert!(matches!(
        skills.edit(&name("big"), &[edit], &model()),
        Err(SkillError::NoMatch { number: 1 })
    ));
    // Code of maximum length can be read again, even if JSON needs six bytes for each byte.
    skills
        .save(&name("big"), draft(&format!("x{}", "\u{1}".repeat(MAX_CODE - 1))), &model())
        .unwrap();
    assert_eq!(skills.get(&name("big")).unwrap().code.len(), MAX_CODE);
}

#[test]
fn skill_limit_is_enforced_and_removed_skills_make_room() {
    let (home, skills) = store();
    for number in 0..MAX_SKILLS {
        fs::create_dir(home.path().join(format!("skills/s{number}"))).unwrap();
        let index = format!("{{\"active\":\"{}\",\"owner\":\"mcp\"}}", "0".repeat(64));
        fs::write(home.path().join(format!("skills/s{number}/index")), index).unwrap();
    }
    let one_more = |skill: &str| skills.save(&name(skill), draft("1"), &model());
    assert!(matches!(one_more("new"), Err(SkillError::TooMany)));
    assert!(one_more("s5").is_ok(), "an existing skill can still be changed");
    skills.remove(&name("s5"), &model()).unwrap();
    assert!(one_more("new").is_ok(), "the control");
    assert!(!home.path().join("skills/s5").exists());
    // A removed skill with an approval is not deleted to make room.
    save_approved(&skills, &name("s6"), draft_with_hosts("1", &["a.example"]));
    skills.remove(&name("s6"), &model()).unwrap();
    assert!(matches!(one_more("newer"), Err(SkillError::TooMany)));
}

#[test]
fn f15_skill_and_version_names_cannot_be_paths() {
    for bad in ["..", ".", "a/b", "/etc", "a/../b", "index.json", "Add", "a\0b", ""] {
        assert!(bad.parse::<SkillName>().is_err(), "{bad:?}");
    }
    for bad in ["..", "../../etc/passwd", &"A".repeat(64), &"a".repeat(63)] {
        assert!(bad.parse::<Version>().is_err(), "{bad:?}");
    }
    assert!("a".repeat(64).parse::<Version>().is_ok(), "the control");
}

#[test]
fn f10_symbolic_links_in_the_skill_store_are_not_followed() {
    let (home, skills) = store();
    let elsewhere = tempfile::tempdir().unwrap();
    let add = name("add");
    let version = skills.save(&add, draft("1"), &model()).unwrap().version;
    let dir = home.path().join("skills/add");

    // The directory of a skill is a symbolic link.
    fs::rename(&dir, elsewhere.path().join("add")).unwrap();
    symlink(elsewhere.path().join("add"), &dir).unwrap();
    assert!(matches!(skills.get(&add), Err(SkillError::Files(_))));
    assert!(skills.save(&add, draft("2"), &model()).is_err());
    assert!(skills.list().unwrap().is_empty());
    fs::remove_file(&dir).unwrap();
    fs::rename(elsewhere.path().join("add"), &dir).unwrap();
    assert_eq!(skills.get(&add).unwrap().code, "1", "the control");

    // The file of a version is a symbolic link, even to the right content.
    let file = dir.join(version.as_str());
    fs::rename(&file, elsewhere.path().join("version")).unwrap();
    symlink(elsewhere.path().join("version"), &file).unwrap();
    assert!(matches!(skills.get(&add), Err(SkillError::Files(_))));

    // The temporary file is a symbolic link: it is replaced, and its target stays unchanged.
    fs::remove_file(&file).unwrap();
    let target = elsewhere.path().join("target");
    fs::write(&target, "mine").unwrap();
    symlink(&target, dir.join("new")).unwrap();
    skills.save(&add, draft("3"), &model()).unwrap();
    assert_eq!(fs::read_to_string(&target).unwrap(), "mine");

    // The store itself is a symbolic link.
    let other = tempfile::tempdir().unwrap();
    symlink(home.path().join("skills"), other.path().join("skills")).unwrap();
    assert!(Skills::open(other.path()).is_err());
}

#[test]
fn skill_store_that_is_writable_by_others_is_refused() {
    let (home, _skills) = store();
    let dir = home.path().join("skills");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o770)).unwrap();
    assert!(matches!(
        Skills::open(home.path()),
        Err(SkillError::Files(FileError::NotPrivate { .. }))
    ));
}

#[test]
fn damaged_skills_are_reported_and_do_not_hide_other_skills() {
    let (home, skills) = store();
    for skill in ["good", "torn", "changed", "begun"] {
        skills.save(&name(skill), draft("1"), &model()).unwrap();
    }
    let dir = |skill: &str| home.path().join("skills").join(skill);
    fs::write(dir("torn").join("index"), "{\"active\":").unwrap();
    let version = skills.get(&name("changed")).unwrap().version;
    let file = dir("changed").join(version.as_str());
    let content = fs::read_to_string(&file).unwrap().replace("\"1\"", "\"2\"");
    fs::write(&file, content).unwrap();
    // The save of this skill was interrupted before the index was written.
    fs::remove_file(dir("begun").join("index")).unwrap();
    fs::write(dir("begun").join("new"), "half").unwrap();

    let listed = skills.list().unwrap();
    let log: Vec<_> = listed
        .iter()
        .map(|it| (it.name.as_str(), matches!(it.state, SkillState::Damaged(_))))
        .collect();
    assert_eq!(log, [("changed", true), ("good", false), ("torn", true)]);
    assert!(matches!(skills.get(&name("changed")), Err(SkillError::Damaged { .. })));
    assert!(matches!(skills.get(&name("begun")), Err(SkillError::NotFound { .. })));
    // Saving again repairs a changed version. A damaged index can only be forgotten.
    skills.save(&name("changed"), draft("1"), &model()).unwrap();
    assert_eq!(skills.get(&name("changed")).unwrap().code, "1");
    skills.save(&name("begun"), draft("1"), &model()).unwrap();
    assert!(
        skills.save(&name("torn"), draft("1"), &model()).is_err(),
        "a damaged index is not overwritten"
    );
    skills.forget(&name("torn")).unwrap();
    skills.save(&name("torn"), draft("1"), &model()).unwrap();
}

#[test]
fn concurrent_writers_of_a_skill_lose_no_version() {
    const EACH: usize = 8;
    let (home, _skills) = store();
    std::thread::scope(|scope| {
        for writer in 0..6 {
            let home = home.path();
            scope.spawn(move || {
                // Each thread opens its own store, as separate processes would.
                let skills = Skills::open(home).unwrap();
                for number in 0..EACH {
                    let code = format!("{writer} {number}");
                    skills.save(&name("shared"), draft(&code), &model()).unwrap();
                    skills.save(&name(&format!("own{writer}")), draft(&code), &model()).unwrap();
                    skills.get(&name("shared")).unwrap();
                    assert!(
                        skills
                            .list()
                            .unwrap()
                            .iter()
                            .all(|it| { matches!(it.state, SkillState::Active { .. }) })
                    );
                }
            });
        }
    });
    let skills = Skills::open(home.path()).unwrap();
    let versions: BTreeSet<_> =
        skills.history(&name("shared")).unwrap().into_iter().map(|it| it.version).collect();
    assert_eq!(versions.len(), 6 * EACH);
    assert!(versions.iter().all(|version| skills.version(&name("shared"), version).is_ok()));
    assert_eq!(skills.list().unwrap().len(), 7);
}

#[test]
fn g02_author_in_the_history_is_plain_text_and_cannot_pose_as_the_operator() {
    let (_home, skills) = store();
    for (number, who) in
        ["operator", "op\u{200b}erator\u{1b}[2J", "", "\u{202e}x"].iter().enumerate()
    {
        let (by, add) = (client(who), name(&format!("add{number}")));
        skills.save(&add, draft(&number.to_string()), &by).unwrap();
    }
    skills.save(&name("add4"), draft("z"), &Author::Operator).unwrap();
    let author = |info: SkillInfo| skills.history(&info.name).unwrap().remove(0).by;
    let by: Vec<String> = skills.list().unwrap().into_iter().map(author).collect();
    assert_eq!(by, ["caller operator", "caller operator[2J", "caller", "caller x", "operator"]);
}

#[test]
fn requests_of_a_skill_that_are_not_granted_are_listed() {
    let wants = Wants {
        hosts: hosts(&["api.a.example", "*.b.example"]).hosts,
        secrets: BTreeSet::from(["github".parse().unwrap()]),
        paths: BTreeSet::from(["/workspace/x".to_owned(), "/workspaces".to_owned()]),
    };
    let granted = Granted {
        hosts: vec!["*.a.example".parse().unwrap(), "x.b.example".parse().unwrap()],
        paths: vec!["/workspace".to_owned()],
        ..Granted::default()
    };
    assert_eq!(
        wants.not_granted(&granted),
        ["host *.b.example", "secret github", "path /workspaces"]
    );
    let full = Granted { every_host: true, ..granted };
    assert_eq!(wants.not_granted(&full), ["secret github", "path /workspaces"]);
    assert!(Wants::default().not_granted(&Granted::default()).is_empty());
}

#[test]
fn skill_gets_the_services_that_reach_its_requested_hosts() {
    let text = "[api.a]\nhosts = ['api.a.example']\nsecrets = ['github']\n[api.b]\nhosts = ['*.b.example']\n";
    let text = format!("[secret.github]\nhosts = ['api.a.example']\n{text}");
    let file = Path::new("belljar.toml");
    let config = belljar_model::Config::parse(&text, file, belljar_model::Scope::Operator).unwrap();
    let apis = |wanted: &[&str]| {
        let names = hosts(wanted).apis(config.apis());
        names.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(apis(&[]), Vec::<String>::new());
    assert_eq!(apis(&["api.a.example"]), ["a"]);
    assert_eq!(apis(&["x.b.example", "api.a.example", "c.example"]), ["a", "b"]);
    let granted = Granted::of(config.apis().values());
    assert_eq!(hosts(&["x.b.example", "c.example"]).not_granted(&granted), ["host c.example"]);
}

#[test]
fn skills_with_invalid_requests_in_their_comment_are_refused() {
    for (comment, expect) in [
        ("/** @hosts http://x */", "invalid `http://x` in the skill comment `@hosts`: "),
        (
            "/** @hosts *.com */",
            "invalid `*.com` in the skill comment `@hosts`: the wildcard *.com would match",
        ),
        ("/** @secrets A */", "invalid `A` in the skill comment `@secrets`: invalid secret name"),
        ("/** @paths data */", "a path must be absolute"),
        ("/** @paths /a/../b */", "a path must be absolute"),
    ] {
        let log = Wants::of_comment(comment).unwrap_err().to_string();
        assert!(log.starts_with(expect), "{comment}: {log}");
    }
    for plain in ["", "1", "/* @hosts a.example */", "// @hosts a.example", "/** open @hosts a"] {
        assert_eq!(Wants::of_comment(plain), Ok(Wants::default()), "{plain}");
    }
    let shell = "#!/usr/bin/env x\n/** @hosts a.example */";
    assert_eq!(Wants::of_comment(shell), Ok(hosts(&["a.example"])));
}

#[test]
fn skill_change_hook_runs_before_each_change_and_can_prevent_it() {
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::sync::{Arc, Mutex};
    let (home, plain) = store();
    let (log, fail) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicBool::new(false)));
    let (hook_log, hook_fails) = (Arc::clone(&log), Arc::clone(&fail));
    let skills = Skills::open(home.path()).unwrap().with_change_hook(Box::new(move |change| {
        let text = match change {
            SkillChange::Save { skill, state, by } => format!("save {} {state:?} {by}", skill.name),
            SkillChange::Approve { skill } => format!("approve {}", skill.name),
            SkillChange::Refuse { skill } => format!("refuse {}", skill.name),
            SkillChange::Remove { name, is_forgotten } => format!("remove {name} {is_forgotten}"),
        };
        hook_log.lock().unwrap().push(text);
        if hook_fails.load(Ordering::SeqCst) { Err("the disk is full".into()) } else { Ok(()) }
    }));
    let add = name("add");
    skills.save(&add, draft("1"), &model()).unwrap();
    let wide = skills.save(&add, draft_with_hosts("2", &["a.example"]), &model()).unwrap().version;
    fail.store(true, Ordering::SeqCst);
    assert!(matches!(skills.approve(&add, &wide), Err(SkillError::NotRecorded { .. })));
    assert!(skills.save(&add, draft("3"), &model()).is_err());
    assert!(skills.remove(&add, &model()).is_err() && skills.forget(&add).is_err());
    assert_eq!(plain.get(&add).unwrap().code, "1", "nothing was changed");
    fail.store(false, Ordering::SeqCst);
    skills.approve(&add, &wide).unwrap();
    skills.remove(&add, &model()).unwrap();
    skills.forget(&add).unwrap();
    let log = log.lock().unwrap();
    assert_eq!(log[0], "save add Active caller mcp");
    assert_eq!(log[1], "save add Waits { more: [\"host a.example\"] } caller mcp");
    assert_eq!(log[6..], ["approve add", "remove add false", "remove add true"]);
}
