// expect: [{"celsius":100,"fahrenheit":212},{"nested":{"celsius":0,"fahrenheit":32}}]
class Temperature {
  constructor(c) { this.c = c; }
  toJSON() { return { celsius: this.c, fahrenheit: this.c * 1.8 + 32 }; }
}
[new Temperature(100), { nested: new Temperature(0) }];
