/**
 * What a test draws by. The suite draws the same each time, so that it tells of the change that is tested and of nothing else;
 * campaigns draw others by the environment's variable, and a failure names its seed.
 */
export const seedBy = (variable: string): number => Number(process.env[variable] ?? 20_261_121);
