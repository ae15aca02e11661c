// expect: ["0 B","512 B","1.5 KB","1 MB","5.1 GB"]
const formatBytes = (bytes: number, decimals = 1): string => {
  if (bytes === 0) return "0 B";
  const units = ["B", "KB", "MB", "GB", "TB"];
  const i = Math.floor(Math.log(bytes) / Math.log(1024));
  return `${parseFloat((bytes / 1024 ** i).toFixed(decimals))} ${units[i]}`;
};
[0, 512, 1536, 1048576, 5.5e9].map((b) => formatBytes(b));
