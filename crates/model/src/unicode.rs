//! Small tables of Unicode properties.

use std::ops::RangeInclusive;

/// The invisible characters: `Default_Ignorable_Code_Point` of Unicode 17
/// (DerivedCoreProperties.txt).
///
/// A case-insensitive ext4 or f2fs directory ignores them when it compares names.
const IGNORABLE: &[RangeInclusive<char>] = &[
    '\u{ad}'..='\u{ad}',
    '\u{34f}'..='\u{34f}',
    '\u{61c}'..='\u{61c}',
    '\u{115f}'..='\u{1160}',
    '\u{17b4}'..='\u{17b5}',
    '\u{180b}'..='\u{180f}',
    '\u{200b}'..='\u{200f}',
    '\u{202a}'..='\u{202e}',
    '\u{2060}'..='\u{206f}',
    '\u{3164}'..='\u{3164}',
    '\u{fe00}'..='\u{fe0f}',
    '\u{feff}'..='\u{feff}',
    '\u{ffa0}'..='\u{ffa0}',
    '\u{fff0}'..='\u{fff8}',
    '\u{1bca0}'..='\u{1bca3}',
    '\u{1d173}'..='\u{1d17a}',
    '\u{e0000}'..='\u{e0fff}',
];

/// The blank braille pattern, which is drawn as a space but counts as a symbol.
const BRAILLE_BLANK: char = '\u{2800}';

/// Returns whether a character is invisible and ignored in comparisons.
pub(crate) fn is_ignorable(c: char) -> bool {
    !c.is_ascii() && IGNORABLE.iter().any(|range| range.contains(&c))
}

/// Returns whether a character is visible, unambiguous and without effect on a terminal.
pub(crate) fn is_visible(c: char) -> bool {
    match c {
        ' '..='~' => true,
        '\0'..='\u{7f}' => false,
        c => c != BRAILLE_BLANK && !is_ignorable(c) && is_graphic(c),
    }
}

/// Returns whether a character is in none of the categories Cc, Cf, Cs, Co, Cn, Zl, Zp and Zs.
///
/// Uses the table behind `escape_debug`, after a letter, because at the start of a text `escape_debug`
/// also escapes combining marks.
fn is_graphic(c: char) -> bool {
    if c.escape_debug().len() == 1 {
        return true;
    }
    let mut buffer = [0; 4];
    let mut text = String::with_capacity(5);
    text.push('a');
    text.push_str(c.encode_utf8(&mut buffer));
    text.escape_debug().nth(1) == Some(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ignorable_characters_are_not_visible() {
        for c in [
            '\u{a0}',
            '\u{2800}',
            '\u{3000}',
            '\u{3164}',
            '\u{fe0f}',
            '\u{e0100}',
            '\u{e0041}',
            '\u{ad}',
        ] {
            assert!(!is_visible(c), "U+{:04X}", u32::from(c));
        }
        for c in ['a', ' ', 'é', '\u{301}', 'ß', '日', '한', 'ع', 'ि', '😀', '─', '█']
        {
            assert!(is_visible(c), "U+{:04X}", u32::from(c));
        }
    }
}
