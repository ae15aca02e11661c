//! Built-in modules of Node and the global `Deno`.

use serde_json::json;

use super::worker::run;

/// Runs a JavaScript program that checks itself with `node:assert`.
#[track_caller]
fn check(code: &str) {
    let outcome = run(&format!("import assert from 'node:assert/strict';\n{code}\n'held'"));
    assert_eq!(outcome.value(), json!("held"));
}

#[test]
fn node_path_module_behaves_as_in_node() {
    check(
        "import path, { join, posix } from 'node:path'; import p2 from 'path';
         assert.equal(join('/a', '..', 'b', './c/'), '/b/c/'); assert.equal(join(''), '.'); assert.equal(join('a', '../..'), '..');
         assert.equal(path.resolve('/a/b', '../c'), '/a/c'); assert.equal(path.basename('/a/b.txt', '.txt'), 'b');
         assert.equal(path.dirname('/a/b'), '/a'); assert.equal(path.dirname('/a'), '/'); assert.equal(path.dirname('a'), '.');
         assert.equal(path.extname('a.b.c'), '.c'); assert.equal(path.extname('.bashrc'), ''); assert.equal(path.relative('/a/b/c', '/a/d'), '../../d');
         assert.deepEqual(path.parse('/home/x/file.txt'), { root: '/', dir: '/home/x', base: 'file.txt', ext: '.txt', name: 'file' });
         assert.equal(path.format({ dir: '/a', name: 'b', ext: '.c' }), '/a/b.c'); assert.ok(path.isAbsolute('/x')); assert.equal(posix, path); assert.equal(p2, path);
         assert.equal(path.normalize('/a/./b/../c//'), '/a/c/'); assert.throws(() => join(1 as any), TypeError);",
    );
}

#[test]
fn node_util_module_behaves_as_in_node() {
    check(
        "import util, { promisify, inspect, format, isDeepStrictEqual } from 'node:util';
         assert.equal(await promisify((x: number, cb: any) => cb(null, x + 1))(1), 2);
         await assert.rejects(promisify((cb: any) => cb(new Error('no')))(), /no/);
         assert.equal(inspect({ a: [1, { b: 2 }] }), '{ a: [ 1, { b: 2 } ] }'); assert.equal(format('%s-%d', 'a', 1, 'b'), 'a-1 b');
         assert.ok(isDeepStrictEqual({ a: new Map([[1, new Set([2])]]) }, { a: new Map([[1, new Set([2])]]) }));
         assert.ok(!isDeepStrictEqual([1], ['1'])); assert.ok(util.types.isPromise(Promise.resolve()));
         class Own { [inspect.custom]() { return 'OWN' } } assert.equal(inspect([new Own()]), '[ OWN ]');
         assert.equal(util.stripVTControlCharacters('\\u001b[31mred\\u001b[0m'), 'red');",
    );
}

#[test]
fn node_events_module_behaves_as_in_node() {
    check(
        "import { EventEmitter, once } from 'node:events'; import Default from 'events'; assert.equal(Default, EventEmitter);
         class Bus extends EventEmitter {} const bus = new Bus(); const seen: any[] = [];
         bus.on('x', (v: number) => seen.push(v)); bus.once('x', (v: number) => seen.push('once' + v));
         assert.ok(bus.emit('x', 1)); bus.emit('x', 2); assert.deepEqual(seen, [1, 'once1', 2]); assert.ok(!bus.emit('y'));
         assert.throws(() => bus.emit('error', new Error('unheard')), /unheard/);
         setTimeout(() => bus.emit('later', 7), 1); assert.deepEqual(await once(bus, 'later'), [7]);
         bus.removeAllListeners('x'); assert.equal(bus.listenerCount('x'), 0);",
    );
}

#[test]
fn node_assert_module_behaves_as_in_node() {
    check(
        "import loose from 'node:assert'; loose.equal(1, '1'); assert.throws(() => assert.equal(1, '1'), { name: 'AssertionError', code: 'ERR_ASSERTION' });
         assert.deepEqual({ a: [1, 2] }, { a: [1, 2] }); assert.throws(() => assert.deepEqual({ a: 1 }, { a: 2 }));
         assert.match('abc', /b/); assert.throws(() => { throw new TypeError('x') }, TypeError); await assert.rejects(Promise.reject(new Error('y')), /y/);
         assert.throws(() => assert(false, 'mine'), /mine/); loose.deepEqual([1], ['1']); assert.notDeepEqual([1], [2]);",
    );
}

