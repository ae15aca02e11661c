// expect: {"ok":false,"status":404,"message":"404: not_found (no product 999)","type":"application/json"}
const res = await fetch("https://api.shop.test/products/999");
let message;
if (!res.ok) {
  const { error } = await res.json();
  message = `${res.status}: ${error.code} (${error.message})`;
}
({ ok: res.ok, status: res.status, message, type: res.headers.get("Content-Type") });
