//! Parts of the web platform that need no network.

use super::page::{check, evaluate};

#[test]
fn web_platform_globals_are_evaluated_on_first_use() {
    let names = evaluate(
        "const names = ['Event','CustomEvent','EventTarget','AbortController','AbortSignal','DOMException','ReadableStream',\
         'WritableStream','TransformStream','TextDecoderStream','TextEncoderStream','Headers','fetch','Request','Response','Blob',\
         'File','FormData','URL','URLSearchParams','TextEncoder','TextDecoder','atob','btoa','crypto','structuredClone','Intl',\
         'performance','navigator','WebSocket','EventSource'];\
         const lazy = names.filter((it) => Object.getOwnPropertyDescriptor(globalThis, it).get);\
         return [names.length - lazy.length, names.filter((it) => globalThis[it] === undefined), \
                 names.filter((it) => Object.getOwnPropertyDescriptor(globalThis, it).get)]",
    );
    assert_eq!(names, serde_json::json!([0, [], []]));
}

#[test]
fn fetch_headers_are_sorted_combined_and_validated() {
    check(&[
        (
            "[...new Headers({b: '2', A: '1', 'set-cookie': 'x'})]",
            r#"[["a","1"],["b","2"],["set-cookie","x"]]"#,
        ),
        (
            "(() => { const h = new Headers([['x', '1']]); h.append('X', ' 2 '); return h.get('x') })()",
            r#""1, 2""#,
        ),
        (
            "(() => { const h = new Headers(); h.append('set-cookie', 'a'); h.append('Set-Cookie', 'b'); \
             return [h.getSetCookie(), [...h], h.get('set-cookie')] })()",
            r#"[["a","b"],[["set-cookie","a"],["set-cookie","b"]],"a, b"]"#,
        ),
        ("new Headers({'a b': '1'})", "!TypeError: Invalid header name"),
        ("new Headers({a: 'x\\ny'})", "!TypeError: Invalid header value"),
        ("new Headers({a: '\u{20ac}'})", "!TypeError: Invalid header value"),
        ("new Headers(null)", "!TypeError"),
        ("new Headers([['a']])", "!TypeError"),
        ("new Headers({a: 1, b: null}).get('b')", r#""null""#),
        ("Response.error().headers.append('a', 'b')", "!TypeError: Headers are immutable"),
        (
            "(() => { const h = new Headers({a: '1', b: '2'}); h.set('a', '3'); h.delete('B'); return [h.has('A'), ...h.keys()] })()",
            r#"[true,"a"]"#,
        ),
    ]);
}

#[test]
fn request_and_response_follow_the_fetch_standard() {
    check(&[
        ("new Request('http://x/', {method: 'post', body: 'b'}).method", r#""POST""#),
        ("new Request('http://x/', {method: 'patch'}).method", r#""patch""#),
        (
            "new Request('http://x/', {body: 'b'})",
            "!TypeError: Request with GET/HEAD method cannot have body.",
        ),
        ("new Request('/x')", "!TypeError: Invalid URL"),
        ("new Request('http://u:p@x/')", "!TypeError: a URL with credentials"),
        ("new Request('http://x/', {method: 'TRACE'})", "!TypeError: Method is forbidden"),
        (
            "new Request('http://x/', {method: 'POST', body: new URLSearchParams({a: 'b c'})}).text()",
            r#""a=b+c""#,
        ),
        (
            "new Request('http://x/', {method: 'POST', body: 'x'}).headers.get('content-type')",
            r#""text/plain;charset=UTF-8""#,
        ),
        ("Response.json({a: 1}).text()", r#""{\"a\":1}""#),
        ("Response.json({a: 1}).headers.get('content-type')", r#""application/json""#),
        (
            "Response.json({a: 1}, {status: 201, headers: {'content-type': 'x/y'}}).headers.get('content-type')",
            r#""x/y""#,
        ),
        (
            "[Response.redirect('http://x/y').status, Response.redirect('http://x/y', 308).headers.get('location')]",
            r#"[302,"http://x/y"]"#,
        ),
        ("Response.redirect('http://x/', 200)", "!RangeError"),
        ("[Response.error().type, Response.error().status]", r#"["error",0]"#),
        ("new Response('x', {status: 204})", "!TypeError"),
        ("new Response('x', {status: 99})", "!RangeError"),
        ("new Response('{\"a\":[1]}').json()", r#"{"a":[1]}"#),
        ("new Response('<html>').json()", "!SyntaxError"),
        ("new Response(new Uint8Array([104, 105])).text()", r#""hi""#),
        ("new Response('h\u{e4}').bytes().then((it) => [...it])", "[104,195,164]"),
        ("new Response('\\ufeffx').text()", r#""x""#),
        ("new Response().text()", r#""""#),
        (
            "(async () => { const r = new Response('x'); await r.text(); return await r.text() })()",
            "!TypeError: Body already consumed.",
        ),
        (
            "(async () => { const r = new Response('x'); const c = r.clone(); return [await r.text(), await c.text(), r.bodyUsed] })()",
            r#"["x","x",true]"#,
        ),
        (
            "(async () => { const r = new Response('x'); r.body.getReader(); return await r.text() })()",
            "!TypeError: Body is locked.",
        ),
        (
            "(async () => { let out = []; for await (const it of new Response('abc').body) out.push(...it); return out })()",
            "[97,98,99]",
        ),
        (
            "new Response(new ReadableStream({start(c) { c.enqueue(new Uint8Array([97])); c.close() }})).text()",
            r#""a""#,
        ),
        ("new Response(ReadableStream.from(['a'])).text()", "!TypeError"),
        ("fetch('data:text/plain;base64,aGk=').then((it) => it.text())", r#""hi""#),
        ("fetch('data:,a%20b').then((it) => it.text())", r#""a b""#),
        ("fetch('file:///etc/passwd')", "!TypeError: file: cannot be fetched"),
        ("fetch('ftp://x/')", "!TypeError: Url scheme 'ftp' not supported"),
    ]);
}

#[test]
fn form_data_survives_a_round_trip_through_a_body() {
    check(&[
        (
            "(async () => { const f = new FormData(); f.append('a', '1'); f.append('\u{e4}\"', 'x\\ny'); \
             f.append('f', new Blob(['\\0\\r\\n--'], {type: 'x/y'}), 'n.bin'); const g = await new Response(f).formData(); \
             const file = g.get('f'); return [[...g.keys()], g.get('a'), g.get('\u{e4}\"'), file.name, file.type, await file.text()] })()",
            "[[\"a\",\"\u{e4}\\\"\",\"f\"],\"1\",\"x\\r\\ny\",\"n.bin\",\"x/y\",\"\\u0000\\r\\n--\"]",
        ),
        (
            "new Response('a=1&b=x+y', {headers: {'content-type': 'application/x-www-form-urlencoded'}}).formData().then((it) => [...it])",
            r#"[["a","1"],["b","x y"]]"#,
        ),
        ("new Response('x').formData()", "!TypeError"),
        (
            "(() => { const f = new FormData(); f.append('a', 1); f.append('a', 2); f.set('a', 3); return [f.getAll('a'), f.has('b'), f.get('b')] })()",
            r#"[["3"],false,null]"#,
        ),
        (
            "(() => { const b = new Blob(['ab', new Uint8Array([99])], {type: 'A/b'}); return [b.size, b.type, b.slice(1, 2).size] })()",
            r#"[3,"a/b",1]"#,
        ),
        ("new Blob(['abc']).slice(-2).text()", r#""bc""#),
        (
            "(() => { const f = new File(['x'], 'n', {lastModified: 5}); return [f.name, f.size, f.lastModified, f instanceof Blob] })()",
            r#"["n",1,5,true]"#,
        ),
    ]);
}

#[test]
fn web_streams_can_be_read_written_and_piped() {
    check(&[
        (
            "(async () => { const out = []; for await (const it of ReadableStream.from([1, 2, 3])) out.push(it); return out })()",
            "[1,2,3]",
        ),
        (
            "(async () => { const [a, b] = ReadableStream.from([1, 2]).tee(); const all = async (s) => { const o = []; for await (const i of s) o.push(i); return o }; \
             return await Promise.all([all(a), all(b)]) })()",
            "[[1,2],[1,2]]",
        ),
        (
            "(async () => { const out = []; await ReadableStream.from(['a', 'b']).pipeThrough(new TransformStream({transform(c, o) { o.enqueue(c.toUpperCase()) }, flush(o) { o.enqueue('!') }}))\
             .pipeTo(new WritableStream({write(c) { out.push(c) }, close() { out.push('end') }})); return out })()",
            r#"["A","B","!","end"]"#,
        ),
        (
            "(async () => { const bytes = new TextEncoder().encode('a\u{20ac}b'); const out = []; \
             for await (const it of ReadableStream.from([bytes.slice(0, 2), bytes.slice(2)]).pipeThrough(new TextDecoderStream())) out.push(it); return out.join('|') })()",
            "\"a|\u{20ac}b\"",
        ),
        (
            "(async () => { const out = []; for await (const it of ReadableStream.from(['h\u{e4}']).pipeThrough(new TextEncoderStream())) out.push(...it); return out })()",
            "[104,195,164]",
        ),
        (
            "(async () => { let pulled = 0; const s = new ReadableStream({pull(c) { c.enqueue(pulled++) }}, {highWaterMark: 2}); await 0; await 0; await 0; await 0; await 0; await 0; await 0; await 0; await 0; await 0; return pulled })()",
            "2",
        ),
        (
            "(async () => { let cancelled; const s = new ReadableStream({start(c) { c.enqueue(1) }, cancel(why) { cancelled = why }}); for await (const it of s) break; return [cancelled === undefined, s.locked] })()",
            "[true,false]",
        ),
        (
            "(async () => { const s = new ReadableStream({start(c) { c.error(new RangeError('no')) }}); return await s.getReader().read() })()",
            "!RangeError: no",
        ),
        (
            "(async () => { const s = new ReadableStream(); s.getReader(); return s.getReader() })()",
            "!TypeError: ReadableStream is locked",
        ),
        (
            "(async () => { const r = new Response('abcdef').body.getReader({mode: 'byob'}); const one = await r.read(new Uint8Array(4)); const two = await r.read(new Uint8Array(4)); const end = await r.read(new Uint8Array(4)); \
             return [[...one.value], [...two.value], end.done] })()",
            "[[97,98,99,100],[101,102],true]",
        ),
        (
            "(async () => { const order = []; const w = new WritableStream({async write(c) { order.push('w' + c); await 0; order.push('d' + c) }}).getWriter(); \
             await w.ready; w.write(1); order.push(w.desiredSize); await w.write(2); await w.close(); await w.closed; return order })()",
            r#"["w1",0,"d1","w2","d2"]"#,
        ),
        (
            "(async () => { const w = new WritableStream({write() { throw new TypeError('sink') }}).getWriter(); await w.write(1) })()",
            "!TypeError: sink",
        ),
        (
            "(async () => { const c = new AbortController(); let why; const s = new ReadableStream({cancel(it) { why = it }}); const p = s.pipeTo(new WritableStream(), {signal: c.signal}); c.abort('stop'); \
             try { await p } catch (e) { return [e, why] } })()",
            r#"["stop","stop"]"#,
        ),
    ]);
}

#[test]
fn events_reach_listeners_and_signals_abort_once() {
    check(&[
        (
            "(() => { const t = new EventTarget(); const out = []; const f = (e) => out.push(e.type, e.target === t); t.addEventListener('x', f); t.addEventListener('x', f); t.addEventListener('x', {handleEvent() { out.push('o') }}, {once: true}); t.dispatchEvent(new Event('x')); t.dispatchEvent(new Event('x')); return out })()",
            r#"["x",true,"o","x",true]"#,
        ),
        (
            "(() => { const e = new CustomEvent('x', {detail: {a: 1}, cancelable: true}); e.preventDefault(); return [e.detail, e.defaultPrevented, e instanceof Event] })()",
            r#"[{"a":1},true,true]"#,
        ),
        (
            "(() => { const c = new AbortController(); const out = []; c.signal.onabort = () => out.push('on'); c.signal.addEventListener('abort', () => out.push('listener')); c.abort(); c.abort(); return [out, c.signal.reason.name, c.signal.reason.code, c.signal.aborted] })()",
            r#"[["on","listener"],"AbortError",20,true]"#,
        ),
        ("AbortSignal.abort('x').throwIfAborted()", "!undefined"),
        (
            "AbortSignal.any([new AbortController().signal, AbortSignal.abort(new RangeError('r'))]).throwIfAborted()",
            "!RangeError: r",
        ),
        (
            "new Promise((r) => { const s = AbortSignal.any([AbortSignal.timeout(1)]); s.addEventListener('abort', () => r(s.reason.name)) })",
            r#""TimeoutError""#,
        ),
        ("new AbortSignal()", "!TypeError: Illegal constructor"),
        (
            "(() => { const e = new DOMException('m', 'DataCloneError'); return [e instanceof Error, e.code, `${e}`, DOMException.ABORT_ERR] })()",
            r#"[true,25,"DataCloneError: m",20]"#,
        ),
    ]);
}

#[test]
fn text_encodings_convert_text_and_bytes() {
    check(&[
        ("[...new TextEncoder().encode('a\u{20ac}\u{1f600}')]", "[97,226,130,172,240,159,152,128]"),
        ("[...new TextEncoder().encode('\\ud800')]", "[239,191,189]"),
        (
            "new TextEncoder().encodeInto('a\u{20ac}', new Uint8Array(3))",
            r#"{"read":1,"written":1}"#,
        ),
        ("new TextDecoder().decode(new Uint8Array([0xef, 0xbb, 0xbf, 97, 0xff]))", "\"a\u{fffd}\""),
        (
            "new TextDecoder('utf-8', {ignoreBOM: true}).decode(new Uint8Array([0xef, 0xbb, 0xbf, 97])).length",
            "2",
        ),
        ("new TextDecoder('utf8', {fatal: true}).decode(new Uint8Array([0xff]))", "!TypeError"),
        (
            "(() => { const d = new TextDecoder(); return d.decode(new Uint8Array([0xe2, 0x82]), {stream: true}) + d.decode(new Uint8Array([0xac]), {stream: true}) + d.decode(new Uint8Array([0xe2])) })()",
            "\"\u{20ac}\u{fffd}\"",
        ),
        ("new TextDecoder('utf-16le').decode(new Uint16Array([0x61, 0x20ac]))", "\"a\u{20ac}\""),
        (
            "[new TextDecoder('latin1').encoding, new TextDecoder('latin1').decode(new Uint8Array([0x80, 0xe4]))]",
            "[\"windows-1252\",\"\u{20ac}\u{e4}\"]",
        ),
        ("new TextDecoder('x-what')", "!RangeError"),
        ("[btoa('h\\xe4'), atob(' aGk ')]", r#"["aOQ=","hi"]"#),
        ("btoa('\u{20ac}')", "!InvalidCharacterError"),
        ("atob('a')", "!InvalidCharacterError"),
        ("atob('ab=')", "!InvalidCharacterError"),
    ]);
}

#[test]
fn crypto_hashes_hmacs_and_random_values_are_correct() {
    let hex = "const hex = (it) => new Uint8Array(it).toHex(); const e = (t) => new TextEncoder().encode(t);";
    let given = evaluate(&format!(
        "{hex} const key = await crypto.subtle.importKey('raw', e('Jefe'), {{name: 'HMAC', hash: 'SHA-256'}}, false, ['sign', 'verify']);
         const data = e('what do ya want for nothing?'); const signed = await crypto.subtle.sign('HMAC', key, data);
         const values = crypto.getRandomValues(new Uint32Array(4));
         return [hex(await crypto.subtle.digest('SHA-256', e('abc'))), hex(signed), await crypto.subtle.verify('HMAC', key, signed, data),
                 await crypto.subtle.verify('HMAC', key, signed, e('x')), new Set(values).size, /^[0-9a-f]{{8}}-[0-9a-f]{{4}}-4[0-9a-f]{{3}}-[89ab][0-9a-f]{{3}}-[0-9a-f]{{12}}$/.test(crypto.randomUUID())]"
    ));
    let expected = serde_json::json!([
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad",
        "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843",
        true,
        false,
        4,
        true
    ]);
    assert_eq!(given, expected);
    check(&[
        ("crypto.subtle.digest('MD5', new Uint8Array())", "!NotSupportedError"),
        (
            "crypto.subtle.encrypt()",
            "!NotSupportedError: crypto.subtle.encrypt is not available here",
        ),
        ("crypto.getRandomValues(new Float32Array(1))", "!TypeMismatchError"),
        ("crypto.getRandomValues(new Uint8Array(65537))", "!QuotaExceededError"),
    ]);
}

#[test]
fn structured_clone_copies_cycles_and_refuses_functions() {
    check(&[
        (
            "(() => { const a = {d: new Date(5), r: /x/gi, m: new Map([[1, {s: new Set([2])}]]), u: undefined, n: [1,,3]}; a.self = a; const b = structuredClone(a); \
           return [b !== a, b.self === b, b.d.getTime(), `${b.r}`, [...b.m.get(1).s], 'u' in b, 1 in b.n, b.n.length] })()",
            r#"[true,true,5,"/x/gi",[2],true,false,3]"#,
        ),
        (
            "(() => { const buffer = new Uint8Array([1, 2, 3]).buffer; const [a, b] = structuredClone([new Uint8Array(buffer, 1), new DataView(buffer)]); return [[...a], a.buffer === b.buffer, b.byteLength] })()",
            "[[2,3],true,3]",
        ),
        (
            "(() => { const e = structuredClone(new RangeError('m', {cause: 1})); return [e instanceof RangeError, e.message, e.cause] })()",
            r#"[true,"m",1]"#,
        ),
        ("structuredClone({f() {}})", "!DataCloneError"),
        ("structuredClone(Symbol('x'))", "!DataCloneError"),
        ("structuredClone(Promise.resolve())", "!DataCloneError"),
        (
            "(() => { class A { x = 1 } const b = structuredClone(new A()); return [b.x, b instanceof A] })()",
            "[1,false]",
        ),
        (
            "(() => { const b = new ArrayBuffer(4); const c = structuredClone(b, {transfer: [b]}); return [b.byteLength, c.byteLength] })()",
            "[0,4]",
        ),
    ]);
}

#[test]
fn errors_about_missing_web_features_name_an_alternative() {
    check(&[
        ("new WebSocket('ws://x')", "!TypeError: WebSocket is not available here: use `fetch`"),
        (
            "new EventSource('http://x')",
            "!TypeError: EventSource is not available here: use `fetch`",
        ),
        ("navigator.userAgent", "\"Belljar/0.1.0\""),
        (
            "(() => { const m = performance.mark('a'); const d = performance.measure('b', 'a'); return [performance.now() >= m.startTime, d.duration >= 0, Math.abs(performance.timeOrigin - Date.now()) < 60000, performance.getEntriesByType('mark').length] })()",
            "[true,true,true,1]",
        ),
    ]);
}
