// expect: {"sha1":"a9993e364706816aba3e25717850c26c9cd0d89d","sha256":"ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad","sha512":"ddaf35a193617abacc417349ae204131","v4":true,"rnd":true}
async function hash(algo: string, text: string): Promise<string> {
  const data = new TextEncoder().encode(text);
  const buf = await crypto.subtle.digest(algo, data);
  return Array.from(new Uint8Array(buf), (b) => b.toString(16).padStart(2, "0")).join("");
}
const uuid: string = crypto.randomUUID();
const rnd = crypto.getRandomValues(new Uint32Array(4));
return {
  sha1: await hash("SHA-1", "abc"), sha256: await hash("SHA-256", "abc"), sha512: (await hash("SHA-512", "abc")).slice(0, 32),
  v4: uuid[14] === "4" && uuid.length === 36, rnd: rnd.some((x) => x > 0),
};
