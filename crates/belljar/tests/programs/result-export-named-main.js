// expect: 5
export function add(a, b) {
  return a + b;
}
export const VERSION = "1.0";
add(2, 3);
