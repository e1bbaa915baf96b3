/**
 * Builds the page (the web UI in functions/web) with Vite: the HTML that `GET /` returns and the files that it loads.
 * build.ts calls it.
 */
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
/** File of a cached build that lists the bundled modules. It is not deployed. */
const MODULES_FILE = "modules.json";

/**
 * Writes the page's files to a folder: each file uncompressed, gzipped and Brotli-compressed, and `hashes.json` with the hash
 * that is part of each file's URL. Reuses a cached build until a source changes.
 *
 * @param options.ignoreCache - Builds even if a cached build exists.
 * @returns the bundled modules, relative to the project's root
 */
export async function buildPage(target: string, { ignoreCache = false } = {}): Promise<string[]> {
  await writePageTypes();
  const folder = path.join(cacheFolder, digestOfSources());
  if (ignoreCache || !existsSync(folder)) {
    await mkdir(cacheFolder, { recursive: true });
    const newFolder = await mkdtemp(path.join(cacheFolder, "new-"));
    await buildInto(newFolder);
    await rm(folder, { recursive: true, force: true });
    // Another process may have finished the same build first.
    await rename(newFolder, folder).catch(() => rm(newFolder, { recursive: true }));
  }
  await mkdir(target, { recursive: true });
  // Creates new files instead of copying, so that they have default permissions.
  for (const file of readdirSync(folder))
    if (file !== MODULES_FILE) await writeFile(path.join(target, file), readFileSync(path.join(folder, file)));
  return JSON.parse(readFileSync(path.join(folder, MODULES_FILE), "utf8"));
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
 * Builds the page into a folder and compresses each file. fflate creates the gzip files, because the output of zlib differs
 * between processors and Node versions. The Brotli output differs only between Node versions.
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
    // Omits Vite's virtual modules, whose ids are not paths, and modules whose code was removed.
    .flatMap(([id, { renderedLength }]) => (path.isAbsolute(id) && renderedLength > 0 ? [id] : []))
    .map((id) => path.relative(root, id.split("?")[0]!).split(path.sep).join("/"));
  await writeFile(path.join(folder, MODULES_FILE), JSON.stringify([...new Set(modules)].sort()));
}
