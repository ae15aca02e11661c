// expect: [3,-2,-4,-1,3,5,31,5.5,3,null,12]
// stdout: 0.30000000000000004 0.30 0.3333333333333333 1e+21 1e-7 -0 123456789012345680000
// stdout: ff 0.1 255 5 0 NaN
// stdout: 1.23e+3 0.0000012 true 9007199254740991
console.log(0.1 + 0.2, (0.1 + 0.2).toFixed(2), 1 / 3, 1e21, 1e-7, -0, 123456789012345680000);
console.log((255).toString(16), (0.5).toString(2), parseInt("ff", 16), Number("0b101"), Number(""), Number("12px"));
console.log((1234.5678).toExponential(2), (0.000001234).toPrecision(2), Number.EPSILON > 0, Number.MAX_SAFE_INTEGER);
[Math.round(2.5), Math.round(-2.5), Math.trunc(-4.7), Math.sign(-3), Math.round(Math.cbrt(27)), Math.hypot(3, 4), Math.clz32(1), Math.fround(5.5), Math.log10(1000), Math.max(), Math.imul(3, 4)];
