//! Acts on files: read, write, create, rename and change attributes.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{
    DirBuilderExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink,
};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

use rustix::fs::{CWD, FileType, Mode, RenameFlags, XattrFlags, makedev, mknodat, setxattr};

use crate::acts::{Act, Params};
use crate::result::{ActError, ActResult};

pub(crate) const ACTS: &[Act] = &[
    Act { name: "read", takes: "PATH (prints the first 200 bytes, escaped)", run: read },
    Act { name: "write", takes: "PATH TEXT (creates or replaces)", run: write },
    Act { name: "open-to-write", takes: "PATH (changes nothing)", run: open_to_write },
    Act { name: "open", takes: "PATH", run: open },
    Act { name: "stat", takes: "PATH", run: stat },
    Act { name: "list", takes: "PATH", run: list },
    Act { name: "readlink", takes: "PATH", run: readlink },
    Act { name: "mkdir", takes: "PATH", run: mkdir },
    Act { name: "unlink", takes: "PATH", run: unlink },
    Act { name: "rename", takes: "FROM TO", run: rename },
    Act { name: "exchange", takes: "ONE OTHER (atomically)", run: exchange },
    Act { name: "link", takes: "FROM TO", run: link },
    Act { name: "symlink", takes: "TARGET PATH", run: make_symlink },
    Act { name: "chmod", takes: "PATH OCTAL", run: chmod },
    Act { name: "chdir", takes: "PATH (prints the new directory)", run: chdir },
    Act { name: "create", takes: "PATH OCTAL", run: create },
    Act { name: "copy-setuid", takes: "FROM TO (with mode 4755)", run: copy_setuid },
    Act { name: "mknod", takes: "PATH c|b|p MAJOR MINOR", run: mknod },
    Act { name: "bind", takes: "PATH (a Unix socket)", run: bind },
    Act { name: "setxattr", takes: "PATH NAME", run: set_attribute },
    Act { name: "sparse", takes: "PATH BYTES", run: sparse },
    Act { name: "deep", takes: "PATH COUNT (nested directories)", run: deep },
    Act { name: "named", takes: "DIRECTORY HEX (a file with these bytes as its name)", run: named },
    Act {
        name: "writable",
        takes: "(lists directories in which a file can be created)",
        run: writable,
    },
];

fn read(params: &Params<'_>) -> ActResult {
    let mut start = Vec::new();
    File::open(params.text(0)?)?.take(200).read_to_end(&mut start)?;
    Ok(start.escape_ascii().to_string())
}

fn write(params: &Params<'_>) -> ActResult {
    fs::write(params.text(0)?, params.text(1)?)?;
    Ok(String::new())
}

fn open_to_write(params: &Params<'_>) -> ActResult {
    OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(params.text(0)?)?;
    Ok(String::new())
}

fn open(params: &Params<'_>) -> ActResult {
    OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NONBLOCK | libc::O_NOCTTY)
        .open(params.text(0)?)?;
    Ok(String::new())
}

fn stat(params: &Params<'_>) -> ActResult {
    let meta = fs::symlink_metadata(params.text(0)?)?;
    Ok(format!("{} {:o} uid {} size {}", kind(&meta), meta.mode() & 0o7777, meta.uid(), meta.len()))
}

/// Returns the type of a file; for a device also its numbers.
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

fn list(params: &Params<'_>) -> ActResult {
    let mut names = fs::read_dir(params.text(0)?)?
        .map(|entry| Ok(entry?.file_name().as_encoded_bytes().escape_ascii().to_string()))
        .collect::<io::Result<Vec<_>>>()?;
    names.sort();
    Ok(names.join(" "))
}

fn readlink(params: &Params<'_>) -> ActResult {
    Ok(fs::read_link(params.text(0)?)?.as_os_str().as_encoded_bytes().escape_ascii().to_string())
}

fn mkdir(params: &Params<'_>) -> ActResult {
    fs::DirBuilder::new().mode(0o755).create(params.text(0)?)?;
    Ok(String::new())
}

fn unlink(params: &Params<'_>) -> ActResult {
    fs::remove_file(params.text(0)?)?;
    Ok(String::new())
}

fn rename(params: &Params<'_>) -> ActResult {
    fs::rename(params.text(0)?, params.text(1)?)?;
    Ok(String::new())
}

fn exchange(params: &Params<'_>) -> ActResult {
    let (one, other) = (params.text(0)?, params.text(1)?);
    rustix::fs::renameat_with(CWD, one, CWD, other, RenameFlags::EXCHANGE)
        .map_err(io::Error::from)?;
    Ok(String::new())
}

