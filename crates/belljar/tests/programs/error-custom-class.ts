// error: ValidationError at 12
// message: "age must be positive"
class ValidationError extends Error {
  constructor(message: string, public field: string) {
    super(message);
    this.name = "ValidationError";
  }
}

function validate(user: { age: number }) {
  if (user.age < 0) {
    throw new ValidationError("age must be positive", "age");
  }
  return true;
}

validate({ age: -1 });
