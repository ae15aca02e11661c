// stdout: info
// stdout: debug
// stdout:
// stdout:
// stdout: Group
// stdout:   inside
// stdout:     deeper
// stdout:     lines
// stdout: outside
// stderr: careful { code: 7 }
// stderr: bad: oops
// stderr: Assertion failed: assertion text
console.info("info");
console.debug("debug");
console.warn("careful", { code: 7 });
console.error("bad:", new TypeError("oops").message);
console.log();
console.log("");
console.group("Group");
console.log("inside");
console.group();
console.log("deeper\nlines");
console.groupEnd();
console.groupEnd();
console.log("outside");
console.assert(1 === 2, "assertion %s", "text");
console.assert(true, "silent");
