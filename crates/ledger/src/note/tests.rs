//! Tests with notes of Go and C2SP, and with malformed notes.

use proptest::prelude::*;

use super::*;

// From golang.org/x/mod/sumdb/note.
const PETER: &str = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
const PETER_SECRET: &str =
    "PRIVATE+KEY+PeterNeumann+c74f20a3+AYEKFALVFGyNhPJEMzD1QIDr+Y7hfZx09iUvxdXHKDFz";
const ENOCH: &str = "EnochRoot+af0cfe78+ATtqJ7zOtqQtYqOo0CpvDXNlMhV3HeJDpjrASKGLWdop";
const TEXT: &str = "If you think cryptography is the answer to your problem,\n\
    then you don't know what your problem is.\n";
const PETER_LINE: &str = "— PeterNeumann x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FF\
    YC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM=\n";
const ENOCH_LINE: &str = "— EnochRoot rwz+eBzmZa0SO3NbfRGzPCpDckykFXSdeX+MNtCOXm2/5n2tiOHp+vAF1aGr\
    Q5ovTG01oOTGwnWLox33WWd1RvMc+QQ=\n";

// From https://c2sp.org/signed-note, the example of a verifier key.
const FOO: &str = "example.com/foo+530d903a+AekyeRrm56hApGFkyQR4ZCbV54Id2LKaANYcrnKv3U2k";
const FOO_NOTE: &str = "This is an example message.\n\n— example.com/foo \
    Uw2QOkn8srV1yJGh2VYRlL1Tnagv1YEq6TfXppzi2ONncAlTgK7Ztg1ERYNZXsYjOBH3mFXmRKuwHjG1Yu72IneyaQM=\n";
// From https://c2sp.org/signed-note, the first example; its key is not published.
const QUASIMODO: &str = "Ognuno sta solo sul cuor della terra\ntrafitto da un raggio di sole:\n\n\
    ed è subito sera.\n\n— quasimodo.example/salvatore \
    NnugSzTjtVAewIS+Z/iJhUPeFDkO/5QQ2i5ddnGITLlC+EhfLW9oJKONrMouFSQU0xMcXxj99ihAQwaqP3ZekRwNtIc=\n";

fn key(text: &str) -> VerifyingKey {
    text.parse().unwrap()
}

fn verified(note: &str, keys: &[VerifyingKey]) -> Result<String, NoteError> {
    Ok(Note::parse(note)?.verified_by(keys)?.name().to_owned())
}

#[test]
fn published_notes_are_verified() {
    let (peter, enoch, foo) = (key(PETER), key(ENOCH), key(FOO));
    assert_eq!(verified(FOO_NOTE, &[peter.clone(), foo]), Ok("example.com/foo".to_owned()));
    let note = Note::parse(&format!("{TEXT}\n{PETER_LINE}{ENOCH_LINE}")).unwrap();
    assert_eq!(note.text(), TEXT);
    let names: Vec<_> = note.signatures().iter().map(|line| (line.name(), line.id())).collect();
    assert_eq!(names, [("PeterNeumann", peter.id()), ("EnochRoot", enoch.id())]);
    let both = [enoch.clone(), peter.clone()];
    assert_eq!(note.verified_by(&both), Ok(&peter));
    assert_eq!(note.verified(&both), Ok(vec![&peter, &enoch]));
    assert_eq!(note.verified_by(std::slice::from_ref(&enoch)), Ok(&enoch));
    assert_eq!(note.verified_by(&[]), Err(NoteError::NoKnownKey));
    assert_eq!(note.verified_by(&[key(FOO)]), Err(NoteError::NoKnownKey));
}

#[test]
fn text_of_a_note_can_have_empty_lines() {
    let note = Note::parse(QUASIMODO).unwrap();
    assert!(note.text().ends_with("sole:\n\ned è subito sera.\n"));
    let line = &note.signatures()[0];
    assert_eq!((line.name(), line.bytes().len()), ("quasimodo.example/salvatore", 64));
    assert_eq!(line.id(), [0x36, 0x7b, 0xa0, 0x4b]);
    for text in ["\n", "\n\n", "a\n\n", "\n\na\n"] {
        let note = format!("{text}\n{PETER_LINE}");
        assert_eq!(Note::parse(&note).unwrap().text(), text);
    }
}

