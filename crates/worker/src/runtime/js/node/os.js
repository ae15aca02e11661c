(load, native) => ({
  EOL: "\n", platform: () => "linux", type: () => "Linux", arch: () => native.arch, release: () => "6.0.0", version: () => "", machine: () => native.arch === "x64" ? "x86_64" : native.arch,
  hostname: () => "belljar", homedir: () => native.env().HOME ?? "/workspace", tmpdir: () => "/tmp", endianness: () => "LE",
  cpus: () => [{ model: "cpu", speed: 0, times: { user: 0, nice: 0, sys: 0, idle: 0, irq: 0 } }], availableParallelism: () => 1,
  totalmem: () => 512 * 2 ** 20, freemem: () => 256 * 2 ** 20, uptime: () => Math.floor(native.now() / 1000), loadavg: () => [0, 0, 0], networkInterfaces: () => ({}),
  userInfo: () => ({ username: native.env().USER ?? "user", uid: 1000, gid: 1000, shell: null, homedir: native.env().HOME ?? "/workspace" }),
  constants: { signals: {}, errno: {} }, devNull: "/dev/null",
})
