// Checks the files of a release before package.ts writes it. A release has only files of the app, no code of tests or
// development, no license key except the vendor's, and no path of the machine that built it.

import type { Metafile } from "esbuild";
import { VENDOR_KEYS } from "../../shared/licensing/vendor-keys.ts";
import { type Bundled, packagesOf } from "./packages.ts";

/** File patterns that a release may contain: the app, the documentation pages, its font, and the bill of materials. */
const ALLOWED_FILES = [
  /^(host|package)\.json$/,
  /^dist\/[\w.-]+\.mjs$/,
  /^dist\/docs\/[\w.-]+\.(css|js|png|json)(\.gz)?$/,
  /^dist\/page\/[\w.-]+\.(html|css|js|svg|json)(\.gz|\.br)?$/,
  /^dist\/fonts\/[\w-]+\.woff$/,
  /^sbom\.cdx\.json$/,
  /^LICENSE$/,
  /^CHANGELOG\.md$/,
  /^THIRD-PARTY-LICENSES\.txt$/,
];

/**
 * Source files that a release may bundle. The commands in functions/commands run on a person's machine and are not included.
 */
const APP_SOURCES = /^(shared|functions(?!\/commands))\//;

/** Folders of the project. A release that contains the absolute path of one of them reveals where it was built. */
const FOLDERS_OF_THE_PROJECT = ["node_modules", "shared", "functions", "infra", "test", "dist"];

/**
 * Texts whose presence in a bundle shows that code of the functions host, the simulated cloud, the local service or the tests
 * is in it.
 */
export const DEVELOPMENT_TEXTS = [
  "/__host/",
  "stand-in",
  "azurite/package.json",
  "infra/local",
  "moved-clock",
  "correct-horse",
];

/** Matches a public Ed25519 key: the `x` of a JSON Web Key, as `x: "…"` or, in JSON inside a string literal, `\"x\":\"…\"`. */
const LICENCE_KEY = /\bx["'`\\]*:\s*["'`\\]+([\w-]{43})(?![\w-])/g;

/**
 * Returns the reasons why files are not a valid release, one line each.
 * @param files contents of the package's files by path
 * @param root the folder of the build, whose path no file may contain
 */
export function problemsOf(files: ReadonlyMap<string, Uint8Array>, bundled: Bundled, root: string): string[] {
  const problems = [...files.keys()]
    .filter((file) => !ALLOWED_FILES.some((allowed) => allowed.test(file)))
    .map((file) => `${file}: is not a file of a release`);
  for (const file of bundled.own) {
    if (!APP_SOURCES.test(file)) problems.push(`${file}: is bundled but is not part of the app`);
  }
  for (const id of bundled.forDevelopment) problems.push(`${id}: is bundled but is a development dependency`);
  for (const [id, { license, licenseTexts }] of bundled.packages) {
    if (license === undefined && licenseTexts.length === 0) problems.push(`${id}: does not state its license`);
  }

  // Matches the complete path, because a short folder name such as /app is a prefix of many URLs.
  const absolutePaths = FOLDERS_OF_THE_PROJECT.map((folder) => `${root}/${folder}/`);
  const builtInKeys = new Set<string>();
  for (const [file, data] of files) {
    const text = Buffer.from(data).toString("latin1");
    if (file.endsWith(".mjs")) {
      for (const [, key] of text.matchAll(LICENCE_KEY)) builtInKeys.add(key!);
      if (text.includes("sourceMappingURL=data:")) problems.push(`${file}: contains a source map`);
      for (const developmentText of DEVELOPMENT_TEXTS) {
        if (text.includes(developmentText))
          problems.push(`${file}: contains "${developmentText}", which occurs only in development code`);
      }
    }
    if (absolutePaths.some((start) => text.includes(start)))
      problems.push(`${file}: contains the path of the folder ${root}`);
  }
  const vendorKeys = VENDOR_KEYS.map(({ x }) => x);
  for (const key of builtInKeys)
    if (!vendorKeys.includes(key)) problems.push(`the license key ${key} is built in but is not the vendor's`);
  for (const key of vendorKeys)
    if (!builtInKeys.has(key)) problems.push(`the vendor's license key ${key} is not found`);
  return problems;
}

/**
 * Returns the reasons why the commands of a deployment are not valid in a release. The commands may bundle only packages of the
 * app, which the bill of materials and the license file list.
 */
export function problemsOfCommands(metafile: Metafile, { packages }: Bundled, root: string): string[] {
  const bundled = packagesOf(root, { metafile, copied: [], outdir: "" });
  return [...bundled.packages.keys()]
    .filter((id) => !packages.has(id))
    .map((id) => `${id}: a command bundles it, but the app does not`);
}