#[test]
fn signature_equals_that_of_go() {
    let secret = SigningKey::from_text(PETER_SECRET).unwrap();
    assert_eq!(secret.sign(TEXT), PETER_LINE);
    assert_eq!(secret.verifying().to_string(), PETER);
    assert_eq!(secret.to_text(), PETER_SECRET);
    assert_eq!(key(PETER).id(), [0xc7, 0x4f, 0x20, 0xa3]);
    assert!(key(PETER).verify_bytes(b"hi", &secret.sign_bytes(b"hi")));
    assert!(!key(PETER).verify_bytes(b"ho", &secret.sign_bytes(b"hi")));
    assert!(!key(ENOCH).verify_bytes(b"hi", &secret.sign_bytes(b"hi")));
}

#[test]
fn debug_output_of_a_key_omits_the_secret() {
    let secret = SigningKey::from_text(PETER_SECRET).unwrap();
    assert_eq!(format!("{secret:?}"), "SigningKey(PeterNeumann+c74f20a3+..)");
    assert_eq!(format!("{:?}", key(PETER)), format!("VerifyingKey({PETER})"));
}

#[test]
fn malformed_keys_are_refused() {
    for text in [PETER, ENOCH, FOO] {
        for (from, to) in (0..=text.len()).flat_map(|to| (0..to).map(move |from| (from, to))) {
            let part = &text[from..to];
            assert_eq!(part.parse::<VerifyingKey>().is_ok(), part == text, "{part}");
        }
    }
    for text in [PETER, PETER_SECRET] {
        for place in 0..text.len() {
            let mut bytes = text.as_bytes().to_vec();
            bytes[place] += 1;
            let mangled = String::from_utf8(bytes).unwrap();
            assert!(mangled.parse::<VerifyingKey>().is_err(), "{mangled}");
            assert!(SigningKey::from_text(&mangled).is_err(), "{mangled}");
        }
    }
    for end in 0..PETER_SECRET.len() {
        assert!(SigningKey::from_text(&PETER_SECRET[..end]).is_err());
        assert!(SigningKey::from_text(&PETER_SECRET[end + 1..]).is_err());
    }
}

#[test]
fn malformed_key_is_refused_with_the_matching_error() {
    let bytes = "ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW";
    // The identity, for which anyone can sign, and a y coordinate without a point.
    let identity = STANDARD.encode([&[1, 1][..], &[0; 31]].concat());
    let no_point = STANDARD.encode([&[1, 2][..], &[0; 31]].concat());
    for (text, error) in [
        (String::new(), KeyError::NotPublic),
        ("PeterNeumann".to_owned(), KeyError::NotPublic),
        (format!("PeterNeumann+c74f20a3+{bytes}="), KeyError::NotPublic),
        (format!("PeterNeumann+c74f20a3+{bytes}\n"), KeyError::NotPublic),
        (format!("PeterNeumann+c74f20a4+{bytes}"), KeyError::Id),
        (format!("PeterNeumann+C74F20A3+{bytes}"), KeyError::Id),
        (format!("PeterNeumann+0c74f20a3+{bytes}"), KeyError::Id),
        (format!("PeterNeumanm+c74f20a3+{bytes}"), KeyError::Id),
        (format!("+c74f20a3+{bytes}"), KeyError::Name),
        (format!("Peter Neumann+c74f20a3+{bytes}"), KeyError::Name),
        (format!("Peter\u{a0}Neumann+c74f20a3+{bytes}"), KeyError::Name),
        (format!("Peter\u{1b}Neumann+c74f20a3+{bytes}"), KeyError::Name),
        // Two keys from Go's tests with a matching id: one too long and not canonical, one of
        // another algorithm.
        (format!("PeterNeumann+cc469956+{bytes}BADKEY=="), KeyError::NotPublic),
        (format!("PeterNeumann+c74f20a3+{bytes}BADKEQ=="), KeyError::Algorithm),
        (format!("PeterNeumann+173116ae+Z{}", &bytes[1..]), KeyError::Algorithm),
        (format!("PeterNeumann+c74f20a3+{identity}"), KeyError::Point),
        (format!("PeterNeumann+c74f20a3+{no_point}"), KeyError::Point),
    ] {
        assert_eq!(text.parse::<VerifyingKey>(), Err(error), "{text}");
    }
    for (text, error) in [
        (PETER, KeyError::NotSecret),
        ("PRIVATE+KEY+x", KeyError::NotSecret),
        (&PETER_SECRET.replace("c74f", "c74e"), KeyError::Id),
        (&PETER_SECRET.replace("+AYE", "+AoE"), KeyError::Algorithm),
    ] {
        assert_eq!(SigningKey::from_text(text).unwrap_err(), error, "{text}");
    }
    for name in ["", "a+b", "a b", "a\n", "a\u{2003}b", "\u{7f}"] {
        assert_eq!(SigningKey::generate(name, [7; 32]).unwrap_err(), KeyError::Name, "{name:?}");
    }
}

