use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

use belljar_ledger::{Draft, Ledger, LedgerPaths, SecretRemoved};
use zeroize::Zeroizing;

use super::*;
use crate::vault::sealed::{UnsealError, unseal};

/// Returns a receipt as proof that a change was recorded.
fn receipt() -> Receipt {
    let home = tempfile::tempdir().unwrap();
    let ledger = Ledger::open(&LedgerPaths::under(home.path())).unwrap();
    ledger.record(Draft::new(SecretRemoved { name: "s".to_owned() })).unwrap()
}

fn name(text: &str) -> SecretName {
    text.parse().unwrap()
}

fn value(text: &str) -> Value {
    Value::new(Zeroizing::new(text.as_bytes().to_vec())).unwrap()
}

fn set(store: &Store, text: &str, content: &str, now: u64) {
    let key = store.key().unwrap();
    store.prepare(&key, &name(text), &value(content), now).unwrap().place(&receipt()).unwrap();
}

fn get(store: &Store, text: &str) -> Vec<u8> {
    let key = store.key().unwrap();
    let file = store.file(&name(text)).unwrap().unwrap();
    unseal(&key, &name(text), &file).unwrap().value.expose().to_vec()
}

fn names(home: &Path) -> Vec<String> {
    let entries = fs::read_dir(home.join("vault")).unwrap();
    let mut names: Vec<String> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn vault_store_sets_lists_replaces_and_removes_secrets() {
    let home = tempfile::tempdir().unwrap();
    assert!(Store::open(home.path()).unwrap().is_none(), "opening creates nothing");
    let store = Store::create(home.path()).unwrap();
    set(&store, "github", "canary-one", 1);
    set(&store, "anthropic", "canary-two", 2);
    set(&store, "github", "canary-three", 3);
    assert_eq!(get(&store, "github"), b"canary-three");
    assert_eq!(get(&store, "anthropic"), b"canary-two");
    let listed = |store: &Store| store.list().unwrap();
    let stored = |text, set_at| Stored { name: name(text), set_at: Some(set_at) };
    assert_eq!(listed(&store), [stored("anthropic", 2), stored("github", 3)]);
    assert!(store.remove(&name("anthropic"), &receipt()).unwrap());
    assert!(!store.remove(&name("anthropic"), &receipt()).unwrap());
    assert_eq!(listed(&store), [stored("github", 3)]);
    assert_eq!(names(home.path()), ["github.sealed", "key"]);
}

#[test]
fn b16_vault_files_are_accessible_to_the_owner_only() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::create(home.path()).unwrap();
    set(&store, "github", "canary-one", 1);
    let mode = |path: &str| fs::metadata(home.path().join(path)).unwrap().mode() & 0o7777;
    assert_eq!(mode("vault"), 0o700);
    assert_eq!(mode("vault/key"), 0o600);
    assert_eq!(mode("vault/github.sealed"), 0o600);
    let open_to_all = fs::Permissions::from_mode(0o755);
    fs::set_permissions(home.path().join("vault"), open_to_all).unwrap();
    assert!(matches!(Store::open(home.path()), Err(StoreError::NotPrivate { .. })));
}

#[test]
fn prepared_secret_that_is_dropped_leaves_the_old_one_in_force() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::create(home.path()).unwrap();
    set(&store, "github", "canary-one", 1);
    let key = store.key().unwrap();
    drop(store.prepare(&key, &name("github"), &value("canary-two"), 2).unwrap());
    assert_eq!(get(&store, "github"), b"canary-one");
    assert_eq!(names(home.path()), ["github.sealed", "key"]);
}

#[test]
fn vault_replaces_the_leftover_file_of_a_killed_writer() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::create(home.path()).unwrap();
    fs::write(home.path().join("vault/github.sealed.new"), b"half").unwrap();
    fs::write(home.path().join("vault/key.new"), b"half").unwrap();
    set(&store, "github", "canary-one", 1);
    assert_eq!(get(&store, "github"), b"canary-one");
    assert_eq!(names(home.path()), ["github.sealed", "key"]);
}

#[test]
fn missing_vault_key_is_not_replaced_while_secrets_exist() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::create(home.path()).unwrap();
    set(&store, "github", "canary-one", 1);
    fs::remove_file(home.path().join("vault/key")).unwrap();
    let refused = store.key().unwrap_err();
    assert!(refused.to_string().contains("github"), "{refused}");
    assert!(store.remove(&name("github"), &receipt()).unwrap());
    set(&store, "github", "canary-two", 2);
    assert_eq!(get(&store, "github"), b"canary-two");
}

