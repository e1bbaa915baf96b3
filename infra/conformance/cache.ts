import path from "node:path";

/** The project's folder. */
export const ROOT = path.resolve(import.meta.dirname, "../..");

/** Folder for downloads and installed tools of the conformance suite. `npm ci` deletes it. */
export const CACHE = path.join(ROOT, "node_modules/.cache/conformance");

/** Environment of the command `go`, whose downloads and builds stay in `CACHE`. */
export const GO = {
  GOMODCACHE: path.join(CACHE, "go/mod"),
  GOCACHE: path.join(CACHE, "go/build"),
  GOFLAGS: "-modcacherw",
};