#[test]
fn invalid_signature_of_a_known_key_makes_the_note_invalid() {
    let (peter, enoch) = (key(PETER), key(ENOCH));
    let both = [peter.clone(), enoch];
    let bad = |name: &str| Err(NoteError::BadSignature { name: name.to_owned() });
    let other_text = TEXT.replace("answer", "question");
    assert_eq!(verified(&format!("{other_text}\n{PETER_LINE}"), &both), bad("PeterNeumann"));
    // A valid signature does not outweigh an invalid one, in either order.
    let forged = ENOCH_LINE.replace("QQ=", "QA=");
    for lines in [format!("{PETER_LINE}{forged}"), format!("{forged}{PETER_LINE}")] {
        assert_eq!(verified(&format!("{TEXT}\n{lines}"), &both), bad("EnochRoot"));
        let known = verified(&format!("{TEXT}\n{lines}"), std::slice::from_ref(&peter));
        assert_eq!(known, Ok("PeterNeumann".to_owned()));
    }
    let longer = PETER_LINE.replace("UG/Sff", "UG/ABCDSff");
    assert_eq!(verified(&format!("{TEXT}\n{longer}"), &both), bad("PeterNeumann"));
    // A matching name or a matching id alone does not identify the known key.
    let renamed = PETER_LINE.replace("PeterNeumann", "CarmenSandiego");
    let other_id = PETER_LINE.replace("x08g", "xxxx");
    for line in [renamed, other_id] {
        assert_eq!(verified(&format!("{TEXT}\n{line}"), &both), Err(NoteError::NoKnownKey));
    }
}

#[test]
fn duplicate_known_key_counts_once() {
    let keys = [key(ENOCH), key(PETER), key(ENOCH)];
    let note = Note::parse(&format!("{TEXT}\n{ENOCH_LINE}{ENOCH_LINE}")).unwrap();
    assert_eq!(note.verified(&keys), Ok(vec![&keys[0]]));
}

