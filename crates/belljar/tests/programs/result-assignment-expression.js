// expect: {"done":true,"n":3}
let state;
state = { done: true, n: 3 };
