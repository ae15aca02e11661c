// stdout: Dwwdfn dw Gdzq! -> Attack at Dawn!
const shift = (s, k) => s.replace(/[a-z]/gi, (c) => {
  const base = c <= "Z" ? 65 : 97;
  return String.fromCharCode(((c.charCodeAt(0) - base + k + 26) % 26) + base);
});
const secret = shift("Attack at Dawn!", 3);
console.log(secret, "->", shift(secret, -3));
