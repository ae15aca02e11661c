// oracle: hand: engines differ in where they notice
// error: SyntaxError
function broken(x: number) {
  if (x > 1) {
    return x;

console.log(broken(2));
