// expect: {"emails":["ada@example.com","grace.hopper@navy.mil"],"domains":["example.com","navy.mil"]}
const text = "Contact: ada@example.com, bad@, grace.hopper@navy.mil; ADA@example.com and foo@bar";
const emails = new Set((text.match(/[\w.+-]+@[\w-]+(?:\.[\w-]+)+/g) ?? []).map((e) => e.toLowerCase()));
const domains = [...emails].map((e) => e.split("@")[1]);
return { emails: [...emails], domains };
