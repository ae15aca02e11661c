// expect: {"mine":5,"read":true,"write":false,"all":7}
const enum Perm { None = 0, Read = 1 << 0, Write = 1 << 1, Exec = 1 << 2, All = Read | Write | Exec }
const has = (p: Perm, f: Perm): boolean => (p & f) === f;
const mine: Perm = Perm.Read | Perm.Exec;
({ mine, read: has(mine, Perm.Read), write: has(mine, Perm.Write), all: Perm.All });
