import { configureGlobal } from "fast-check";
import { seedBy } from "./seed.ts";

/** Properties that name no seed draw by this one: the same cases in each run of the suite, others with `CASES_SEED`. */
configureGlobal({ seed: seedBy("CASES_SEED") });
