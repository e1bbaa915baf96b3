import { configureGlobal } from "fast-check";
import { SEED } from "./cases.ts";

/** Properties draw by it, too: the same cases in each run of the suite. */
configureGlobal({ seed: SEED });
