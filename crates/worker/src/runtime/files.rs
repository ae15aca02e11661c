//! Native file functions for programs. The box decides which files are accessible.

#![expect(clippy::needless_pass_by_value, reason = "rquickjs passes arguments by value")]

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use rquickjs::function::{Func, Opt};
use rquickjs::{Ctx, Exception, FromJs, Function, Object, Result, Value};

use super::glob;
use super::web::Binary;

/// The maximum size of a file that a program can read in one call.
const LARGEST: u64 = 256 << 20;

pub(super) fn natives<'js>(ctx: &Ctx<'js>, natives: &Object<'js>) -> Result<()> {
    macro_rules! define {
        ($($name:literal => $function:expr,)*) => {
            $(natives.set($name, Function::new(ctx.clone(), $function)?)?;)*
        };
    }
    define! {
        "readFile" => read_file,
        "readText" => read_text,
        "writeFile" => write_file,
        "readDir" => read_dir,
        "stat" => stat,
        "mkdir" => make_dir,
        "remove" => remove,
        "removeDir" => remove_dir,
        "unlink" => |ctx: Ctx<'js>, path: String| or_throw(&ctx, fs::remove_file(&path), "unlink", &path),
        "rename" => |ctx: Ctx<'js>, from: String, to: String| or_throw(&ctx, fs::rename(&from, to), "rename", &from),
        "copy" => copy,
        "realPath" => real_path,
        "readLink" => |ctx: Ctx<'js>, path: String| {
            let link = fs::read_link(&path).map(|link| link.to_string_lossy().into_owned());
            or_throw(&ctx, link, "readlink", &path)
        },
        "symlink" => |ctx: Ctx<'js>, target: String, path: String| {
            or_throw(&ctx, std::os::unix::fs::symlink(target, &path), "symlink", &path)
        },
        "chmod" => |ctx: Ctx<'js>, path: String, mode: u32| {
            or_throw(&ctx, fs::set_permissions(&path, fs::Permissions::from_mode(mode)), "chmod", &path)
        },
        "truncate" => |ctx: Ctx<'js>, path: String, length: f64| {
            let length = whole(length);
            let cut = OpenOptions::new().write(true).open(&path).and_then(|file| file.set_len(length));
            or_throw(&ctx, cut, "open", &path)
        },
        "makeTemp" => make_temp,
        "glob" => |pattern: String, from: String| glob::find(Path::new(&from), &pattern),
        "cwd" => |ctx: Ctx<'js>| {
            let here = std::env::current_dir().map(|path| path.to_string_lossy().into_owned());
            or_throw(&ctx, here, "cwd", ".")
        },
        "chdir" => |ctx: Ctx<'js>, path: String| or_throw(&ctx, std::env::set_current_dir(&path), "chdir", &path),
    }
    natives.set(
        "globMatch",
        Func::from(|pattern: String, path: String| glob::matches(&pattern, &path)),
    )
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "clamped before")]
fn whole(number: f64) -> u64 {
    number.clamp(0.0, 9.0e15) as u64
}

/// Converts an I/O error to a JavaScript exception with the code and message that Node uses.
fn or_throw<T>(ctx: &Ctx<'_>, result: io::Result<T>, call: &str, path: &str) -> Result<T> {
    result.map_err(|error| fail(ctx, &error, call, path))
}

fn fail(ctx: &Ctx<'_>, error: &io::Error, call: &str, path: &str) -> rquickjs::Error {
    let code = code_of(error);
    let words = match code {
        "ENOENT" => "no such file or directory".to_owned(),
        "EACCES" => "permission denied".to_owned(),
        "EPERM" => "operation not permitted".to_owned(),
        "EEXIST" => "file already exists".to_owned(),
        "EISDIR" => "illegal operation on a directory".to_owned(),
        "ENOTDIR" => "not a directory".to_owned(),
        "ENOTEMPTY" => "directory not empty".to_owned(),
        "EROFS" => "read-only file system".to_owned(),
        _ => error.to_string(),
    };
    let made = || -> Result<Exception<'_>> {
        let made =
            Exception::from_message(ctx.clone(), &format!("{code}: {words}, {call} '{path}'"))?;
        let object = made.as_object();
        object.set("errno", error.raw_os_error().map_or(0, |number| -number))?;
        object.set("code", code)?;
        object.set("syscall", call)?;
        object.set("path", path)?;
        Ok(made)
    };
    made().map_or_else(|error| error, Exception::throw)
}

