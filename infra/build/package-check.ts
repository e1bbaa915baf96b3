// Checks that a release contains only what it may.

import { VENDOR_KEYS } from "../../shared/licensing/vendor-keys.ts";
import type { Bundled } from "./packages.ts";

/** File patterns that a release may contain: the app, the documentation pages, its font, and the bill of materials. */
const FILES = [
  /^(host|package)\.json$/,
  /^dist\/[\w.-]+\.mjs$/,
  /^dist\/docs\/[\w.-]+\.(css|js|png|json)(\.gz)?$/,
  /^dist\/page\/[\w.-]+\.(html|css|js|svg|json)(\.gz|\.br)?$/,
  /^dist\/fonts\/[\w-]+\.woff$/,
  /^sbom\.cdx\.json$/,
  /^THIRD-PARTY-LICENSES\.txt$/,
];

/** Folders of the app's source. Commands run on a person's machine and are not part of a release. */
const SOURCES = /^(shared|functions(?!\/commands))\//;

/** Sources of a build, in the folder where it is built. */
const TOP_FOLDERS = ["node_modules", "shared", "functions", "infra", "test", "dist"];

/** Texts that occur only in the functions host, the simulated cloud, the local service or the tests. */
export const MARKS = ["/__host/", "stand-in", "azurite/package.json", "infra/local", "moved-clock", "correct-horse"];

/** A public Ed25519 key: the `x` of a JSON Web Key, in a string literal or in JSON inside of one. */
const LICENCE_KEY = /\bx["'`\\]*:\s*["'`\\]+([\w-]{43})(?![\w-])/g;

/**
 * Returns the reasons why files are not a valid release, one line each.
 * @param files contents of the package's files by path
 * @param root the folder of the build, whose path no file may contain
 */
export function problemsOf(files: ReadonlyMap<string, Uint8Array>, bundled: Bundled, root: string): string[] {
  const problems = [...files.keys()]
    .filter((file) => !FILES.some((allowed) => allowed.test(file)))
    .map((file) => `${file}: no file of a release`);
  for (const file of bundled.own) {
    if (!SOURCES.test(file)) problems.push(`${file}: bundled, and no part of the app`);
  }
  for (const id of bundled.forDevelopment) problems.push(`${id}: bundled, and only development needs it`);
  for (const [id, { license, licenseTexts }] of bundled.packages) {
    if (license === undefined && licenseTexts.length === 0) problems.push(`${id}: says nothing of its licence`);
  }

  // Matches the complete path, because a short folder name such as /app is a prefix of many URLs.
  const named = TOP_FOLDERS.map((folder) => `${root}/${folder}/`);
  const keys = new Set<string>();
  for (const [file, data] of files) {
    const text = Buffer.from(data).toString("latin1");
    if (file.endsWith(".mjs")) {
      for (const [, key] of text.matchAll(LICENCE_KEY)) keys.add(key!);
      if (text.includes("sourceMappingURL=data:")) problems.push(`${file}: has a source map inside`);
      for (const mark of MARKS) {
        if (text.includes(mark)) problems.push(`${file}: has "${mark}", which only tests and the local service have`);
      }
    }
    if (named.some((start) => text.includes(start))) problems.push(`${file}: names the folder ${root}`);
  }
  const vendors = VENDOR_KEYS.map(({ x }) => x);
  for (const key of keys)
    if (!vendors.includes(key)) problems.push(`the licence key ${key} is built in, and no vendor's`);
  for (const key of vendors) if (!keys.has(key)) problems.push(`the vendor's licence key ${key} is not found`);
  return problems;
}
