//! Glob patterns for names and paths: risky files, file permissions, workspace choices and programs.
//!
//! A pattern and its text are slices of bytes or of characters; `?` stands for one element.
//! Patterns of hosts and URLs are in [`crate::net`], because their syntax differs.

/// An element of a glob pattern and of the matched text: a byte or a character.
pub trait Unit: Copy + PartialEq + From<u8> {}

impl Unit for u8 {}
impl Unit for char {}

/// Returns whether a pattern matches a whole name: `*` stands for any number of elements and `?`
/// for one.
///
/// A slash is an element like any other. The time is linear in the product of the two lengths.
pub fn matches_name<T: Unit>(pattern: &[T], name: &[T]) -> bool {
    matches_by(pattern, name, plain_width)
}

/// Matches as [`matches_name`] does, and also supports character classes: `[a-c]`, `[!a-c]`, `[^a-c]`.
/// A class without `]` matches nothing.
pub fn matches_name_with_classes(pattern: &[char], name: &[char]) -> bool {
    matches_by(pattern, name, |rest, letter| match rest {
        ['[', ..] => class_width(rest, letter),
        _ => plain_width(rest, letter),
    })
}

/// A function that returns how many pattern elements match one element of a name, or `None` without
/// a match.
type Width<T> = fn(rest: &[T], unit: T) -> Option<usize>;

fn matches_by<T: Unit>(pattern: &[T], name: &[T], width: Width<T>) -> bool {
    let (mut p, mut n) = (0, 0);
    // The last star and the end of its match. Only the last star ever has to match more elements.
    let mut star: Option<(usize, usize)> = None;
    while let Some(&unit) = name.get(n) {
        let rest = pattern.get(p..).unwrap_or_default();
        if rest.first() == Some(&T::from(b'*')) {
            star = Some((p, n));
            p += 1;
        } else if let Some(width) = width(rest, unit) {
            (p, n) = (p + width, n + 1);
        } else {
            let Some((at, end)) = star else { return false };
            star = Some((at, end + 1));
            (p, n) = (at + 1, end + 1);
        }
    }
    pattern.iter().skip(p).all(|&rest| rest == T::from(b'*'))
}

fn plain_width<T: Unit>(rest: &[T], unit: T) -> Option<usize> {
    let wanted = *rest.first()?;
    (wanted == T::from(b'?') || wanted == unit).then_some(1)
}

/// Returns the length of a character class like `[a-c]` that contains the letter, or `None`. A `]`
/// directly after `[` is a member.
fn class_width(rest: &[char], letter: char) -> Option<usize> {
    let end = rest.iter().skip(2).position(|&c| c == ']')? + 2;
    let inner = rest.get(1..end)?;
    let (is_negated, mut inner) = match inner {
        ['!' | '^', inner @ ..] => (true, inner),
        inner => (false, inner),
    };
    let mut is_in = false;
    while let [low, after @ ..] = inner {
        let (high, after) = match after {
            ['-', high, after @ ..] => (high, after),
            after => (low, after),
        };
        is_in |= (low..=high).contains(&&letter);
        inner = after;
    }
    (is_in != is_negated).then_some(end + 1)
}

/// Returns whether a pattern matches a whole path: `*` and `?` do not match a slash, `**` does.
///
/// `**/` at the start of a name also matches nothing.
///
/// The time is linear in the product of the two lengths.
pub fn matches_path<T: Unit>(pattern: &[T], path: &[T]) -> bool {
    Search::new(pattern).matches(path, |_| false)
}

/// Returns whether a pattern matches a path or a parent directory of it, by the rules of
/// [`matches_path`].
pub fn matches_path_or_parent<T: Unit>(pattern: &[T], path: &[T]) -> bool {
    Search::new(pattern).matches(path, |unit| unit == T::from(b'/'))
}

/// The pattern positions that are reachable with the text read so far.
struct Search<'a, T> {
    pattern: &'a [T],
    reached: Vec<bool>,
}

/// The meaning of one position of a glob pattern.
enum Token<T> {
    /// `**`
    Deep,
    /// `*`
    Star,
    /// `?`
    Any,
    Literal(T),
}

impl<'a, T: Unit> Search<'a, T> {
    fn new(pattern: &'a [T]) -> Self {
        Self { pattern, reached: vec![false; pattern.len() + 1] }
    }

    /// Returns whether the pattern matches the path, or the part of it before an element that
    /// `may_end` accepts.
    fn matches(mut self, path: &[T], may_end: impl Fn(T) -> bool) -> bool {
        let mut next = self.reached.clone();
        reach(&mut self.reached, 0);
        self.skip_empty(true);
        for &unit in path {
            if may_end(unit) && self.is_at_end() {
                return true;
            }
            next.fill(false);
            self.step(unit, &mut next);
            std::mem::swap(&mut self.reached, &mut next);
            self.skip_empty(unit == T::from(b'/'));
        }
        self.is_at_end()
    }

