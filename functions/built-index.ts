import type { HttpMethod } from "@azure/functions";
import type { TimerDeclaration } from "./declare.ts";

/** Registration data of each function, and the area that declares the function. */
export interface FunctionIndex {
  endpoints: { area: string; name: string; route: string; methods: HttpMethod[] }[];
  timers: { area: string; name: string; schedule: TimerDeclaration["schedule"] }[];
  queues: { area: string; name: string; queue: string }[];
}

/** The index as JSON. The build replaces this name by the text. */
declare const __FUNCTIONS__: string;

/** Returns the index of all functions, which the build generates (`function-index.ts`). Works only in a bundle. */
export const builtIndex = (): FunctionIndex => JSON.parse(__FUNCTIONS__);