#[test]
fn malformed_notes_are_refused() {
    use NoteError::{Control, Malformed, SignatureLine, TooLong, TooManySignatures};
    let line = |line: &str| format!("{TEXT}\n{line}");
    let many = |count: usize| format!("{TEXT}\n{}", PETER_LINE.repeat(count));
    let long = |length: usize| {
        let rest = length - PETER_LINE.len() - 2;
        format!("{}\n\n{PETER_LINE}", "x".repeat(rest))
    };
    for (note, expect) in [
        (many(1), None),
        (many(100), None),
        (many(101), Some(TooManySignatures)),
        (long(MAX_NOTE), None),
        (long(MAX_NOTE + 1), Some(TooLong)),
        (String::new(), Some(Malformed)),
        (TEXT.to_owned(), Some(Malformed)),
        (format!("{TEXT}\n"), Some(Malformed)),
        (format!("{TEXT}{PETER_LINE}"), Some(Malformed)),
        (PETER_LINE.to_owned(), Some(Malformed)),
        (format!("\n{PETER_LINE}"), Some(Malformed)),
        (line(PETER_LINE.trim_end()), Some(Malformed)),
        (format!("\u{1}{TEXT}\n{PETER_LINE}"), Some(Control)),
        (format!("\u{7f}{TEXT}\n{PETER_LINE}"), Some(Control)),
        (format!("\u{9b}{TEXT}\n{PETER_LINE}"), Some(Control)),
        (format!("\t{TEXT}\n{PETER_LINE}"), Some(Control)),
        (many(1).replace('\n', "\r\n"), Some(Control)),
        (line(&format!("{PETER_LINE}Unexpected line.\n")), Some(SignatureLine)),
        (line(&PETER_LINE.replace('—', "-")), Some(SignatureLine)),
        (line(&PETER_LINE.replace('—', "–")), Some(SignatureLine)),
        (line(&PETER_LINE.replace("— ", "—")), Some(SignatureLine)),
        (line(&PETER_LINE.replace("— ", "—\u{a0}")), Some(SignatureLine)),
        (line(&PETER_LINE.replace("Peter", "")), None),
        (line(&PETER_LINE.replace("PeterNeumann", "")), Some(SignatureLine)),
        (line(&PETER_LINE.replace("Peter", "Peter ")), Some(SignatureLine)),
        (line(&PETER_LINE.replace("Peter", "Peter+")), Some(SignatureLine)),
        (line(&PETER_LINE.replace("Peter", "Peter\u{2003}")), Some(SignatureLine)),
        (line(&PETER_LINE.replace('=', "")), Some(SignatureLine)),
        (line(&PETER_LINE.replace('=', "==")), Some(SignatureLine)),
        (line(&PETER_LINE.replace("AM=", "AN=")), Some(SignatureLine)),
        (line(&PETER_LINE.replace('/', "_")), Some(SignatureLine)),
        (line("— PeterNeumann x08gow==\n"), Some(SignatureLine)),
        (line("— PeterNeumann x08gowA=\n"), None),
        (line("— PeterNeumann x08g\n"), Some(SignatureLine)),
        (line("— PeterNeumann \n"), Some(SignatureLine)),
        (line("— PeterNeumann\n"), Some(SignatureLine)),
    ] {
        assert_eq!(Note::parse(&note).err(), expect, "{}", &note[note.len() / 2..]);
    }
}

proptest! {
    #[test]
    fn key_verifies_its_own_signatures(seed: [u8; 32], name in "[a-z./é]{1,20}", text in "[ -~]{0,40}") {
        let secret = SigningKey::generate(&name, seed).unwrap();
        let public = secret.verifying();
        prop_assert_eq!(public.to_string().parse(), Ok(public.clone()));
        prop_assert_eq!(SigningKey::from_text(&secret.to_text()).unwrap().verifying(), public.clone());
        let text = format!("{text}\n");
        let note = format!("{text}\n{}", secret.sign(&text));
        prop_assert_eq!(verified(&note, &[public]), Ok(name));
    }

    #[test]
    fn changed_character_makes_a_note_invalid_or_changes_its_text(place: prop::sample::Index, to: char) {
        let note = format!("{TEXT}\n{PETER_LINE}");
        let mut chars: Vec<char> = note.chars().collect();
        let place = place.index(chars.len());
        prop_assume!(chars[place] != to);
        chars[place] = to;
        let changed: String = chars.into_iter().collect();
        prop_assert!(verified(&changed, &[key(PETER)]).is_err());
    }

    #[test]
    fn note_parser_never_panics(text in "(.|\n|— |\n\n){0,60}") {
        if let Ok(note) = Note::parse(&text) {
            prop_assert!(text.starts_with(note.text()));
        }
        prop_assert!(text.parse::<VerifyingKey>().is_err());
        let secret = format!("PRIVATE+KEY+{text}");
        prop_assert!(SigningKey::from_text(&secret).is_err());
    }
}
