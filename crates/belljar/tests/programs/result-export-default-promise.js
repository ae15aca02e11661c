// expect: [1,2]
export const meta = { author: "me" };
export default Promise.all([1, Promise.resolve(2)]);
