import type { HttpMethod } from "@azure/functions";
import type { TimerDeclaration } from "./kit.ts";

/** What the platform is told of every function, and the area that declares it. */
export interface FunctionIndex {
  endpoints: { area: string; name: string; route: string; methods: HttpMethod[] }[];
  timers: { area: string; name: string; schedule: TimerDeclaration["schedule"] }[];
  queues: { area: string; name: string; queue: string }[];
}

/** As JSON, put in by the build. */
declare const __FUNCTIONS__: string;

/** The index that the build made of this bundle's declarations (`function-index.ts`): it is there only in a bundle. */
export const builtIndex = (): FunctionIndex => JSON.parse(__FUNCTIONS__);
