// expect: {"stable":["Ann","Cid","Dave","Bob"],"quick":[1,2,2,3,6,8,9],"dflt":[1,10,9],"rev":[3,2,1],"spliced":[1,3],"with":[9,2]}
const people = [["Dave", 30], ["Ann", 25], ["Bob", 30], ["Cid", 25]].map(([name, age]) => ({ name, age }));
const stable = [...people].sort((a, b) => a.age - b.age).map((p) => p.name);
const quick = (xs) => xs.length < 2 ? xs : (([p, ...r]) => [...quick(r.filter((x) => x < p)), p, ...quick(r.filter((x) => x >= p))])(xs);
({ stable, quick: quick([3, 6, 1, 8, 2, 9, 2]), dflt: [10, 9, 1].sort(), rev: [1, 2, 3].toReversed(), spliced: [1, 2, 3].toSpliced(1, 1), with: [1, 2].with(0, 9) });
