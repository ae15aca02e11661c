// expect: [10,{"name":"RangeError","message":"division by zero"}]
const results = [1, 0].map((d) => {
  try {
    if (d === 0) throw new RangeError("division by zero");
    return 10 / d;
  } catch (e) {
    return { name: e.name, message: e.message };
  }
});
results;
