/**
 * Bundles the app for deployment: dist/ with the `main` of package.json, its lazily loaded chunks, and the files of the page
 * and the documentation pages. See HELP.
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { build, type Metafile, type Plugin } from "esbuild";
import { gzipSync } from "fflate";
import { commandLine, usedWrong } from "./command-line.ts";
import { buildPage } from "./page.ts";

const HELP = `npm run build -- [--development-licence-key KID:X]…

Bundles the app into dist/, as it is deployed.

  --development-licence-key KID:X   add a public license key for development and tests`;

const root = path.resolve(import.meta.dirname, "../..");

/** Defines `require` for CommonJS packages inside a bundle of ES modules. */
export const REQUIRE_BANNER = {
  js: 'import { createRequire as __createRequire } from "node:module"; const require = __createRequire(import.meta.url);',
};

/** The result of a build, and its sources. */
export interface BuiltApp {
  outdir: string;
  /** esbuild's metafile, which lists the sources of each chunk. Its paths are relative to the project's root. */
  metafile: Metafile;
  /** Sources of the files next to the chunks, relative to the project's root. */
  copied: string[];
}

export async function buildApp(
  options: {
    outdir?: string;
    developmentLicenseKeys?: { kid: string; x: string }[];
    /** Omits source maps, and writes the license comments of bundled files to `*.LEGAL.txt` next to each chunk. */
    release?: boolean;
  } = {},
): Promise<BuiltApp> {
  const outdir = options.outdir ?? path.join(root, "dist");
  await rm(outdir, { recursive: true, force: true });
  const { functionIndex } = await import("../../functions/function-index.ts");
  const { metafile } = await build({
    metafile: true,
    absWorkingDir: root,
    entryPoints: { main: "functions/entry.ts" },
    outdir,
    outExtension: { ".js": ".mjs" },
    // All chunks are in one folder, so that the files next to the bundle are next to every chunk.
    chunkNames: "[name]-[hash]",
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    // Prefers ES modules where a package has both formats: lazily imported modules keep their export names, and unused code is
    // removed.
    mainFields: ["module", "main"],
    target: "node22",
    // Identifiers are not minified, so that stack traces are readable. `keepNames` would also keep them, but it costs time at
    // run time for each created closure.
    minifyWhitespace: true,
    minifySyntax: true,
    sourcemap: options.release ? false : "linked",
    sourcesContent: false,
    legalComments: options.release ? "external" : "none",
    // The platform's worker provides the first name, only through require (see the banner). `debug` requires the second name
    // optionally; without this line, a development tool's copy would be bundled.
    external: ["@azure/functions-core", "supports-color"],
    banner: REQUIRE_BANNER,
    define: {
      __DEVELOPMENT_LICENSE_KEYS__: JSON.stringify(JSON.stringify(options.developmentLicenseKeys ?? [])),
      __FUNCTIONS__: JSON.stringify(JSON.stringify(await functionIndex())),
    },
    plugins: [withServices],
    logLevel: "warning",
  });
  const copied = [
    ...(await copyDocumentation(path.join(outdir, "docs"))),
    await copyFont(path.join(outdir, "fonts")),
  ].map((file) => path.relative(root, file).split(path.sep).join("/"));
  const page = await buildPage(path.join(outdir, "page"), { anew: options.release ?? false });
  return { outdir, metafile, copied: [...copied, ...page] };
}

/** Areas whose functions do not use the services. */
const AREAS_WITHOUT_SERVICES = ["system", "page", "docs", "catch-all"];

/**
 * Makes every other area import the services, which its functions need anyway. Otherwise esbuild creates a chunk for each set
 * of areas that share a file, which doubles the number of files to read before the first response.
 */
const withServices: Plugin = {
  name: "with-services",
  setup({ onLoad }) {
    const areas = readFileSync(path.join(root, "functions/functions.ts"), "utf8").matchAll(
      /import\("\.\/([a-z0-9-]+)\.ts"\)/g,
    );
    const names = [...areas].map(([, name]) => name!).filter((name) => !AREAS_WITHOUT_SERVICES.includes(name));
    onLoad({ filter: new RegExp(`[\\\\/]functions[\\\\/](?:${names.join("|")})\\.ts$`) }, async (file) => ({
      contents: `${await readFile(file.path, "utf8")}\nimport "./services.ts";\n`,
      loader: "ts",
    }));
  },
};

