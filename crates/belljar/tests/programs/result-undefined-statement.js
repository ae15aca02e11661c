
let x = 1;
for (let i = 0; i < 5; i++) x *= 2;
const unused = x;
