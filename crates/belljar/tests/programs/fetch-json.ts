// expect: {"id":7,"name":"Product 7","category":"garden","price":10.58,"stock":5}
// stdout: Product 7 costs 10.58
const response = await fetch("https://api.shop.test/products/7");
if (!response.ok) throw new Error(`HTTP ${response.status}`);
const product = (await response.json()) as { id: number; name: string; price: number };
console.log(`${product.name} costs ${product.price.toFixed(2)}`);
product;
