/**
 * Lists the npm packages that a build contains, with their licenses and with the packages that each imports. package.ts uses
 * the list for the license file, the bill of materials and the checks of a release.
 */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import type { BuiltApp } from "./build.ts";

export interface BundledPackage {
  name: string;
  version: string;
  /** License in its package.json, usually an SPDX expression. */
  license: string | undefined;
  /** Author and repository in its package.json. */
  origin: string;
  /** `sha512-…` in base64, from package-lock.json. */
  integrity: string | undefined;
  /** Contents of its license and notice files. */
  licenseTexts: string[];
  /** IDs of the packages that it imports. */
  imports: string[];
}

export interface Bundled {
  /** Packages by ID `name@version`, sorted. */
  packages: Map<string, BundledPackage>;
  /** IDs of the packages that the app imports, or whose files are copied. */
  imported: string[];
  /** Files of the build that belong to no package, relative to the project's root. */
  own: string[];
  /** IDs of bundled packages that package-lock.json marks as development dependencies. */
  forDevelopment: string[];
}

/** Matches the folder of the innermost package of a file, for example `node_modules/@azure/identity`. */
const PACKAGE_FOLDER = /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/;
/** Matches the names of license and notice files, for example `LICENSE`, `licence.md` and `NOTICE.txt`. */
const LICENSE_FILE = /^(licen[cs]e|copying|notice|copyright)[^.]*(\.(md|txt))?$/i;

/**
 * Lists the packages of a build.
 * @param root the project's folder, with node_modules and package-lock.json
 */
export function packagesOf(root: string, { metafile, copied }: BuiltApp): Bundled {
  const lockFile = readJson<{ packages: Record<string, { integrity?: string; dev?: boolean }> }>(
    root,
    "package-lock.json",
  );
  /** Package IDs by folder, of all folders that `idOf` looked up. */
  const idByFolder = new Map<string, string>();
  const idOf = (file: string): string | undefined => {
    const folder = PACKAGE_FOLDER.exec(file)?.[0];
    if (folder === undefined) return undefined;
    if (!idByFolder.has(folder)) {
      const { name, version } = readJson<{ name: string; version: string }>(root, folder, "package.json");
      idByFolder.set(folder, `${name}@${version}`);
    }
    return idByFolder.get(folder);
  };

  // Files whose code was completely removed from all chunks are not part of the build.
  const bundled = Object.values(metafile.outputs).flatMap(({ inputs }) =>
    Object.entries(inputs).flatMap(([file, { bytesInOutput }]) => (bytesInOutput > 0 ? [file] : [])),
  );
  const files = [...new Set([...bundled, ...copied])].sort();
  const includedIds = new Set(files.map(idOf));
  /** The imported packages by ID of the importing package; the app's own files have the key undefined. */
  const importsOf = new Map<string | undefined, Set<string>>();
  const addImport = (from: string | undefined, to: string | undefined) => {
    if (to === undefined || to === from || !includedIds.has(to)) return;
    importsOf.set(from, (importsOf.get(from) ?? new Set()).add(to));
  };
  // Includes files whose code was removed: an import can lead from one package to the next through such a file.
  for (const [file, input] of Object.entries(metafile.inputs)) {
    for (const { path: imported } of input.imports) addImport(idOf(file), idOf(imported));
  }
  for (const file of copied) addImport(undefined, idOf(file));

  const packages = new Map<string, BundledPackage>();
  for (const [folder, id] of [...idByFolder].sort()) {
    if (!includedIds.has(id) || packages.has(id)) continue;
    const { integrity } = lockFile.packages[folder] ?? {};
    const texts = licenseTexts(root, folder, copied);
    packages.set(id, {
      ...readDescription(root, folder),
      integrity,
      licenseTexts: texts,
      imports: sorted(importsOf.get(id)),
    });
  }
  return {
    packages: new Map([...packages].sort(([one], [other]) => (one < other ? -1 : 1))),
    imported: sorted(importsOf.get(undefined)),
    own: files.filter((file) => idOf(file) === undefined),
    forDevelopment: sorted(
      bundled.flatMap((file) => (lockFile.packages[PACKAGE_FOLDER.exec(file)?.[0] ?? ""]?.dev ? [idOf(file)!] : [])),
    ),
  };
}

const sorted = (ids: Iterable<string> = []): string[] => [...new Set(ids)].sort();

const readJson = <T>(...file: string[]): T => JSON.parse(readFileSync(path.join(...file), "utf8")) as T;

type Person = string | { name: string } | undefined;

function readDescription(
  root: string,
  folder: string,
): Pick<BundledPackage, "name" | "version" | "license" | "origin"> {
  const { name, version, license, author, repository } = readJson<{
    name: string;
    version: string;
    license?: string;
    author?: Person;
    repository?: string | { url: string };
  }>(root, folder, "package.json");
  const authorName = typeof author === "object" ? author.name : author;
  const repositoryUrl = typeof repository === "object" ? repository.url : repository;
  return { name, version, license, origin: [authorName, repositoryUrl].filter(Boolean).join(", ") };
}

/**
 * Returns the license texts of a package. A copied file can already bundle other packages; the license texts of those are in
 * `<file>.LICENSE.txt` beside it.
 */
function licenseTexts(root: string, folder: string, copied: string[]): string[] {
  const licenseFiles = readdirSync(path.join(root, folder), { withFileTypes: true })
    .filter((entry) => entry.isFile() && LICENSE_FILE.test(entry.name))
    .map(({ name }) => `${folder}/${name}`)
    .sort();
  const bundledLicenseFiles = copied
    .filter((file) => file.startsWith(`${folder}/`))
    .map((file) => `${file}.LICENSE.txt`);
  return [...licenseFiles, ...bundledLicenseFiles.filter((file) => existsSync(path.join(root, file)))].map((file) =>
    readFileSync(path.join(root, file), "utf8").replaceAll("\r\n", "\n").trim(),
  );
}
