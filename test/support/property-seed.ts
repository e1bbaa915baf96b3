import { configureGlobal } from "fast-check";
import { SEED } from "./sampling.ts";

/** Vitest loads this file before each test file. It makes property tests (fast-check) use the seed of sampling.ts. */
configureGlobal({ seed: SEED });
