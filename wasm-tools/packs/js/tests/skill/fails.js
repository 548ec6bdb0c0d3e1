function inner(value) {
  return value.missing.deeper;
}
inner({});
