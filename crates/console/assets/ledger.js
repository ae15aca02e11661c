// Checks the inclusion proof of an event (RFC 9162, section 2.1.3.2) and the signature of its checkpoint.
const bytes = (text) => Uint8Array.fromBase64(text);
const fromHex = (text) => Uint8Array.fromHex(text);
const hash = async (...parts) => new Uint8Array(await crypto.subtle.digest("SHA-256", await new Blob(parts).arrayBuffer()));
const node = (left, right) => hash(Uint8Array.of(1), left, right);
const rootOf = async ({ size, proof: { index, entry, proof } }) => {
  let result = await hash(Uint8Array.of(0), bytes(entry));
  let [at, last] = [index, size - 1];
  const up = () => { [at, last] = [Math.floor(at / 2), Math.floor(last / 2)]; };
  for (const text of proof) {
    if (at % 2 || at === last) {
      result = await node(fromHex(text), result);
      while (at % 2 === 0 && at) up();
    } else result = await node(result, fromHex(text));
    up();
  }
  return last === 0 ? result : new Uint8Array();
};
// A signed note: the text, an empty line, and lines of a name and a signature with four bytes of the key's hash.
const isSigned = async (checkpoint, signer) => {
  const end = checkpoint.indexOf("\n\n") + 1;
  // The key is base64, which can have a plus sign too.
  const [name, , ...key] = signer.split("+");
  const line = checkpoint.slice(end).split("\n").find((it) => it.startsWith(`— ${name} `));
  if (!line) return false;
  const imported = await crypto.subtle.importKey("raw", bytes(key.join("+")).slice(1), "Ed25519", false, ["verify"]);
  const note = new TextEncoder().encode(checkpoint.slice(0, end));
  return crypto.subtle.verify("Ed25519", imported, bytes(line.split(" ")[2]).slice(4), note);
};
const check = async (section) => {
  const signed = await (await fetch(section.dataset.proof)).json();
  const root = await rootOf(signed);
  const [, size, stated] = signed.proof.checkpoint.split("\n");
  const isIncluded = root.toHex() === bytes(stated).toHex() && Number(size) === signed.size;
  if (!isIncluded) return ["bad", "the root differs"];
  if (!(await isSigned(signed.proof.checkpoint, section.dataset.signer ?? ""))) return ["bad", "the signature is wrong"];
  return ["ok", "checked in this browser"];
};
for (const section of document.querySelectorAll("[data-proof]")) {
  const shown = section.querySelector("[data-verdict]");
  check(section)
    .catch((error) => ["bad", `not checked: ${error.message}`])
    .then(([kind, text]) => { shown.classList.add(kind); shown.textContent = text; });
}