    /// Marks in `next` the pattern positions that are reachable with one more element of the text.
    fn step(&self, unit: T, next: &mut [bool]) {
        let is_slash = unit == T::from(b'/');
        for (at, token) in self.reached_tokens() {
            match token {
                Token::Deep => reach(next, at),
                Token::Star if !is_slash => reach(next, at),
                Token::Any if !is_slash => reach(next, at + 1),
                Token::Literal(wanted) if wanted == unit => reach(next, at + 1),
                Token::Star | Token::Any | Token::Literal(_) => {}
            }
        }
    }

    /// Marks the positions after stars as reachable, because a star can match nothing. Stars only
    /// lead forward, so one pass is enough.
    fn skip_empty(&mut self, starts_name: bool) {
        for at in 0..self.pattern.len() {
            if !self.is_reached(at) {
                continue;
            }
            match self.token(at) {
                Some(Token::Deep) => {
                    reach(&mut self.reached, at + 2);
                    if starts_name && self.pattern.get(at + 2) == Some(&T::from(b'/')) {
                        reach(&mut self.reached, at + 3);
                    }
                }
                Some(Token::Star) => reach(&mut self.reached, at + 1),
                Some(Token::Any | Token::Literal(_)) | None => {}
            }
        }
    }

    /// Returns the reachable pattern positions with their tokens.
    fn reached_tokens(&self) -> impl Iterator<Item = (usize, Token<T>)> {
        let reached = (0..self.pattern.len()).filter(|&at| self.is_reached(at));
        reached.filter_map(|at| Some((at, self.token(at)?)))
    }

    fn token(&self, at: usize) -> Option<Token<T>> {
        let (star, any) = (T::from(b'*'), T::from(b'?'));
        Some(match *self.pattern.get(at)? {
            unit if unit == star && self.pattern.get(at + 1) == Some(&star) => Token::Deep,
            unit if unit == star => Token::Star,
            unit if unit == any => Token::Any,
            unit => Token::Literal(unit),
        })
    }

    fn is_reached(&self, at: usize) -> bool {
        self.reached.get(at).copied().unwrap_or_default()
    }

    fn is_at_end(&self) -> bool {
        self.reached.last().copied().unwrap_or_default()
    }
}

