//! File functions of `fs`, `node:fs` and `Deno`.

use serde_json::json;

use super::worker::{Outcome, run_script, script};

fn within(code: &str) -> (tempfile::TempDir, Outcome) {
    let dir = tempfile::tempdir().unwrap();
    let mut job = script(&format!("import assert from 'node:assert/strict';\n{code}\n'held'"));
    job.input = Some(json!({ "dir": dir.path() }).to_string());
    (dir, run_script(job))
}

#[test]
fn belljar_fs_functions_read_write_and_list_files() {
    let (dir, outcome) = within(
        "import * as fs from 'fs'; import * as same from 'belljar:fs'; assert.equal(fs.readTextFile, same.readTextFile); const d = input.dir;
         await fs.writeTextFile(`${d}/a.txt`, 'one\\n'); await fs.appendFile(`${d}/a.txt`, 'two'); assert.equal(await fs.readTextFile(`${d}/a.txt`), 'one\\ntwo');
         await fs.writeFile(`${d}/b.bin`, new Uint8Array([0, 255, 128])); assert.deepEqual([...await fs.readFile(`${d}/b.bin`)], [0, 255, 128]);
         await fs.mkdir(`${d}/x/y`, { recursive: true }); await fs.copyFile(`${d}/a.txt`, `${d}/x/y/c.txt`); await fs.rename(`${d}/b.bin`, `${d}/x/b.bin`);
         assert.deepEqual(await fs.readdir(d), ['a.txt', 'x']); const s = await fs.stat(`${d}/a.txt`); assert.ok(s.isFile() && s.size === 7 && s.mtime instanceof Date);
         assert.ok(await fs.exists(`${d}/x`)); assert.ok(!(await fs.exists(`${d}/nope`)));
         assert.deepEqual(await fs.glob('**/*.txt', { cwd: d }), ['a.txt', 'x/y/c.txt']);
         assert.deepEqual([...fs.walk(d)].map((e: any) => e.path.slice(d.length)), ['/a.txt', '/x', '/x/b.bin', '/x/y', '/x/y/c.txt']);
         await assert.rejects(fs.readTextFile(`${d}/nope`), { code: 'ENOENT', syscall: 'open' }); await assert.rejects(fs.rm(`${d}/x`), /recursive/);
         await fs.rm(`${d}/x`, { recursive: true }); await fs.unlink(`${d}/a.txt`); assert.deepEqual(await fs.readdir(d), []);",
    );
    assert_eq!(outcome.value(), json!("held"));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
}

#[test]
fn node_fs_functions_behave_as_in_node() {
    let (dir, outcome) = within(
        "import fs, { readFileSync, existsSync } from 'node:fs'; import { readFile, writeFile, mkdtemp } from 'node:fs/promises'; const d = input.dir;
         fs.writeFileSync(`${d}/a.json`, JSON.stringify({ n: 1 })); assert.deepEqual(JSON.parse(readFileSync(`${d}/a.json`, 'utf8')), { n: 1 });
         assert.ok(Buffer.isBuffer(readFileSync(`${d}/a.json`))); assert.equal(readFileSync(`${d}/a.json`).toString('base64'), 'eyJuIjoxfQ==');
         await writeFile(`${d}/b`, Buffer.from('ff', 'hex')); assert.equal((await readFile(`${d}/b`))[0], 255); assert.ok(existsSync(`${d}/b`));
         assert.deepEqual(fs.readdirSync(d, { withFileTypes: true }).map((e: any) => [e.name, e.isFile()]), [['a.json', true], ['b', true]]);
         assert.throws(() => fs.readFileSync(`${d}/nope`), { code: 'ENOENT', message: `ENOENT: no such file or directory, open '${d}/nope'` });
         await new Promise<void>((ok, no) => fs.readFile(`${d}/a.json`, 'utf8', (e: any, t: string) => e ? no(e) : (assert.equal(t, '{\"n\":1}'), ok())));
         const t = await mkdtemp(`${d}/tmp-`); fs.symlinkSync(`${d}/b`, `${t}/link`); assert.ok(fs.lstatSync(`${t}/link`).isSymbolicLink()); assert.equal(fs.readlinkSync(`${t}/link`), `${d}/b`);
         fs.cpSync(t, `${d}/copy`, { recursive: true }); fs.mkdirSync(`${d}/m`); assert.throws(() => fs.mkdirSync(`${d}/m`), { code: 'EEXIST' });
         assert.throws(() => fs.createReadStream('x'), /readFileSync/); assert.throws(() => fs.writeFileSync(`${d}/a.json`, 'x', { flag: 'wx' }), { code: 'EEXIST' });
         assert.equal(fs.statSync(`${d}/nope`, { throwIfNoEntry: false }), undefined); fs.rmSync(`${d}/nope`, { force: true });",
    );
    assert_eq!(outcome.value(), json!("held"));
    assert!(dir.path().join("copy/link").exists());
}

#[test]
fn deno_file_functions_behave_as_in_deno() {
    let (_dir, outcome) = within(
        "const d = input.dir; await Deno.writeTextFile(`${d}/a`, 'x'); await Deno.writeTextFile(`${d}/a`, 'y', { append: true }); assert.equal(await Deno.readTextFile(`${d}/a`), 'xy');
         await Deno.mkdir(`${d}/m/n`, { recursive: true }); const names = []; for await (const e of Deno.readDir(d)) names.push([e.name, e.isDirectory]); assert.deepEqual(names, [['a', false], ['m', true]]);
         const i = await Deno.stat(`${d}/a`); assert.ok(i.isFile && i.size === 2); Deno.writeFileSync(`${d}/b`, new TextEncoder().encode('b')); assert.equal(Deno.readTextFileSync(`${d}/b`), 'b');
         try { await Deno.readTextFile(`${d}/nope`); assert.fail() } catch (e) { assert.ok(e instanceof Deno.errors.NotFound) }
         await Deno.remove(`${d}/m`, { recursive: true }); Deno.renameSync(`${d}/a`, `${d}/c`); assert.ok((await Deno.lstat(`${d}/c`)).isFile);
         assert.throws(() => new Deno.Command('ls'), /run_command/); const t = await Deno.makeTempDir({ dir: d }); assert.ok((await Deno.stat(t)).isDirectory);",
    );
    assert_eq!(outcome.value(), json!("held"));
}
