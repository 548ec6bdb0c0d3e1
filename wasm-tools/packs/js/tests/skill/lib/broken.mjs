export function broken() {
  throw new RangeError("too far", { cause: 1 });
}
