/**
 * Entry point of the bundle. Enables Node's compile cache, because compiling is a third of the startup time. Node chooses the
 * folder: NODE_COMPILE_CACHE, or a folder in the temporary directory, which is writable where the package is not.
 * NODE_DISABLE_COMPILE_CACHE=1 disables the cache.
 */
import { enableCompileCache, flushCompileCache } from "node:module";

/**
 * Writes the cache again for modules that are loaded after startup. A worker that is killed does not write the cache when it
 * exits.
 */
const FLUSH_CACHE_AFTER_MS = 15_000;

enableCompileCache();
await import("./main.ts");
setTimeout(() => flushCompileCache(), FLUSH_CACHE_AFTER_MS).unref();
