// expect: ["AbortError",true,"why",20]
const c = new AbortController();
c.abort();
const out = [];
try { c.signal.throwIfAborted(); } catch (e) { out.push(e.name, e instanceof DOMException); }
try { AbortSignal.abort("why").throwIfAborted(); } catch (e) { out.push(e); }
out.push(c.signal.reason.code);
out;
