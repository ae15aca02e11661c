// oracle: hand
// expect: "rejected"
// A package that is not installed fails with an error, not a crash
let outcome = "loaded";
try {
  const _ = require("lodash");
  outcome = _.chunk([1, 2, 3], 2).length;
} catch (e) {
  outcome = e instanceof Error ? "rejected" : "odd";
}
outcome;
