// expect: {"order":"abc","months":["2026-01","2026-02","2026-03"],"gap":398}
// stdout: {"at":"2026-01-15T10:00:00.000Z","name":"a"}
type Event = { at: Date; name: string };
const events: Event[] = [
  { at: new Date("2026-03-01"), name: "c" }, { at: new Date("2026-01-15T10:00:00Z"), name: "a" }, { at: new Date(Date.UTC(2026, 1, 1)), name: "b" },
];
events.sort((x, y) => x.at.getTime() - y.at.getTime());
const months = events.map(({ at }) => at.toISOString().slice(0, 7));
console.log(JSON.stringify(events[0]));
({ order: events.map((e) => e.name).join(""), months, gap: (events[1].at.valueOf() - events[0].at.valueOf()) / 36e5 });
