// expect: {"name":"app","version":"1.2.3","ready":true}
const config = { name: "app", version: [1, 2, 3].join(".") };
export default { ...config, ready: true };
