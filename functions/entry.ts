/**
 * The bundle's entry: the app itself, with the code that V8 compiles for it kept on disk. A third of a start is compiling,
 * which the next process on the same machine is spared. The folder is Node's own choice: NODE_COMPILE_CACHE, or one in
 * the folder for temporary files, which can be written where the package can't; NODE_DISABLE_COMPILE_CACHE=1 does without.
 */
import { enableCompileCache, flushCompileCache } from "node:module";

/** What is loaded late is kept too. A worker that is killed writes nothing at its end. */
const KEPT_AFTER_MS = 15_000;

enableCompileCache();
await import("./main.ts");
setTimeout(() => flushCompileCache(), KEPT_AFTER_MS).unref();
