// expect: {"length":256,"last":255,"hex":"40aff2e9d2d8922e47afd4648e6967497158785fbd1da870e7110266bf944880"}
const buffer = await (await fetch("https://api.shop.test/bytes")).arrayBuffer();
const digest = await crypto.subtle.digest("SHA-256", buffer);
const hex = [...new Uint8Array(digest)].map((b) => b.toString(16).padStart(2, "0")).join("");
({ length: buffer.byteLength, last: new Uint8Array(buffer)[255], hex });
