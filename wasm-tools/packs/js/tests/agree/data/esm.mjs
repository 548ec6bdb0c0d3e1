export default 'default'; export const named = 'named'; export function f() {}