fn code_of(error: &io::Error) -> &'static str {
    match error.raw_os_error().map(rustix::io::Errno::from_raw_os_error) {
        Some(rustix::io::Errno::NOENT) => "ENOENT",
        Some(rustix::io::Errno::ACCESS) => "EACCES",
        Some(rustix::io::Errno::PERM) => "EPERM",
        Some(rustix::io::Errno::EXIST) => "EEXIST",
        Some(rustix::io::Errno::ISDIR) => "EISDIR",
        Some(rustix::io::Errno::NOTDIR) => "ENOTDIR",
        Some(rustix::io::Errno::NOTEMPTY) => "ENOTEMPTY",
        Some(rustix::io::Errno::ROFS) => "EROFS",
        Some(rustix::io::Errno::NOSPC) => "ENOSPC",
        Some(rustix::io::Errno::DQUOT) => "EDQUOT",
        Some(rustix::io::Errno::LOOP) => "ELOOP",
        Some(rustix::io::Errno::INVAL) => "EINVAL",
        Some(rustix::io::Errno::XDEV) => "EXDEV",
        Some(rustix::io::Errno::NAMETOOLONG) => "ENAMETOOLONG",
        Some(rustix::io::Errno::MFILE) => "EMFILE",
        _ => "EIO",
    }
}

fn read(path: &str) -> io::Result<Vec<u8>> {
    let size = fs::metadata(path)?.len();
    if size > LARGEST {
        let message = format!("the file has {size} bytes; at most {LARGEST} can be read at once");
        return Err(io::Error::other(message));
    }
    fs::read(path)
}

fn read_file(ctx: Ctx<'_>, path: String) -> Result<Binary> {
    or_throw(&ctx, read(&path).map(Binary), "open", &path)
}

fn read_text(ctx: Ctx<'_>, path: String) -> Result<String> {
    let bytes = or_throw(&ctx, read(&path), "open", &path)?;
    let text = String::from_utf8(bytes);
    Ok(text.unwrap_or_else(|broken| String::from_utf8_lossy(broken.as_bytes()).into_owned()))
}

fn write_file<'js>(
    ctx: Ctx<'js>,
    path: String,
    data: Value<'js>,
    append: bool,
    new: Opt<bool>,
) -> Result<()> {
    let bytes = match data.as_string() {
        Some(text) => text.to_string()?.into_bytes(),
        None => Binary::from_js(&ctx, data)?.0,
    };
    let mut options = OpenOptions::new();
    options.create(true).append(append).write(true).truncate(!append);
    options.create_new(new.0.unwrap_or_default());
    let written = options.open(&path).and_then(|mut file| file.write_all(&bytes));
    or_throw(&ctx, written, "open", &path)
}

fn kind(of: fs::FileType) -> &'static str {
    match of {
        _ if of.is_file() => "file",
        _ if of.is_dir() => "directory",
        _ if of.is_symlink() => "symlink",
        _ if of.is_fifo() => "fifo",
        _ if of.is_socket() => "socket",
        _ if of.is_block_device() => "block",
        _ => "character",
    }
}

/// Returns the names and kinds of the entries of a directory, sorted by name.
fn read_dir(ctx: Ctx<'_>, path: String) -> Result<Vec<Vec<String>>> {
    let read = || -> io::Result<Vec<Vec<String>>> {
        let mut found = Vec::new();
        for entry in fs::read_dir(&path)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            found.push(vec![name, kind(entry.file_type()?).to_owned()]);
        }
        found.sort();
        Ok(found)
    };
    or_throw(&ctx, read(), "scandir", &path)
}

