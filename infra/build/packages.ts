/** Lists the npm packages in a build: their licenses, and which package imports which. */
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

const PACKAGE_FOLDER = /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/;
const LICENSE_FILE = /^(licen[cs]e|copying|notice|copyright)[^.]*(\.(md|txt))?$/i;

/**
 * Lists the packages of a build.
 * @param root the project's folder, with node_modules and package-lock.json
 */
export function packagesOf(root: string, { metafile, copied }: BuiltApp): Bundled {
  const lock = readJson<{ packages: Record<string, { integrity?: string; dev?: boolean }> }>(root, "package-lock.json");
  const ids = new Map<string, string>();
  const idOf = (file: string): string | undefined => {
    const folder = PACKAGE_FOLDER.exec(file)?.[0];
    if (folder === undefined) return undefined;
    if (!ids.has(folder)) {
      const { name, version } = readJson<{ name: string; version: string }>(root, folder, "package.json");
      ids.set(folder, `${name}@${version}`);
    }
    return ids.get(folder);
  };

  // Files whose code was completely removed from all chunks are not part of the build.
  const bundled = Object.values(metafile.outputs).flatMap(({ inputs }) =>
    Object.entries(inputs).flatMap(([file, { bytesInOutput }]) => (bytesInOutput > 0 ? [file] : [])),
  );
  const files = [...new Set([...bundled, ...copied])].sort();
  const present = new Set(files.map(idOf));
  const importsOf = new Map<string | undefined, Set<string>>();
  const imports = (from: string | undefined, to: string | undefined) => {
    if (to === undefined || to === from || !present.has(to)) return;
    importsOf.set(from, (importsOf.get(from) ?? new Set()).add(to));
  };
  // A file whose code was removed can still connect one package with the next.
  for (const [file, input] of Object.entries(metafile.inputs)) {
    for (const { path: imported } of input.imports) imports(idOf(file), idOf(imported));
  }
  for (const file of copied) imports(undefined, idOf(file));

  const packages = new Map<string, BundledPackage>();
  for (const [folder, id] of [...ids].sort()) {
    if (!present.has(id) || packages.has(id)) continue;
    const { integrity } = lock.packages[folder] ?? {};
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
      bundled.flatMap((file) => (lock.packages[PACKAGE_FOLDER.exec(file)?.[0] ?? ""]?.dev ? [idOf(file)!] : [])),
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
  const maker = typeof author === "object" ? author.name : author;
  const kept = typeof repository === "object" ? repository.url : repository;
  return { name, version, license, origin: [maker, kept].filter(Boolean).join(", ") };
}

/** Returns the licenses of the package and of packages that one of its copied files already bundles. */
function licenseTexts(root: string, folder: string, copied: string[]): string[] {
  const own = readdirSync(path.join(root, folder), { withFileTypes: true })
    .filter((entry) => entry.isFile() && LICENSE_FILE.test(entry.name))
    .map(({ name }) => `${folder}/${name}`)
    .sort();
  const beside = copied.filter((file) => file.startsWith(`${folder}/`)).map((file) => `${file}.LICENSE.txt`);
  return [...own, ...beside.filter((file) => existsSync(path.join(root, file)))].map((file) =>
    readFileSync(path.join(root, file), "utf8").replaceAll("\r\n", "\n").trim(),
  );
}
