use std::io::{Seek as _, Write as _};

use proptest::prelude::*;

use super::*;

fn name(text: &str) -> SecretName {
    text.parse().unwrap()
}

fn value(bytes: &[u8]) -> Value {
    Value::new(Zeroizing::new(bytes.to_vec())).unwrap()
}

fn key(byte: u8) -> Key {
    Key::of(Zeroizing::new([byte; KEY])).unwrap()
}

fn sealed(key: &Key) -> Vec<u8> {
    seal(key, &name("github"), &value(b"canary-1234"), 7).unwrap()
}

/// Returns a private file with this content, positioned at the start.
fn file(content: &[u8]) -> File {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(content).unwrap();
    file.rewind().unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o600);
    file.set_permissions(mode).unwrap();
    file
}

#[test]
fn unseal_returns_the_sealed_value_from_a_descriptor() {
    let key = key(1);
    let unsealed = unseal(&key, &name("github"), &file(&sealed(&key))).unwrap();
    assert_eq!(unsealed.value.expose(), b"canary-1234");
    assert_eq!(unsealed.set_at, 7);
}

#[test]
fn b16_encrypted_secret_file_hides_its_value_and_is_unique() {
    let key = key(1);
    let (one, other) = (sealed(&key), sealed(&key));
    assert_ne!(one, other, "each file has its own nonce");
    assert!(!one.windows(6).any(|window| window == b"canary"));
}

#[test]
fn b16_unseal_distinguishes_a_wrong_key_from_a_damaged_file() {
    let mut bytes = sealed(&key(1));
    assert!(matches!(
        open(&key(2), &name("github"), &mut bytes),
        Err(UnsealError::OtherKey { .. })
    ));
}

#[test]
fn b16_encrypted_file_of_another_secret_cannot_be_decrypted() {
    let key = key(1);
    let swapped = open(&key, &name("anthropic"), &mut sealed(&key));
    assert!(matches!(swapped, Err(UnsealError::Swapped { .. })));
    // The same if the name in the file is changed as well.
    let mut renamed = sealed(&key);
    let at = renamed.windows(6).position(|window| window == b"github").unwrap();
    renamed[at..at + 6].copy_from_slice(b"gitlab");
    assert!(matches!(open(&key, &name("gitlab"), &mut renamed), Err(UnsealError::Damaged { .. })));
}

#[test]
fn unseal_refuses_files_with_an_unknown_version_or_format() {
    let mut bytes = sealed(&key(1));
    bytes[8] = 2;
    assert!(matches!(
        open(&key(1), &name("github"), &mut bytes),
        Err(UnsealError::Version { version: 2, .. })
    ));
    for text in [b"".as_slice(), b"BJSECRE", b"-----BEGIN"] {
        let opened = open(&key(1), &name("github"), &mut text.to_vec());
        assert!(matches!(opened, Err(UnsealError::NotSealed { .. })), "{text:?}");
    }
}

#[test]
fn sealed_file_that_other_users_can_read_is_refused() {
    let file = file(&sealed(&key(1)));
    file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o640)).unwrap();
    let refused = unseal(&key(1), &name("github"), &file);
    assert!(matches!(refused, Err(UnsealError::NotPrivate { .. })));
    let key_file = tempfile::tempfile().unwrap();
    key_file.set_permissions(std::os::unix::fs::PermissionsExt::from_mode(0o604)).unwrap();
    assert!(matches!(Key::read(KeySource::File, &key_file), Err(KeyError::NotPrivate(_))));
}

#[test]
fn vault_key_file_without_exactly_32_bytes_is_refused() {
    for length in [0, 31, 33, 4096] {
        let read = Key::read(KeySource::File, &file(&vec![3; length]));
        assert!(matches!(read, Err(KeyError::Length)), "{length}");
    }
    let read = Key::read(KeySource::File, &file(&[3; 32])).unwrap();
    assert_eq!(read.bytes.as_slice(), &[3; 32]);
    assert_eq!(format!("{read:?}"), "Key(..)");
}

#[test]
fn key_command_output_of_sufficient_length_is_accepted_as_vault_key() {
    let read = |text: &[u8]| Key::read(KeySource::Command, &file(text));
    let text = [b'k'; 64];
    let with_end = [text.as_slice(), b"\n"].concat();
    assert_eq!(read(&text).unwrap().bytes, read(&with_end).unwrap().bytes);
    assert_ne!(read(&text).unwrap().bytes, read(&[b'j'; 64]).unwrap().bytes);
    assert!(matches!(read(&[b'k'; 31]), Err(KeyError::TooShort)));
    assert!(matches!(read(b""), Err(KeyError::TooShort)));
    assert!(read(&[b'k'; MAX_COMMAND_KEY]).is_ok());
    assert!(matches!(read(&vec![b'k'; MAX_COMMAND_KEY + 1]), Err(KeyError::TooLong)));
    assert!(matches!(read(&vec![b'k'; MAX_COMMAND_KEY + 99]), Err(KeyError::TooLong)));
    assert_ne!(
        read(&[7; 32]).unwrap().bytes.as_slice(),
        &[7; 32],
        "the key is derived from the text"
    );
}

#[test]
fn b16_encrypted_secret_file_with_a_flipped_bit_cannot_be_decrypted() {
    let key = key(1);
    let whole = sealed(&key);
    for at in 0..whole.len() * 8 {
        let mut changed = whole.clone();
        changed[at / 8] ^= 1 << (at % 8);
        assert!(open(&key, &name("github"), &mut changed).is_err(), "bit {at}");
    }
    for end in 0..whole.len() {
        assert!(open(&key, &name("github"), &mut whole[..end].to_vec()).is_err(), "cut at {end}");
    }
    let mut longer = whole.clone();
    longer.push(0);
    assert!(open(&key, &name("github"), &mut longer).is_err());
    assert!(open(&key, &name("github"), &mut whole.clone()).is_ok(), "the control");
}

proptest! {
    #[test]
    fn unseal_reverses_seal_for_any_value(
        bytes in proptest::collection::vec(0x21_u8..0x7f, 8..4096),
        text in "[a-z0-9][a-z0-9_-]{0,63}",
        at: u64,
        byte: u8,
    ) {
        let mut file = seal(&key(byte), &name(&text), &value(&bytes), at).unwrap();
        let (header, _) = parse(&name(&text), &file).unwrap();
        prop_assert_eq!(header.set_at, at);
        let unsealed = open(&key(byte), &name(&text), &mut file).unwrap();
        prop_assert_eq!(unsealed.value.expose(), bytes.as_slice());
        prop_assert_eq!(unsealed.set_at, at);
    }

    #[test]
    fn unseal_refuses_random_bytes_without_panic(mut bytes: Vec<u8>, tail: Vec<u8>) {
        prop_assert!(open(&key(1), &name("github"), &mut bytes).is_err());
        let mut begun = [MAGIC.as_slice(), &[VERSION], &key(1).id, &tail].concat();
        prop_assert!(open(&key(1), &name("github"), &mut begun).is_err());
    }
}
