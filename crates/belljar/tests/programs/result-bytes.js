// expect: {"bytes":{"type":"bytes","base64":"aMOpbGxv"},"slice":{"type":"bytes","base64":"aMM="}}
const bytes = new TextEncoder().encode("héllo");
({ bytes, slice: bytes.subarray(0, 2) });
