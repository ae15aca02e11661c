// stderr: Failed: TypeError
async function main() {
  const data = await Promise.resolve({ items: null });
  return data.items.length;
}

main()
  .then((n) => console.log("length", n))
  .catch((err) => console.error("Failed:", err.name));
