// expect: "15.142"
// stdout: Circle with area 3.14
// stdout: Rectangle with area 12.00
abstract class Shape {
  constructor(protected readonly label: string) {}
  abstract area(): number;
  describe(): string {
    return `${this.label} with area ${this.area().toFixed(2)}`;
  }
}
class Circle extends Shape {
  constructor(private radius: number) { super("Circle"); }
  override area() { return Math.PI * this.radius ** 2; }
}
class Rect extends Shape {
  constructor(private w: number, private h: number) { super("Rectangle"); }
  override area() { return this.w * this.h; }
}
const shapes: Shape[] = [new Circle(1), new Rect(3, 4)];
for (const shape of shapes) console.log(shape.describe());
shapes.reduce((sum, s) => sum + s.area(), 0).toFixed(3);