#[expect(clippy::cast_precision_loss, reason = "numbers of JavaScript")]
fn stat<'js>(ctx: Ctx<'js>, path: String, follow: bool) -> Result<Object<'js>> {
    let (found, call) =
        if follow { (fs::metadata(&path), "stat") } else { (fs::symlink_metadata(&path), "lstat") };
    let found = or_throw(&ctx, found, call, &path)?;
    let stat = Object::new(ctx)?;
    let time = |seconds: i64, rest: i64| seconds as f64 * 1000.0 + rest as f64 / 1e6;
    stat.set("kind", kind(found.file_type()))?;
    stat.set("size", found.size() as f64)?;
    stat.set("mode", found.mode())?;
    stat.set("ino", found.ino() as f64)?;
    stat.set("dev", found.dev() as f64)?;
    stat.set("nlink", found.nlink() as f64)?;
    stat.set("uid", found.uid())?;
    stat.set("gid", found.gid())?;
    stat.set("blksize", found.blksize() as f64)?;
    stat.set("blocks", found.blocks() as f64)?;
    stat.set("atimeMs", time(found.atime(), found.atime_nsec()))?;
    stat.set("mtimeMs", time(found.mtime(), found.mtime_nsec()))?;
    stat.set("ctimeMs", time(found.ctime(), found.ctime_nsec()))?;
    stat.set("birthtimeMs", time(found.ctime(), found.ctime_nsec()))?;
    Ok(stat)
}

/// Creates a directory. With `recursive`, returns the first created directory, as Node does.
fn make_dir(ctx: Ctx<'_>, path: String, recursive: bool) -> Result<Option<String>> {
    if !recursive {
        or_throw(&ctx, fs::create_dir(&path), "mkdir", &path)?;
        return Ok(None);
    }
    let first = Path::new(&path).ancestors().take_while(|above| !above.exists()).last();
    let first = first.map(|path| path.to_string_lossy().into_owned());
    or_throw(&ctx, fs::create_dir_all(&path), "mkdir", &path)?;
    Ok(first)
}

/// Removes a file, or a directory with its contents.
///
/// `plain` selects Node's `rm`, which refuses even an empty directory without `recursive`. Deno's
/// `remove` accepts an empty directory.
fn remove(ctx: Ctx<'_>, path: String, recursive: bool, plain: Opt<bool>) -> Result<()> {
    let found = or_throw(&ctx, fs::symlink_metadata(&path), "rm", &path)?;
    let removed = match (found.is_dir(), recursive) {
        (false, _) => fs::remove_file(&path),
        (true, true) => fs::remove_dir_all(&path),
        (true, false) if plain.0.unwrap_or_default() => {
            return Err(Exception::throw_message(
                &ctx,
                &format!("{path} is a directory: use rm with {{ recursive: true }}"),
            ));
        }
        (true, false) => fs::remove_dir(&path),
    };
    or_throw(&ctx, removed, "rm", &path)
}

fn remove_dir(ctx: Ctx<'_>, path: String, recursive: bool) -> Result<()> {
    let removed = if recursive { fs::remove_dir_all(&path) } else { fs::remove_dir(&path) };
    or_throw(&ctx, removed, "rmdir", &path)
}

#[expect(
    clippy::disallowed_methods,
    reason = "the result is for the program, and no check depends on it"
)]
fn real_path(ctx: Ctx<'_>, path: String) -> Result<String> {
    let real = fs::canonicalize(&path).map(|real| real.to_string_lossy().into_owned());
    or_throw(&ctx, real, "realpath", &path)
}

fn copy(ctx: Ctx<'_>, from: String, to: String) -> Result<()> {
    // A directory must fail as in Node, with EISDIR.
    let copied = fs::metadata(&from).and_then(|found| {
        if found.is_dir() {
            return Err(io::Error::from_raw_os_error(rustix::io::Errno::ISDIR.raw_os_error()));
        }
        io::copy(&mut File::open(&from)?, &mut File::create(&to)?).map(drop)
    });
    or_throw(&ctx, copied, "copyfile", &from)
}

fn make_temp(ctx: Ctx<'_>, prefix: String) -> Result<String> {
    let mut bytes = [0; 8];
    for _ in 0..16 {
        getrandom::fill(&mut bytes).map_err(|error| {
            Exception::throw_message(&ctx, &format!("cannot read random bytes: {error}"))
        })?;
        let name = format!("{prefix}{:012x}", u64::from_le_bytes(bytes) >> 16);
        match fs::create_dir(&name) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            made => return or_throw(&ctx, made, "mkdtemp", &name).map(|()| name),
        }
    }
    Err(Exception::throw_message(&ctx, "cannot find an unused name for a temporary directory"))
}
