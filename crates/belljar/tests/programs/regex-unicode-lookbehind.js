// expect: {"amounts":[12.5,8,3.99],"words":["naïve","café","東京","tower"],"emoji":4,"sticky":true,"d":[3,7]}
const prices = "cost: $12.50, €8, £3.99";
const amounts = prices.match(/(?<=[$€£])\d+(\.\d+)?/g).map(Number);
const words = "naïve café — 東京 tower".match(/\p{L}+/gu);
const emoji = [..."a👍🏽b"].length;
const sticky = /foo/y;
sticky.lastIndex = 3;
({ amounts, words, emoji, sticky: sticky.test("barfoo"), d: /(?<y>\d{4})/d.exec("in 2026").indices.groups.y });
