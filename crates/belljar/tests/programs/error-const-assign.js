// error: TypeError at 5
const limit = 5;
let count = 0;
while (count < 2) count++;
limit = count;
