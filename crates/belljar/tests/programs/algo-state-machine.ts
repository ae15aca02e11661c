// expect: "success"
// stdout: idle -> loading -> failure -> loading -> loading -> success -> success
const machine = {
  idle: { FETCH: "loading" },
  loading: { RESOLVE: "success", REJECT: "failure" },
  failure: { RETRY: "loading" },
  success: {},
} as const;
type State = keyof typeof machine;
const step = (s: State, e: string): State => (machine[s] as Record<string, State>)[e] ?? s;
const trace = ["FETCH", "REJECT", "RETRY", "NOISE", "RESOLVE", "FETCH"].reduce<State[]>((acc, e) => [...acc, step(acc.at(-1)!, e)], ["idle"]);
console.log(trace.join(" -> "));
trace.at(-1);