fn reach(reached: &mut [bool], at: usize) {
    if let Some(position) = reached.get_mut(at) {
        *position = true;
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn glob_star_matches_any_characters_of_a_name() {
        for (pattern, name, expected) in [
            ("a", "a", true),
            ("a", "ab", false),
            ("*.mk", "x.mk", true),
            ("*.mk", ".mk", true),
            ("*.mk", "x.mk.txt", false),
            ("docker-compose*.yml", "docker-compose.yml", true),
            ("docker-compose*.yml", "docker-compose.dev.yml", true),
            ("docker-compose*.yml", "docker-compose.yaml", false),
            ("a*a", "a", false),
            ("a*b*c", "aXbYbZc", true),
            ("a*b*c", "acb", false),
            ("*", "", true),
            ("a**b", "ab", true),
            ("*", "a/b", true),
            ("?", "/", true),
            ("?", "", false),
        ] {
            let matched = matches_name(pattern.as_bytes(), name.as_bytes());
            assert_eq!(matched, expected, "{pattern} {name}");
        }
    }

    #[test]
    fn glob_class_matches_one_of_its_characters() {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        for (pattern, name, expected) in [
            ("[a-c]?[!x]", "bzy", true),
            ("[a-c]", "d", false),
            ("[^a-cx]", "x", false),
            ("*[0-9].txt", "a1b2.txt", true),
            ("*[0-9].txt", "a1b.txt", false),
            ("[]a]", "]", true),
            ("[a-]", "-", true),
            ("[é-ü]", "ö", true),
            ("[*]", "*", true),
            ("[*]", "a", false),
            ("[a", "[a", false),
        ] {
            let matched = matches_name_with_classes(&chars(pattern), &chars(name));
            assert_eq!(matched, expected, "{pattern} {name}");
        }
        assert!(matches_name(b"[a]", b"[a]"));
    }

    #[test]
    fn glob_question_mark_matches_one_byte_or_one_character() {
        let chars = |text: &str| text.chars().collect::<Vec<_>>();
        assert!(matches_name(&chars("?"), &chars("é")));
        assert!(!matches_name(b"?", "é".as_bytes()));
        assert!(matches_name(b"??", "é".as_bytes()));
        assert!(matches_path(b"a/?", b"a/\xff"));
    }

    #[test]
    fn glob_double_star_matches_across_directories() {
        for (pattern, path, expected) in [
            ("a/*", "a/b", true),
            ("a/*", "a/b/c", false),
            ("a/?", "a/", false),
            ("a?b", "a/b", false),
            ("a**b", "a/x/b", true),
            ("src/**.rs", "src/a/b.rs", true),
            ("**/x", "x", true),
            ("**/x", "a/b/x", true),
            ("**/x", "ax", false),
            ("a/**/z", "a/z", true),
            ("a/**/z", "a/zz", false),
            ("a/**", "a", false),
            ("***", "a/b", true),
            ("**", "", true),
            ("", "", true),
            ("", "a", false),
        ] {
            let matched = matches_path(pattern.as_bytes(), path.as_bytes());
            assert_eq!(matched, expected, "{pattern} {path}");
        }
    }

    #[test]
    fn glob_match_of_a_parent_directory_ends_only_at_a_slash() {
        for (pattern, path, expected) in [
            ("a/*", "a/b/c", true),
            ("a", "a/b", true),
            ("a", "ab", false),
            ("**/b", "a/b/c", true),
            ("a/**/z", "a/b/z/more", true),
            ("b", "a/b", false),
        ] {
            let matched = matches_path_or_parent(pattern.as_bytes(), path.as_bytes());
            assert_eq!(matched, expected, "{pattern} {path}");
        }
    }

    #[test]
    fn glob_pattern_with_many_stars_matches_in_bounded_time() {
        let pattern = b"*a".repeat(100);
        let deep = b"**/*a".repeat(50);
        let text = b"a/".repeat(1000);
        assert!(!matches_name(&pattern, &b"b".repeat(2000)));
        assert!(!matches_path(&pattern, &text));
        assert!(!matches_path_or_parent(&[&deep[..], b"b"].concat(), &text));
    }

    /// Matches as [`matches_name`] does, directly by its definition and in exponential time.
    fn name_by_definition(pattern: &[u8], name: &[u8]) -> bool {
        match (pattern, name) {
            ([], name) => name.is_empty(),
            ([b'*', rest @ ..], name) => {
                (0..=name.len()).any(|at| name_by_definition(rest, &name[at..]))
            }
            ([b'?', rest @ ..], [_, name @ ..]) => name_by_definition(rest, name),
            ([first, rest @ ..], [byte, name @ ..]) => {
                first == byte && name_by_definition(rest, name)
            }
            (_, []) => false,
        }
    }

    /// Matches as [`matches_path`] does, directly by its definition and in exponential time.
    fn path_by_definition(pattern: &[u8], path: &[u8], at: usize) -> bool {
        let starts_name = at == 0 || path[at - 1] == b'/';
        match (pattern, path.get(at)) {
            ([], here) => here.is_none(),
            ([b'*', b'*', b'/', rest @ ..], _)
                if starts_name && path_by_definition(rest, path, at) =>
            {
                true
            }
            ([b'*', b'*', rest @ ..], here) => {
                path_by_definition(rest, path, at)
                    || here.is_some() && path_by_definition(pattern, path, at + 1)
            }
            ([b'*', rest @ ..], here) => {
                path_by_definition(rest, path, at)
                    || here.is_some_and(|&byte| byte != b'/')
                        && path_by_definition(pattern, path, at + 1)
            }
            ([b'?', rest @ ..], Some(&byte)) => {
                byte != b'/' && path_by_definition(rest, path, at + 1)
            }
            ([first, rest @ ..], Some(byte)) => {
                first == byte && path_by_definition(rest, path, at + 1)
            }
            (_, None) => false,
        }
    }

    proptest! {
        #[test]
        fn matches_name_agrees_with_its_definition(pattern in "[ab*?]{0,6}", name in "[ab/]{0,8}") {
            let (pattern, name) = (pattern.as_bytes(), name.as_bytes());
            prop_assert_eq!(matches_name(pattern, name), name_by_definition(pattern, name));
        }

        #[test]
        fn matches_path_agrees_with_its_definition(
            pattern in "(a|b|[*]|[*][*]|[*][*]/|[?]|a/|b/|/){0,6}",
            path in "(a|b|a/|b/|/){0,8}",
        ) {
            let (pattern, path) = (pattern.as_bytes(), path.as_bytes());
            prop_assert_eq!(matches_path(pattern, path), path_by_definition(pattern, path, 0));
        }

        #[test]
        fn glob_match_of_path_or_parent_equals_a_match_of_the_path_or_one_parent(
            pattern in "(a|b|[*]|[*][*]|[*][*]/|[?]|a/|b/){0,6}",
            path in "(a|b|a/|b/){0,8}",
        ) {
            let (pattern, path) = (pattern.as_bytes(), path.as_bytes());
            let slashes = (0..path.len()).filter(|at| path[*at] == b'/');
            let expected =
                slashes.chain([path.len()]).any(|end| matches_path(pattern, &path[..end]));
            prop_assert_eq!(matches_path_or_parent(pattern, path), expected);
        }
    }
}
