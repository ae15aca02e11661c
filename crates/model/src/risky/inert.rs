//! Files that no tool of the host executes or obeys only because they are there.
//!
//! A list of risky names never ends. So `direct` mode does not apply everything that the table of risky names
//! does not have, but only what is known to be inert: program text, which is built or run only on purpose,
//! and documents. Settings in JSON, YAML, TOML, XML and similar formats, scripts of shells, compiled code,
//! hidden files and files of unknown kinds are not inert.

use super::{classify, fold_component};

/// The endings of inert files: program text, styles, markup, documents, tables, pictures, sound and fonts.
const ENDINGS: &str = "
    ada adb adoc ads agda asciidoc asm astro avif bib bmp c cc cjs clj cljc cljs cls comp cpp cr cs css csv cts
    cu cuh cxx d dart diff elm erl ex f f03 f08 f90 f95 feature flac fnt for frag fs fsi fsx gif glsl go gql
    graphql groovy h hbs heex hh hlsl hpp hrl hs htm html hxx idl inc inl ipp java jpeg jpg jl js jsx kt leex
    less lhs lisp log lua m markdown md mdx metal mjs ml mli mll mly mm mov move mp3 mp4 mts nim ogg org otf pas
    patch pdf php pl pm png po pot proto pug purs py pyi pyx r rb rkt rs rst s sass scala scm scss sol sql sty sv
    svelte svg svh swift tcl tex text thrift ts tsv tsx ttf txt v vb vert vhd vhdl vtt vue wav webm webp wgsl
    woff woff2 zig";

/// The names of inert files without an ending, and of hidden files that execute nothing.
const NAMES: &str = "
    .editorconfig .gitignore .gitkeep .keep authors changelog changes contributing contributors copying copyright
    credits faq history install licence license maintainers news notice readme thanks todo version";

/// The directories whose content tools write and nobody reviews.
const UNREVIEWED: &str = "
    _build bower_components build cmake-build-debug cmake-build-release coverage deps dist dist-newstyle
    dist-packages elm-stuff generated jspm_packages node_modules obj out pods site-packages target third_party
    vendor venv virtualenv zig-out";

/// Returns whether a file with this path is known to be inert: `direct` mode may apply it without a review.
///
/// Names are compared as [`classify`] compares them.
pub fn is_inert(path: &[u8]) -> bool {
    if classify(path).is_some() {
        return false;
    }
    let mut names: Vec<Vec<u8>> = path.split(|byte| *byte == b'/').map(fold_component).collect();
    let Some(name) = names.pop() else { return false };
    is_inert_name(&name)
        && names.iter().all(|name| !name.starts_with(b".") && !is_in(UNREVIEWED, name))
}

fn is_inert_name(name: &[u8]) -> bool {
    if name.starts_with(b".") || !name.contains(&b'.') {
        return is_in(NAMES, name);
    }
    let ending = name.rsplit(|byte| *byte == b'.').next().unwrap_or_default();
    is_in(ENDINGS, ending)
}

/// Returns whether a list of words has a word.
fn is_in(words: &str, word: &[u8]) -> bool {
    words.split_ascii_whitespace().any(|known| known.as_bytes() == word)
}
