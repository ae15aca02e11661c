// stdout: 1
// stdout: 2
// stdout: Fizz
// stdout: 4
// stdout: Buzz
// stdout: Fizz
// stdout: 7
// stdout: 8
// stdout: Fizz
// stdout: Buzz
// stdout: 11
// stdout: Fizz
// stdout: 13
// stdout: 14
// stdout: FizzBuzz
for (let i = 1; i <= 15; i++) {
  console.log((i % 3 ? "" : "Fizz") + (i % 5 ? "" : "Buzz") || i);
}
