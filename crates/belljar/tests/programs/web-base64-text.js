// expect: {"n":18,"b64":"SGVsbG8sIOS4lueVjCDwn4yN","same":true,"bad":"InvalidCharacterError","fatal":"TypeError","lossy":"h�i"}
const text = "Hello, 世界 🌍";
const bytes = new TextEncoder().encode(text);
const b64 = btoa(String.fromCharCode(...bytes));
const back = new TextDecoder().decode(Uint8Array.from(atob(b64), (c) => c.charCodeAt(0)));
let bad;
try { btoa("世"); } catch (e) { bad = e.name; }
let fatal;
try { new TextDecoder("utf-8", { fatal: true }).decode(new Uint8Array([0xff])); } catch (e) { fatal = e.name; }
({ n: bytes.length, b64, same: back === text, bad, fatal, lossy: new TextDecoder().decode(new Uint8Array([104, 0xff, 105])) });
