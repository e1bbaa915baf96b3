/**
 * `npm run package`: builds a release. It consists of the zip file for deployment, its bill of materials, the licenses of its
 * contents, the Terraform module, and the commands of a deployment. The release workflow adds the compiled Bicep templates.
 */
import { createHash } from "node:crypto";
import { globSync, readdirSync, readFileSync } from "node:fs";
import { mkdir, mkdtemp, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import path from "node:path";
import { strToU8, type Zippable, zipSync } from "fflate";
import { buildApp, buildDeploymentCommands } from "./build.ts";
import { commandLine } from "./command-line.ts";
import { licencesText } from "./licences.ts";
import { problemsOf, problemsOfCommands } from "./package-check.ts";
import { type Bundled, packagesOf } from "./packages.ts";
import { sbomText } from "./sbom.ts";
import { type SourceVersion, sourceVersion } from "./source-version.ts";
import { terraformModuleFiles } from "./terraform-module.ts";

const HELP = `npm run package -- [FOLDER]

Builds a release. The same commit, after npm ci, produces the same bytes.

  FOLDER   output folder (default .local/package)

credential-lifecycle-VERSION.zip             for deployment: dist/, host.json, package.json, LICENSE, CHANGELOG.md, and the
                                             next two files
sbom.cdx.json                                bill of materials, CycloneDX 1.6
THIRD-PARTY-LICENSES.txt                     licenses of all bundled packages
credential-lifecycle-terraform-VERSION.zip   the Terraform module, in infra/terraform
make-secrets.mjs, first-password.mjs         commands of a deployment, each for Node alone

Exits with 1 and writes nothing if a release would contain a file of tests or of the local service, a development package,
a license key that is not the vendor's, or a source map.`;

const ROOT = path.resolve(import.meta.dirname, "../..");

export interface Release {
  /** Path of the zip file for deployment. */
  zip: string;
  source: SourceVersion;
  sha256: string;
  /** Contents of the zip file, by path. */
  files: Map<string, Uint8Array>;
  bundled: Bundled;
}

/**
 * Builds a release into a folder.
 * @param folder created if it does not exist; files with the same names are replaced
 * @throws if the release would contain forbidden files; the message lists all of them
 */
export async function buildRelease(folder: string): Promise<Release> {
  const { name, license, type, main, engines } = JSON.parse(readFileSync(path.join(ROOT, "package.json"), "utf8"));
  const source = sourceVersion(ROOT);
  const { version } = source;
  // npm's name of the commit: https://github.com/npm/read-package-json
  const described = { name, version, private: true, license, ...(source.commit && { gitHead: source.commit }) };
  const app = await mkdtemp(path.join(tmpdir(), "release-"));
  try {
    const built = await buildApp({ outdir: path.join(app, "dist"), release: true });
    const bundled = packagesOf(ROOT, built);
    const [legal, appFiles] = filesIn(app);
    const files = new Map([
      ...appFiles,
      ["host.json", readFileSync(path.join(ROOT, "host.json"))],
      // package.json has no dependencies, because deployments must not install any.
      ["package.json", jsonFile({ ...described, type, main, engines })],
      ...["LICENSE", "CHANGELOG.md"].map((file) => [file, readFileSync(path.join(ROOT, file))] as const),
      ["THIRD-PARTY-LICENSES.txt", strToU8(licencesText(bundled, legal))],
    ]);
    files.set("sbom.cdx.json", strToU8(sbomText({ name, ...source }, bundled, digestOf(files))));

    const problems = problemsOf(files, bundled, ROOT);
    const commands = await buildDeploymentCommands(path.join(app, "commands"));
    problems.push(...problemsOfCommands(commands, bundled, ROOT));
    if (problems.length > 0) throw new Error(`The release is not valid:\n${problems.join("\n")}`);
    const zipped = zipOf(files);
    const zip = path.join(folder, `credential-lifecycle-${version}.zip`);
    await mkdir(folder, { recursive: true });
    await writeFile(zip, zipped);
    for (const fileName of ["sbom.cdx.json", "THIRD-PARTY-LICENSES.txt"])
      await writeFile(path.join(folder, fileName), files.get(fileName)!);
    for (const fileName of readdirSync(path.join(app, "commands")))
      await writeFile(path.join(folder, fileName), readFileSync(path.join(app, "commands", fileName)));
    const module = new Map([
      ...terraformModuleFiles(ROOT),
      ["package.json", jsonFile(described)],
      ["LICENSE", readFileSync(path.join(ROOT, "LICENSE"))],
    ]);
    await writeFile(path.join(folder, `credential-lifecycle-terraform-${version}.zip`), zipOf(module));
    return { zip, source, sha256: sha256(zipped), files, bundled };
  } finally {
    await rm(app, { recursive: true, force: true });
  }
}

const jsonFile = (content: object): Uint8Array => strToU8(`${JSON.stringify(content, null, 2)}\n`);

/** Separates the texts of esbuild's legal comments from the other files of the built app. */
function filesIn(app: string): [legalComments: string[], files: [path: string, content: Uint8Array][]] {
  const files = globSync("dist/**/*", { cwd: app, withFileTypes: true })
    .filter((entry) => entry.isFile())
    .map((entry) => path.join(entry.parentPath, entry.name))
    .sort();
  const isLegal = (file: string) => file.endsWith(".LEGAL.txt");
  const deployedFiles = files.filter((file) => !isLegal(file));
  return [
    files.filter(isLegal).map((file) => readFileSync(file, "utf8")),
    deployedFiles.map((file) => [path.relative(app, file).split(path.sep).join("/"), readFileSync(file)]),
  ];
}

const sha256 = (data: Uint8Array | string): string => createHash("sha256").update(data).digest("hex");
const sortedEntries = (files: Map<string, Uint8Array>): [string, Uint8Array][] =>
  [...files].sort(([one], [other]) => (one < other ? -1 : 1));

/** Returns the SHA-256 of a list of the files with their hashes. */
const digestOf = (files: Map<string, Uint8Array>): string =>
  sha256(
    sortedEntries(files)
      .map(([file, data]) => `${sha256(data)}  ${file}\n`)
      .join(""),
  );

/**
 * Creates the zip file. It uses fflate, which is JavaScript, because zlib's output differs between processors and Node
 * versions. Files are sorted, have the earliest date that zip supports (in local time, as zip dates are) and are readable by
 * all users.
 */
function zipOf(files: Map<string, Uint8Array>): Uint8Array {
  // Values of the zip format: the system whose file attributes follow, and these attributes, in the upper 16 of 32 bits.
  const UNIX = 3;
  const REGULAR_FILE_READABLE_BY_ALL = (0o100644 << 16) >>> 0;
  const options = { mtime: new Date(1980, 0, 1), os: UNIX, attrs: REGULAR_FILE_READABLE_BY_ALL };
  const entries: Zippable = {};
  for (const [file, data] of sortedEntries(files)) {
    // Files in these formats are already compressed, so they are stored as they are (level 0).
    entries[file] = [data, { ...options, level: /\.(gz|png|woff)$/.test(file) ? 0 : 6 }];
  }
  return zipSync(entries);
}

if (import.meta.main) {
  const { positionals } = commandLine(HELP, { allowPositionals: true, options: {} });
  const folder = path.resolve(positionals[0] ?? path.join(ROOT, ".local/package"));
  const { zip, source, sha256, files, bundled } = await buildRelease(folder);
  console.log(`${path.relative(process.cwd(), zip)}: ${files.size} files, ${bundled.packages.size} packages`);
  console.log(`sha256 ${sha256}`);
  console.log(
    source.commit
      ? `Built from ${source.commit}`
      : "Not built from a commit: the working tree has changes, or there is no Git.",
  );
}
