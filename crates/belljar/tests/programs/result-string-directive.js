// expect: "hi there"
"use strict";
const greeting = "hi";
`${greeting} there`;
