/** A table by texts that come from outside. A plain object would also answer to `constructor` and `__proto__`. */
export function dictionary<T>(entries: Readonly<Record<string, T>>): Readonly<Record<string, T>> {
  return Object.assign(Object.create(null) as Record<string, T>, entries);
}
