// The version of this source tree: package.json is its only place. The bundle, the release's files and the templates take it
// from here.

import { spawnSync } from "node:child_process";
import { readFileSync } from "node:fs";
import path from "node:path";

export interface SourceVersion {
  /** Semantic version of the service, from package.json. */
  version: string;
  /** Git commit of the sources. Null outside of a Git repository, and if files differ from the commit. */
  commit: string | null;
}

/** Reads the version of the project in a folder. */
export function sourceVersion(root: string): SourceVersion {
  const { version } = JSON.parse(readFileSync(path.join(root, "package.json"), "utf8")) as { version: string };
  const git = (...args: string[]) => spawnSync("git", args, { cwd: root, encoding: "utf8" });
  const [commit, changes] = [git("rev-parse", "HEAD"), git("--no-optional-locks", "status", "--porcelain")];
  const isCommit = commit.status === 0 && changes.status === 0 && changes.stdout === "";
  return { version, commit: isCommit ? commit.stdout.trim() : null };
}
