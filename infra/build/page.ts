/** Builds the page, functions/web, with Vite: the response of `GET /` and the files that it loads. */
import { createHash } from "node:crypto";
import { existsSync, globSync, readdirSync, readFileSync } from "node:fs";
import { mkdir, mkdtemp, rename, rm, writeFile } from "node:fs/promises";
import path from "node:path";
import { brotliCompressSync, constants } from "node:zlib";
import { gzipSync } from "fflate";
import { build, type Rolldown } from "vite";
import { writePageTypes } from "./page-types.ts";

const root = path.resolve(import.meta.dirname, "../..");
const page = path.join(root, "functions/web");
/** Cached builds, by the hash of their sources. */
const cacheFolder = path.join(root, ".local/page");
const MODULES = "modules.json";

/**
 * Writes the page's files to a folder: each file unchanged, gzipped and Brotli-compressed, with the `hashes.json` that
 * `createStoredFiles` reads. Reuses a cached build until a source changes.
 *
 * @param options.anew - Builds without the cache.
 * @returns the bundled modules, relative to the project's root
 */
export async function buildPage(target: string, { anew = false } = {}): Promise<string[]> {
  await writePageTypes();
  const folder = path.join(cacheFolder, digestOfSources());
  if (anew || !existsSync(folder)) {
    await mkdir(cacheFolder, { recursive: true });
    const made = await mkdtemp(path.join(cacheFolder, "new-"));
    await buildInto(made);
    await rm(folder, { recursive: true, force: true });
    // Another process may have finished the same build first.
    await rename(made, folder).catch(() => rm(made, { recursive: true }));
  }
  await mkdir(target, { recursive: true });
  // Creates new files instead of copying, so that they have default permissions.
  for (const file of readdirSync(folder))
    if (file !== MODULES) await writeFile(path.join(target, file), readFileSync(path.join(folder, file)));
  return JSON.parse(readFileSync(path.join(folder, MODULES), "utf8"));
}

function digestOfSources(): string {
  const files = [
    "package-lock.json",
    "infra/build/page.ts",
    ...globSync("functions/web/{*,src/**}", { cwd: root, withFileTypes: true })
      .filter((entry) => entry.isFile())
      .map((entry) => path.relative(root, path.join(entry.parentPath, entry.name)))
      .sort(),
  ];
  const hash = createHash("sha256");
  for (const file of files) hash.update(`${file}\0`).update(readFileSync(path.join(root, file)));
  return hash.digest("hex").slice(0, 16);
}

const BEST_COMPRESSION = { params: { [constants.BROTLI_PARAM_QUALITY]: constants.BROTLI_MAX_QUALITY } };

/**
 * Builds the page into a folder and compresses each file. gzip does not use zlib, whose output differs between processors and
 * Node versions. Brotli's output differs only between Node versions.
 */
async function buildInto(folder: string): Promise<void> {
  // Vite creates a development build if NODE_ENV has another value, as it has in tests.
  const { NODE_ENV } = process.env;
  process.env.NODE_ENV = "production";
  const { output } = (await build({
    configFile: path.join(page, "vite.config.ts"),
    logLevel: "warn",
    build: { write: false },
  })) as Rolldown.RolldownOutput;
  if (NODE_ENV === undefined) delete process.env.NODE_ENV;
  else process.env.NODE_ENV = NODE_ENV;
  const hashes: Record<string, string> = {};
  for (const file of output) {
    const data = Buffer.from(file.type === "chunk" ? file.code : file.source);
    hashes[file.fileName] = createHash("sha256").update(data).digest("base64url").slice(0, 22);
    await writeFile(path.join(folder, file.fileName), data);
    await writeFile(path.join(folder, `${file.fileName}.gz`), gzipSync(data, { level: 9, mtime: 0 }));
    await writeFile(path.join(folder, `${file.fileName}.br`), brotliCompressSync(data, BEST_COMPRESSION));
  }
  await writeFile(path.join(folder, "hashes.json"), JSON.stringify(hashes));
  const modules = output
    .flatMap((file) => (file.type === "chunk" ? Object.entries(file.modules) : []))
    // The code of the other modules was removed.
    .flatMap(([id, { renderedLength }]) => (path.isAbsolute(id) && renderedLength > 0 ? [id] : []))
    .map((id) => path.relative(root, id.split("?")[0]!).split(path.sep).join("/"));
  await writeFile(path.join(folder, MODULES), JSON.stringify([...new Set(modules)].sort()));
}
