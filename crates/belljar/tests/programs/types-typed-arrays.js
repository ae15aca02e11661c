// expect: {"bytes":[18,52,0,0,0,0,192,63],"f":1.5,"clamped":[255,0,2],"i16":-25536,"sorted":[1,2,3],"sub":[18,52],"big":"-1","resize":true}
const buf = new ArrayBuffer(8);
const view = new DataView(buf);
view.setUint16(0, 0x1234);
view.setFloat32(4, 1.5, true);
const u8 = new Uint8Array(buf);
const clamped = Uint8ClampedArray.from([300, -5, 1.6]);
({ bytes: [...u8], f: view.getFloat32(4, true), clamped: [...clamped], i16: new Int16Array([40000])[0], sorted: [...new Float64Array([3, 1, 2]).sort()], sub: [...u8.subarray(0, 2)], big: String(new BigInt64Array([-1n])[0]), resize: new ArrayBuffer(4, { maxByteLength: 8 }).resizable });
