// expect: {"missing":[],"n":1,"window":true}
globalThis.shared = { n: 1 };
const kinds = ["fetch", "URL", "console", "setTimeout", "crypto", "structuredClone", "TextEncoder", "AbortController", "Blob", "queueMicrotask", "atob"].filter((k) => typeof globalThis[k] === "undefined");
({ missing: kinds, n: shared.n, window: typeof window === "undefined" || window === globalThis });
