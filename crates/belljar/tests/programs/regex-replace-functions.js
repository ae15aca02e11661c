// expect: ["someSnakeCaseName","some_camel_case_name","Hello Big World","John Doe","Hi Bo, you are 7!"]
const camel = "some_snake_case_name".replace(/_(\w)/g, (_, c) => c.toUpperCase());
const snake = "someCamelCaseName".replace(/[A-Z]/g, (c) => `_${c.toLowerCase()}`);
const title = "hello big world".replace(/\b\w/g, (c) => c.toUpperCase());
const swapped = "Doe, John".replace(/(?<last>\w+), (?<first>\w+)/, "$<first> $<last>");
const template = "Hi {{ name }}, you are {{age}}!".replace(/\{\{\s*(\w+)\s*\}\}/g, (_, k) => ({ name: "Bo", age: 7 })[k]);
[camel, snake, title, swapped, template];
