/** The npm packages in a build: which they are, under which licence, and who imports whom. */
import { existsSync, readdirSync, readFileSync } from "node:fs";
import path from "node:path";
import type { BuiltApp } from "./build.ts";

export interface BundledPackage {
  name: string;
  version: string;
  /** As its package.json declares it, mostly an SPDX expression. */
  license: string | undefined;
  /** Who made it and where it is kept, as its package.json says. */
  origin: string;
  /** `sha512-…` in base64, as package-lock.json has it. */
  integrity: string | undefined;
  /** The contents of its licence and notice files. */
  licenseTexts: string[];
  /** Ids of the packages whose files its files import. */
  imports: string[];
}

export interface Bundled {
  /** By id, `name@version`, sorted. */
  packages: Map<string, BundledPackage>;
  /** Ids of the packages that the app's own files import, or that are copied beside them. */
  imported: string[];
  /** Of everything in the build, the files that are no package's, relative to the project's root. */
  own: string[];
  /** Ids of bundled packages that only development needs, says package-lock.json. */
  forDevelopment: string[];
}

const PACKAGE_FOLDER = /^(?:.*\/)?node_modules\/(?:@[^/]+\/)?[^/]+(?=\/)/;
const LICENSE_FILE = /^(licen[cs]e|copying|notice|copyright)[^.]*(\.(md|txt))?$/i;

/** @param root the project's folder, with node_modules and package-lock.json */
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

  // Files of which nothing was left in any chunk are not in the build.
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
  // A file of which nothing is left may be the one that leads from one package to the next.
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
      ...described(root, folder),
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

function described(root: string, folder: string): Pick<BundledPackage, "name" | "version" | "license" | "origin"> {
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

/** Of the package, and of what others a copied file holds that was bundled before. */
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
