//! Acts on paths: what can be read, written, made and named.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{
    DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink,
};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, XattrFlags, makedev, mknodat, setxattr};

use crate::acts::{Act, Words};
use crate::answer::{Answer, Stop};

pub(crate) const ACTS: &[Act] = &[
    Act { name: "read", takes: "PATH (tells the first 200 bytes, escaped)", run: read },
    Act { name: "write", takes: "PATH TEXT (makes or replaces)", run: write },
    Act { name: "open-to-write", takes: "PATH (changes nothing)", run: open_to_write },
    Act { name: "open", takes: "PATH", run: open },
    Act { name: "stat", takes: "PATH", run: stat },
    Act { name: "list", takes: "PATH", run: list },
    Act { name: "readlink", takes: "PATH", run: readlink },
    Act { name: "mkdir", takes: "PATH", run: mkdir },
    Act { name: "unlink", takes: "PATH", run: unlink },
    Act { name: "rename", takes: "FROM TO", run: rename },
    Act { name: "exchange", takes: "ONE OTHER (at once)", run: exchange },
    Act { name: "link", takes: "FROM TO", run: link },
    Act { name: "symlink", takes: "TARGET PATH", run: make_symlink },
    Act { name: "chmod", takes: "PATH OCTAL", run: chmod },
    Act { name: "chdir", takes: "PATH (and tells where it is)", run: chdir },
    Act { name: "create", takes: "PATH OCTAL", run: create },
    Act { name: "copy-setuid", takes: "FROM TO (with mode 4755)", run: copy_setuid },
    Act { name: "mknod", takes: "PATH c|b|p MAJOR MINOR", run: mknod },
    Act { name: "bind", takes: "PATH (a Unix socket)", run: bind },
    Act { name: "setxattr", takes: "PATH NAME", run: set_attribute },
    Act { name: "sparse", takes: "PATH BYTES", run: sparse },
    Act { name: "deep", takes: "PATH COUNT (directories in each other)", run: deep },
    Act { name: "named", takes: "PATH HEX (a file whose name is these bytes)", run: named },
    Act { name: "writable", takes: "(directories in which a file can be made)", run: writable },
];

fn read(words: &Words<'_>) -> Answer {
    let mut start = Vec::new();
    File::open(words.text(0)?)?.take(200).read_to_end(&mut start)?;
    Ok(start.escape_ascii().to_string())
}

fn write(words: &Words<'_>) -> Answer {
    fs::write(words.text(0)?, words.text(1)?)?;
    Ok(String::new())
}

fn open_to_write(words: &Words<'_>) -> Answer {
    OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(words.text(0)?)?;
    Ok(String::new())
}

fn open(words: &Words<'_>) -> Answer {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(words.text(0)?)?;
    Ok(String::new())
}

fn stat(words: &Words<'_>) -> Answer {
    let meta = fs::symlink_metadata(words.text(0)?)?;
    Ok(format!("{} {:o} uid {} size {}", kind(&meta), meta.mode() & 0o7777, meta.uid(), meta.len()))
}

/// What a file is; for a device also which one.
fn kind(meta: &fs::Metadata) -> String {
    let kind = meta.file_type();
    let numbers =
        || format!("{}:{}", rustix::fs::major(meta.rdev()), rustix::fs::minor(meta.rdev()));
    match () {
        () if kind.is_file() => "file".to_owned(),
        () if kind.is_dir() => "directory".to_owned(),
        () if kind.is_symlink() => "symlink".to_owned(),
        () if kind.is_char_device() => format!("character {}", numbers()),
        () if kind.is_block_device() => format!("block {}", numbers()),
        () if kind.is_fifo() => "fifo".to_owned(),
        () => "socket".to_owned(),
    }
}

fn list(words: &Words<'_>) -> Answer {
    let mut names = fs::read_dir(words.text(0)?)?
        .map(|entry| Ok(entry?.file_name().as_encoded_bytes().escape_ascii().to_string()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names.join(" "))
}

fn readlink(words: &Words<'_>) -> Answer {
    Ok(fs::read_link(words.text(0)?)?.as_os_str().as_encoded_bytes().escape_ascii().to_string())
}

fn mkdir(words: &Words<'_>) -> Answer {
    fs::DirBuilder::new().mode(0o755).create(words.text(0)?)?;
    Ok(String::new())
}

fn unlink(words: &Words<'_>) -> Answer {
    fs::remove_file(words.text(0)?)?;
    Ok(String::new())
}

fn rename(words: &Words<'_>) -> Answer {
    fs::rename(words.text(0)?, words.text(1)?)?;
    Ok(String::new())
}

fn exchange(words: &Words<'_>) -> Answer {
    let (one, other) = (words.text(0)?, words.text(1)?);
    rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)
        .map_err(io::Error::from)?;
    Ok(String::new())
}

fn link(words: &Words<'_>) -> Answer {
    fs::hard_link(words.text(0)?, words.text(1)?)?;
    Ok(String::new())
}

