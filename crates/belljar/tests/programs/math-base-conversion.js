// expect: {"b7":"202","b36":"2n9c","bits":["00000101","11111111","00000001"],"popcount":3,"ops":[1,7,6,-6,1024,15,-4]}
const toBase = (n, b) => { let s = ""; do { s = "0123456789abcdefghijklmnopqrstuvwxyz"[n % b] + s; n = Math.floor(n / b); } while (n); return s; };
const bits = (n) => n.toString(2).padStart(8, "0");
({ b7: toBase(100, 7), b36: toBase(123456, 36), bits: [5, 255, 1].map(bits), popcount: bits(0b10110).replaceAll("0", "").length, ops: [5 & 3, 5 | 3, 5 ^ 3, ~5, 1 << 10, -1 >>> 28, -16 >> 2] });
