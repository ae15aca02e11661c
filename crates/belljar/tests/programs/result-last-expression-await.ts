// expect: 42
const double = async (x: number): Promise<number> => x * 2;
await double(21);