fn make_symlink(words: &Words<'_>) -> Answer {
    symlink(words.text(0)?, words.text(1)?)?;
    Ok(String::new())
}

fn mode(words: &Words<'_>, place: usize) -> Result<u32, Stop> {
    u32::from_str_radix(words.text(place)?, 8)
        .map_err(|_| Stop::Usage("… a mode is octal".to_owned()))
}

fn chmod(words: &Words<'_>) -> Answer {
    fs::set_permissions(words.text(0)?, fs::Permissions::from_mode(mode(words, 1)?))?;
    stat(words)
}

fn chdir(words: &Words<'_>) -> Answer {
    std::env::set_current_dir(words.text(0)?)?;
    Ok(std::env::current_dir()?.display().to_string())
}

fn create(words: &Words<'_>) -> Answer {
    let path = words.text(0)?;
    OpenOptions::new().write(true).create_new(true).mode(mode(words, 1)?).open(path)?;
    stat(words)
}

fn copy_setuid(words: &Words<'_>) -> Answer {
    fs::copy(words.text(0)?, words.text(1)?)?;
    fs::set_permissions(words.text(1)?, fs::Permissions::from_mode(0o4755))?;
    Ok(String::new())
}

fn mknod(words: &Words<'_>) -> Answer {
    let kind = match words.text(1)? {
        "c" => FileType::CharacterDevice,
        "b" => FileType::BlockDevice,
        "p" => FileType::Fifo,
        other => return Err(Stop::Usage(format!("… `{other}` is no kind of node"))),
    };
    let device = makedev(words.number(2)?, words.number(3)?);
    mknodat(CWD, words.text(0)?, kind, Mode::from_raw_mode(0o666), device)?;
    Ok(String::new())
}

fn bind(words: &Words<'_>) -> Answer {
    UnixListener::bind(words.text(0)?)?;
    Ok(String::new())
}

fn set_attribute(words: &Words<'_>) -> Answer {
    // `vfs_cap_data` of revision 2 with every capability, which is also fine as a value of anything else.
    let value = [0, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0x01, 0, 0, 0, 0, 0, 0];
    setxattr(words.text(0)?, words.text(1)?, &value, XattrFlags::empty())?;
    Ok(String::new())
}

fn sparse(words: &Words<'_>) -> Answer {
    let mut file = File::create(words.text(0)?)?;
    file.seek(SeekFrom::Start(words.number::<u64>(1)?.saturating_sub(1)))?;
    file.write_all(b"x")?;
    Ok(file.metadata()?.len().to_string())
}

fn deep(words: &Words<'_>) -> Answer {
    let count: u32 = words.number(1)?;
    std::env::set_current_dir(words.text(0)?)?;
    for made in 0..count {
        let step = fs::create_dir("d").and_then(|()| std::env::set_current_dir("d"));
        step.map_err(|error| Stop::after(&error, made))?;
    }
    Ok(count.to_string())
}

fn named(words: &Words<'_>) -> Answer {
    use std::os::unix::ffi::OsStringExt;
    let name = bytes_of_hex(words.text(1)?)?;
    let path = Path::new(words.text(0)?).join(std::ffi::OsString::from_vec(name));
    fs::write(path, "named\n")?;
    Ok(String::new())
}

pub(crate) fn bytes_of_hex(hex: &str) -> Result<Vec<u8>, Stop> {
    let pairs = hex.as_bytes().chunks(2);
    pairs
        .map(|pair| {
            std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok())
        })
        .collect::<Option<_>>()
        .ok_or_else(|| Stop::Usage("… bytes are given in hexadecimal".to_owned()))
}

/// How deep below the root and below each mount a directory is tried.
const DEPTH: u32 = 2;

/// Tries to make a file in the directories near the root and near every mount point. One beneath a
/// writable one is not told again.
fn writable(_: &Words<'_>) -> Answer {
    let mounts = fs::read_to_string("/proc/self/mountinfo")?;
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
    let mut waiting: Vec<(PathBuf, u32)> = points.map(|point| (point, DEPTH)).collect();
    waiting.push((PathBuf::from("/"), DEPTH));
    let mut found = BTreeSet::new();
    while let Some((directory, depth)) = waiting.pop() {
        let trial = directory.join(".belljar-probe");
        if OpenOptions::new().write(true).create_new(true).open(&trial).is_ok() {
            fs::remove_file(&trial)?;
            found.insert(directory.display().to_string());
            continue;
        }
        let Ok(entries) = fs::read_dir(&directory) else { continue };
        let below = entries.flatten().filter(|entry| {
            let is_directory = entry.file_type().is_ok_and(|kind| kind.is_dir());
            depth > 0 && is_directory && !entry.path().starts_with("/proc")
        });
        waiting.extend(below.map(|entry| (entry.path(), depth - 1)));
    }
    Ok(found.into_iter().collect::<Vec<_>>().join(" "))
}