#[test]
fn node_crypto_module_behaves_as_in_node() {
    check(
        "import { createHash, createHmac, randomUUID, randomBytes, randomInt, timingSafeEqual } from 'node:crypto'; import crypto from 'crypto';
         assert.equal(createHash('sha256').update('a').update('b').digest('hex'), 'fb8e20fc2e4c3f248c60c39bd652f3c1347298bb977b8b4d5903b85055620603');
         assert.equal(createHash('md5').update('').digest('hex'), 'd41d8cd98f00b204e9800998ecf8427e');
         assert.equal(createHmac('sha1', 'key').update('data').digest('base64'), 'EEFSxb/coHvGM+69RhmfAlXJ9J0=');
         assert.match(randomUUID(), /^[0-9a-f-]{36}$/); assert.equal(randomBytes(8).length, 8); assert.equal(randomBytes(8).toString('hex').length, 16);
         for (let i = 0; i < 100; i++) { const n = randomInt(3, 5); assert.ok(n === 3 || n === 4) } assert.ok(timingSafeEqual(Buffer.from('a'), Buffer.from('a')));
         assert.throws(() => createHash('nope'), /not supported/); assert.throws(() => crypto.createCipheriv(), /not available/);",
    );
}

#[test]
fn node_buffer_module_behaves_as_in_node() {
    check(
        "import { Buffer as B } from 'node:buffer'; assert.equal(B, Buffer);
         assert.equal(Buffer.from('héllo').toString('base64'), 'aMOpbGxv'); assert.equal(Buffer.from('aMOpbGxv', 'base64').toString(), 'héllo');
         assert.equal(Buffer.from('ff00', 'hex')[0], 255); assert.equal(Buffer.from([1, 2, 3]).toString('hex'), '010203');
         assert.equal(Buffer.concat([Buffer.from('a'), Buffer.from('b')]).toString(), 'ab'); assert.equal(Buffer.byteLength('é'), 2);
         assert.ok(Buffer.isBuffer(Buffer.alloc(2))); assert.ok(!Buffer.isBuffer(new Uint8Array(2))); assert.ok(Buffer.from('x') instanceof Uint8Array);
         const b = Buffer.alloc(4); b.writeUInt32BE(0xdeadbeef); assert.equal(b.toString('hex'), 'deadbeef'); assert.equal(b.readUInt16LE(0), 0xadde);
         assert.equal(b.slice(1, 2).toString('hex'), 'ad'); assert.ok(b.equals(Buffer.from('deadbeef', 'hex'))); assert.equal(b.indexOf(0xbe), 2);
         assert.deepEqual(JSON.parse(JSON.stringify(Buffer.from('hi'))), { type: 'Buffer', data: [104, 105] }); assert.equal(`${Buffer.from('hi')}`, 'hi');
         assert.equal(Buffer.from('a-_', 'base64url').toString('base64url'), 'a-8');",
    );
}

#[test]
fn node_process_module_behaves_as_in_node() {
    check(
        "import process2, { env } from 'node:process'; assert.equal(process2, process); assert.equal(process.env, env); assert.equal(process.env.NOPE, undefined);
         assert.equal(process.platform, 'linux'); assert.ok(process.argv.length >= 2); assert.equal(typeof process.hrtime.bigint(), 'bigint'); assert.ok(process.memoryUsage().heapUsed > 0);
         assert.ok(process.cwd().startsWith('/')); assert.match(process.version, /^v\\d+/); assert.ok(process.uptime() >= 0); process.env.MINE = 'x'; assert.equal(Deno.env.get('MINE'), 'x');
         import os from 'node:os'; assert.equal(os.EOL, '\\n'); assert.equal(os.tmpdir(), '/tmp'); import qs from 'node:querystring'; assert.equal(qs.stringify({ a: [1, 2], b: 'x y' }), 'a=1&a=2&b=x%20y');
         assert.deepEqual({ ...qs.parse('a=1&a=2&b=x+y') }, { a: ['1', '2'], b: 'x y' }); import { setTimeout as wait } from 'node:timers/promises'; assert.equal(await wait(1, 'v'), 'v');
         import url, { fileURLToPath, pathToFileURL } from 'node:url'; assert.equal(fileURLToPath('file:///a%20b'), '/a b'); assert.equal(pathToFileURL('/a b').href, 'file:///a%20b'); assert.equal(url.parse('http://x:1/y?z=1').port, '1');
         import { performance } from 'node:perf_hooks'; assert.ok(performance.now() >= 0); const req = require('node:path'); assert.equal(req.sep, '/');",
    );
}