/**
 * Writes the files of the documentation pages, so that the pages work offline: each file unchanged and gzipped, so that
 * requests need no compression, and `hashes.json` with the hash in each file's URL. It does not use zlib, whose output differs
 * between processors and Node versions.
 * @returns the paths of the source files
 */
async function copyDocumentation(target: string): Promise<string[]> {
  const require = createRequire(import.meta.url);
  const swagger = path.dirname(require.resolve("swagger-ui-dist/package.json"));
  const redoc = path.dirname(require.resolve("redoc/package.json"));
  const sources = [
    ...["swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png"].map((file) => path.join(swagger, file)),
    path.join(redoc, "bundles/redoc.standalone.js"),
    ...["swagger-start.js", "redoc-start.js"].map((file) => path.join(root, "functions/docs", file)),
  ];
  await mkdir(target, { recursive: true });
  const hashes: Record<string, string> = {};
  for (const source of sources) {
    const [file, data] = [path.basename(source), withoutLogo(await readFile(source))];
    hashes[file] = createHash("sha256").update(data).digest("base64url").slice(0, 22);
    await writeFile(path.join(target, file), data);
    await writeFile(path.join(target, `${file}.gz`), gzipSync(data, { level: 9, mtime: 0 }));
  }
  await writeFile(path.join(target, "hashes.json"), JSON.stringify(hashes));
  return sources;
}

/** Redoc loads its vendor's logo from the internet, which these pages never access. Replaces it with an empty image. */
const REDOC_LOGO = "https://cdn.redoc.ly/redoc/logo-mini.svg";
const EMPTY_PICTURE = "data:image/gif;base64,R0lGODlhAQABAAAAACw=";
const withoutLogo = (file: Buffer): Buffer =>
  file.includes(REDOC_LOGO) ? Buffer.from(file.toString().replaceAll(REDOC_LOGO, EMPTY_PICTURE)) : file;

/**
 * Writes the font of PDF exports, which covers all scripts.
 * @returns the path of the source file
 */
async function copyFont(target: string): Promise<string> {
  const font = createRequire(import.meta.url).resolve("@fontsource/unifontex/files/unifontex-latin-400-normal.woff");
  await mkdir(target, { recursive: true });
  await copy(font, path.join(target, path.basename(font)));
  return font;
}

/** Creates a new file instead of copying, so that it has default permissions. */
async function copy(from: string, to: string): Promise<void> {
  await writeFile(to, await readFile(from));
}

/**
 * Builds the app into a folder that a functions host can run: dist/, host.json and package.json, with development license keys.
 * Releases are built by `npm run build` or `npm run package`, which never contain such a key.
 */
export async function buildLocalApp(
  folder: string,
  developmentLicenseKeys: { kid: string; x: string }[],
): Promise<BuiltApp> {
  await mkdir(folder, { recursive: true });
  const built = await buildApp({ outdir: path.join(folder, "dist"), developmentLicenseKeys });
  await copy(path.join(root, "host.json"), path.join(folder, "host.json"));
  await writeFile(path.join(folder, "package.json"), JSON.stringify({ type: "module", main: "dist/main.mjs" }));
  return built;
}

if (import.meta.main) {
  const { values } = commandLine(HELP, { options: { "development-licence-key": { type: "string", multiple: true } } });
  const keys = (values["development-licence-key"] ?? []).map((pair) => {
    const at = pair.indexOf(":");
    if (at < 1) usedWrong("A development licence key is written as KID:X");
    return { kid: pair.slice(0, at), x: pair.slice(at + 1) };
  });
  const { outdir } = await buildApp({ developmentLicenseKeys: keys });
  console.log(`Built ${path.relative(process.cwd(), outdir)}/`);
}
