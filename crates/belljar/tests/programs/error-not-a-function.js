// error: TypeError at 6
const obj = { greet: "hello" };
const names = ["a", "b"];

names.forEach((name) => {
  obj.greet(name);
});
