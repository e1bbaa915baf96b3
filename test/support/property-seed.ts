import { configureGlobal } from "fast-check";
import { SEED } from "./sampling.ts";

/** Property tests use the same seed, so that every run of the suite tests the same cases. */
configureGlobal({ seed: SEED });
