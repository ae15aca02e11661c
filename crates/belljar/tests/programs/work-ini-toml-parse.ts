// expect: {"server":{"host":"127.0.0.1","port":8080},"flags":{"debug":true,"empty":""}}
const ini = `; comment
[server]
host = 127.0.0.1
port=8080
[ flags ]
debug = true
empty =
`;
const config = ini.split(/\r?\n/).reduce<{ section: string; out: Record<string, Record<string, string | number | boolean>> }>((acc, raw) => {
  const line = raw.trim();
  if (!line || line.startsWith(";")) return acc;
  const section = line.match(/^\[\s*(.+?)\s*\]$/)?.[1];
  if (section) return { section, out: { ...acc.out, [section]: {} } };
  const [k, ...v] = line.split("=");
  const value = v.join("=").trim();
  acc.out[acc.section][k.trim()] = value === "true" ? true : value !== "" && !isNaN(Number(value)) ? Number(value) : value;
  return acc;
}, { section: "", out: {} }).out;
config;
