// expect: {"label":"running","names":["Pending","Active","Done"],"colors":["RED","GREEN"]}
// stdout: Done 6 GREEN
enum Status { Pending, Active = 5, Done }
enum Color { Red = "RED", Green = "GREEN" }

const label = (s: Status): string => {
  switch (s) {
    case Status.Pending: return "waiting";
    case Status.Active: return "running";
    default: return "finished";
  }
};
console.log(Status[6], Status.Done, Color.Green);
return { label: label(Status.Active), names: Object.keys(Status).filter((k) => isNaN(Number(k))), colors: Object.values(Color) };
