export const third: string = "third";