#[test]
fn b16_swapped_secret_files_cannot_be_decrypted() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::create(home.path()).unwrap();
    set(&store, "github", "canary-one", 1);
    set(&store, "webhook", "canary-two", 1);
    let at = |name: &str| home.path().join("vault").join(name);
    fs::copy(at("github.sealed"), at("webhook.sealed")).unwrap();
    let file = store.file(&name("webhook")).unwrap().unwrap();
    let refused = unseal(&store.key().unwrap(), &name("webhook"), &file);
    assert!(matches!(refused, Err(UnsealError::Swapped { .. })));
}

#[test]
fn vault_does_not_follow_symbolic_links() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::create(home.path()).unwrap();
    set(&store, "github", "canary-one", 1);
    symlink("github.sealed", home.path().join("vault/other.sealed")).unwrap();
    assert!(store.file(&name("other")).is_err());
    let elsewhere = tempfile::tempdir().unwrap();
    symlink(home.path().join("vault"), elsewhere.path().join("vault")).unwrap();
    assert!(Store::open(elsewhere.path()).is_err());
}

#[test]
fn damaged_secret_file_is_listed_without_a_time() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::create(home.path()).unwrap();
    fs::write(home.path().join("vault/github.sealed"), b"rubbish").unwrap();
    fs::write(home.path().join("vault/NOT A NAME.sealed"), b"rubbish").unwrap();
    assert_eq!(store.list().unwrap(), [Stored { name: name("github"), set_at: None }]);
}

#[test]
fn concurrent_vault_writers_leave_one_key_and_complete_files() {
    let home = tempfile::tempdir().unwrap();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let home = home.path();
            scope.spawn(move || {
                for round in 0..8 {
                    let store = Store::create(home).unwrap();
                    set(&store, "shared", &format!("canary-{thread}-{round}"), 1);
                    set(&store, &format!("own{thread}"), &format!("canary-{thread}-{round}"), 1);
                }
            });
        }
    });
    let store = Store::open(home.path()).unwrap().unwrap();
    assert!(get(&store, "shared").starts_with(b"canary-"));
    for thread in 0..4 {
        let expect = format!("canary-{thread}-7");
        assert_eq!(get(&store, &format!("own{thread}")), expect.as_bytes());
    }
}

#[test]
fn b22_renewed_secret_replaces_only_its_predecessor() {
    let home = tempfile::tempdir().unwrap();
    let store = Store::create(home.path()).unwrap();
    set(&store, "login", "canary-one", 5);
    set(&store, "other", "canary-two", 5);
    let (key, login, other) = (store.key().unwrap(), name("login"), name("other"));
    let sealed = |key: &Key, name: &SecretName, at| {
        sealed::seal(key, name, &value("canary-new"), at).unwrap()
    };
    let next = sealed(&key, &login, 6);
    drop(store.prepare_sealed(&login, &next, 5).unwrap());
    assert_eq!(
        get(&store, "login"),
        b"canary-one",
        "the old value stays until the change is recorded"
    );
    let refused = |name: &SecretName, file: &[u8], replaces| {
        store.prepare_sealed(name, file, replaces).unwrap_err()
    };
    let foreign = sealed(&Key::generate().unwrap(), &login, 6);
    let huge = [next.clone(), vec![0; 70 << 10]].concat();
    for bad in
        [&foreign[..], &huge, b"", b"BJSECRET", &sealed(&key, &login, 5), &sealed(&key, &other, 6)]
    {
        assert!(matches!(refused(&login, bad, 5), StoreError::NoSuccessor { .. }));
    }
    assert!(matches!(refused(&login, &next, 4), StoreError::Overtaken { .. }));
    let gone = sealed(&key, &name("gone"), 6);
    assert!(matches!(refused(&name("gone"), &gone, 5), StoreError::Overtaken { .. }));
    assert_eq!(names(home.path()), ["key", "login.sealed", "other.sealed"]);
    store.prepare_sealed(&login, &next, 5).unwrap().place(&receipt()).unwrap();
    assert_eq!(
        (get(&store, "login"), get(&store, "other")),
        (b"canary-new".into(), b"canary-two".into())
    );
    assert!(matches!(refused(&login, &next, 5), StoreError::Overtaken { .. }));
}
