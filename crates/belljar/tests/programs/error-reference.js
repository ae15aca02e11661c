// error: ReferenceError at 5
const total = 10;
const tax = 0.2;

return totl * tax;
