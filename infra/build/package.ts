/** Builds a release: the deployment package, its bill of materials and the licences of what it holds. See HELP. */
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { globSync, readFileSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { strToU8, type Zippable, zipSync } from "fflate";
import { buildApp } from "./build.ts";
import { commandLine } from "./command-line.ts";
import { licencesText } from "./licences.ts";
import { problemsOf } from "./package-check.ts";
import { type Bundled, packagesOf } from "./packages.ts";
import { sbomText } from "./sbom.ts";

const HELP = `npm run package -- [FOLDER]

Builds a release: one zip that is deployed as it is. The same commit, after npm ci, gives the same bytes.

  FOLDER   where it goes (.local/package)

credential-lifecycle-VERSION.zip   dist/, host.json, package.json, and the two files below
sbom.cdx.json                      what is bundled, as CycloneDX 1.6
THIRD-PARTY-LICENSES.txt           the licences of all of it

Ends with 1, and writes nothing, when there is something in it that no release may hold: a file of tests or of the local
service, a package that only development needs, a licence key that is not the vendor's, a source map.`;

const ROOT = path.resolve(import.meta.dirname, "../..");

export interface Release {
  /** The zip's path. */
  zip: string;
  sha256: string;
  /** What is in the zip, by path. */
  files: Map<string, Uint8Array>;
  bundled: Bundled;
}

/**
 * @param folder made if there is none; files of the same names are replaced
 * @throws when there is something in it that no release may hold, naming all of it
 */
export async function buildRelease(folder: string): Promise<Release> {
  const { name, version, type, main, engines } = JSON.parse(readFileSync(path.join(ROOT, "package.json"), "utf8"));
  const app = await mkdtemp(path.join(tmpdir(), "release-"));
  try {
    const built = await buildApp({ outdir: path.join(app, "dist"), release: true });
    const bundled = packagesOf(ROOT, built);
    const [legal, made] = filesIn(app);
    const files = new Map([
      ...made,
      ["host.json", readFileSync(path.join(ROOT, "host.json"))],
      // Without dependencies: nothing is to be installed where it is deployed.
      ["package.json", strToU8(`${JSON.stringify({ name, version, private: true, type, main, engines }, null, 2)}\n`)],
      ["THIRD-PARTY-LICENSES.txt", strToU8(licencesText(bundled, legal))],
    ]);
    files.set("sbom.cdx.json", strToU8(sbomText({ name, version }, bundled, digestOf(files))));

    const problems = problemsOf(files, bundled, ROOT);
    if (problems.length > 0) throw new Error(`This is no release:\n${problems.join("\n")}`);
    const zipped = zipOf(files);
    const zip = path.join(folder, `credential-lifecycle-${version}.zip`);
    await mkdir(folder, { recursive: true });
    await writeFile(zip, zipped);
    for (const beside of ["sbom.cdx.json", "THIRD-PARTY-LICENSES.txt"])
      await writeFile(path.join(folder, beside), files.get(beside)!);
    return { zip, sha256: sha256(zipped), files, bundled };
  } finally {
    await rm(app, { recursive: true, force: true });
  }
}

/** The texts of esbuild's legal comments, and every other file of the built app. */
function filesIn(app: string): [legal: string[], files: [string, Uint8Array][]] {
  const files = globSync("dist/**/*", { cwd: app, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name))
    .sort();
  const legal = (file: string) => file.endsWith(".LEGAL.txt");
  const rest = files.filter((file) => !legal(file));
  return [
    files.filter(legal).map((file) => readFileSync(file, "utf8")),
    rest.map((file) => [path.relative(app, file).split(path.sep).join("/"), readFileSync(file)]),
  ];
}

const sha256 = (data: Uint8Array | string): string => createHash("sha256").update(data).digest("hex");
const inOrder = (files: Map<string, Uint8Array>): [string, Uint8Array][] =>
  [...files].sort(([one], [other]) => (one < other ? -1 : 1));

const digestOf = (files: Map<string, Uint8Array>): string =>
  sha256(
    inOrder(files)
      .map(([file, data]) => `${sha256(data)}  ${file}\n`)
      .join(""),
  );

/**
 * By fflate, which is JavaScript: zlib's bytes differ between processors and versions of Node. Sorted, with the first
 * date a zip can hold (zips have local times, so it is made of local parts) and the rights of a file that all may read.
 */
function zipOf(files: Map<string, Uint8Array>): Uint8Array {
  const options = { mtime: new Date(1980, 0, 1), os: 3, attrs: (0o100644 << 16) >>> 0 };
  const entries: Zippable = {};
  for (const [file, data] of inOrder(files)) {
    entries[file] = [data, { ...options, level: /\.(gz|png|woff)$/.test(file) ? 0 : 6 }];
  }
  return zipSync(entries);
}

if (import.meta.main) {
  const { positionals } = commandLine(HELP, { allowPositionals: true, options: {} });
  const folder = path.resolve(positionals[0] ?? path.join(ROOT, ".local/package"));
  const { zip, sha256, files, bundled } = await buildRelease(folder);
  console.log(`${path.relative(process.cwd(), zip)}: ${files.size} files, ${bundled.packages.size} packages`);
  console.log(`sha256 ${sha256}`);
  const { stdout } = spawnSync("git", ["status", "--porcelain"], { cwd: ROOT, encoding: "utf8" });
  if (stdout) console.log("Not of a commit: the working folder has changes.");
}