fn link(params: &Params<'_>) -> ActResult {
    fs::hard_link(params.text(0)?, params.text(1)?)?;
    Ok(String::new())
}

fn make_symlink(params: &Params<'_>) -> ActResult {
    symlink(params.text(0)?, params.text(1)?)?;
    Ok(String::new())
}

/// Returns an argument of the operation as a file mode.
fn mode(params: &Params<'_>, index: usize) -> Result<u32, ActError> {
    u32::from_str_radix(params.text(index)?, 8)
        .map_err(|_| ActError::Usage("… a file mode is an octal number".to_owned()))
}

fn chmod(params: &Params<'_>) -> ActResult {
    fs::set_permissions(params.text(0)?, fs::Permissions::from_mode(mode(params, 1)?))?;
    stat(params)
}

fn chdir(params: &Params<'_>) -> ActResult {
    std::env::set_current_dir(params.text(0)?)?;
    Ok(std::env::current_dir()?.display().to_string())
}

fn create(params: &Params<'_>) -> ActResult {
    let path = params.text(0)?;
    OpenOptions::new().write(true).create_new(true).mode(mode(params, 1)?).open(path)?;
    stat(params)
}

fn copy_setuid(params: &Params<'_>) -> ActResult {
    fs::copy(params.text(0)?, params.text(1)?)?;
    fs::set_permissions(params.text(1)?, fs::Permissions::from_mode(0o4755))?;
    Ok(String::new())
}

fn mknod(params: &Params<'_>) -> ActResult {
    let kind = match params.text(1)? {
        "c" => FileType::CharacterDevice,
        "b" => FileType::BlockDevice,
        "p" => FileType::Fifo,
        other => {
            return Err(ActError::Usage(format!(
                "… unknown type of node `{other}`; use c, b or p"
            )));
        }
    };
    let device = makedev(params.number(2)?, params.number(3)?);
    mknodat(CWD, params.text(0)?, kind, Mode::from_raw_mode(0o666), device)?;
    Ok(String::new())
}

fn bind(params: &Params<'_>) -> ActResult {
    UnixListener::bind(params.text(0)?)?;
    Ok(String::new())
}

fn set_attribute(params: &Params<'_>) -> ActResult {
    // `vfs_cap_data` of revision 2 with every capability; other attributes accept any value.
    let value = [0, 0, 0, 2, 0xff, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0xff, 0x01, 0, 0, 0, 0, 0, 0];
    setxattr(params.text(0)?, params.text(1)?, &value, XattrFlags::empty())?;
    Ok(String::new())
}

fn sparse(params: &Params<'_>) -> ActResult {
    let mut file = File::create(params.text(0)?)?;
    file.seek(SeekFrom::Start(params.number::<u64>(1)?.saturating_sub(1)))?;
    file.write_all(b"x")?;
    Ok(file.metadata()?.len().to_string())
}

fn deep(params: &Params<'_>) -> ActResult {
    let count: u32 = params.number(1)?;
    std::env::set_current_dir(params.text(0)?)?;
    for made in 0..count {
        let step = fs::create_dir("d").and_then(|()| std::env::set_current_dir("d"));
        step.map_err(|error| ActError::after(&error, made))?;
    }
    Ok(count.to_string())
}

fn named(params: &Params<'_>) -> ActResult {
    use std::os::unix::ffi::OsStringExt;
    let name = parse_hex(params.text(1)?)?;
    let path = Path::new(params.text(0)?).join(std::ffi::OsString::from_vec(name));
    fs::write(path, "named\n")?;
    Ok(String::new())
}

/// Parses a text of hexadecimal digits into bytes.
pub(crate) fn parse_hex(hex: &str) -> Result<Vec<u8>, ActError> {
    let pairs = hex.as_bytes().chunks(2);
    pairs
        .map(|pair| {
            std::str::from_utf8(pair).ok().and_then(|pair| u8::from_str_radix(pair, 16).ok())
        })
        .collect::<Option<_>>()
        .ok_or_else(|| ActError::Usage("… bytes must be in hexadecimal".to_owned()))
}

/// The depth of the search below the root and below each mount point, in directories.
const DEPTH: u32 = 2;

/// Tries to create a file in the directories below the root and every mount point. Does not list the
/// subdirectories of a writable directory.
fn writable(_: &Params<'_>) -> ActResult {
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
