//! A template as the text of a file that gives it again.

use toml::Value;

use crate::template::Template;
use crate::time::Timeout;

impl Template {
    /// The section of `belljar.toml` that describes this template, every key spelled out.
    pub fn to_toml(&self) -> String {
        // Destructured without `..`, so that a new field cannot be forgotten.
        let Self { name, mode, net, record, mounts, rootfs, env, user, limits, weaken, require } =
            self;
        // Quoted, since a name may have a dot in it.
        let mut section = format!("[template.{}]\n", Value::String(name.clone()));
        let mut put = |key: &str, value: Value| section.push_str(&format!("{key} = {value}\n"));
        put("mode", text(mode));
        put("net", text(net));
        put("record", text(record));
        put("mounts", list(mounts));
        if let Some(rootfs) = rootfs {
            put("rootfs", text(&rootfs.display()));
        }
        put("env", list(env));
        put("user", Value::Integer((*user).into()));
        put("memory", text(&limits.memory));
        put("cpus", text(&limits.cpus));
        put("pids", Value::Integer(limits.pids.into()));
        put("disk", text(&limits.disk));
        // TOML's numbers end at i64, ours do not; a number in quotes is read as well.
        put(
            "files",
            i64::try_from(limits.files).map_or_else(|_| text(&limits.files), Value::Integer),
        );
        put("output-limit", text(&limits.output));
        put("timeout", text(&Timeout(limits.timeout)));
        put("weaken", list(weaken));
        put("require", list(require));
        section
    }
}

fn text(value: &impl ToString) -> Value {
    Value::String(value.to_string())
}

fn list<T: ToString>(values: impl IntoIterator<Item = T>) -> Value {
    Value::Array(values.into_iter().map(|value| text(&value)).collect())
}
