export interface Row { id: number }
