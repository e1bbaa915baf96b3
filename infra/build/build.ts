/**
 * Bundles the app as it is deployed: dist/ with package.json's `main`, the chunks it loads when first needed, and the
 * files of the page and of the documentation pages. See HELP.
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

  --development-licence-key KID:X   builds one more public licence key in, for development and tests only`;

const root = path.resolve(import.meta.dirname, "../..");

/** For esbuild: `require` in a bundle of ES modules, for those of its packages that are CommonJS. */
export const REQUIRE_BANNER = {
  js: 'import { createRequire as __createRequire } from "node:module"; const require = __createRequire(import.meta.url);',
};

/** What was built, and of what. */
export interface BuiltApp {
  outdir: string;
  /** esbuild's description of what is in which chunk; its paths are relative to the project's root. */
  metafile: Metafile;
  /** What the files beside the chunks are made of, relative to the project's root. */
  copied: string[];
}

export async function buildApp(
  options: {
    outdir?: string;
    developmentLicenseKeys?: { kid: string; x: string }[];
    /** Without source maps, and with the licence comments of the bundled files in `*.LEGAL.txt` beside each chunk. */
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
    // All in one folder, so that the files beside the bundle are beside every chunk of it too.
    chunkNames: "[name]-[hash]",
    bundle: true,
    splitting: true,
    format: "esm",
    platform: "node",
    // Modules where a package has both: what is imported lazily keeps its names, and what nobody uses stays out.
    mainFields: ["module", "main"],
    target: "node22",
    // Identifiers stay as they are, so that traces can be read. `keepNames` would do the same at a price that is paid while it
    // runs: it gives every closure its name anew, each time one is made.
    minifyWhitespace: true,
    minifySyntax: true,
    sourcemap: options.release ? false : "linked",
    sourcesContent: false,
    legalComments: options.release ? "external" : "none",
    // The platform's worker answers the first name, and only through require (see the banner). The second is asked for by
    // `debug`, which does without: it would be in the bundle wherever a tool of development happens to install it.
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

/** Areas with functions that do without services. */
const STANDALONE = ["system", "page", "docs", "catch-all"];

/**
 * Says of every other area that it imports the services, which its functions need anyway. Else esbuild makes a chunk for each
 * set of areas that share some file with them: twice as many files to read before the first answer.
 */
const withServices: Plugin = {
  name: "with-services",
  setup({ onLoad }) {
    const areas = readFileSync(path.join(root, "functions/functions.ts"), "utf8").matchAll(
      /import\("\.\/([a-z0-9-]+)\.ts"\)/g,
    );
    const names = [...areas].map(([, name]) => name!).filter((name) => !STANDALONE.includes(name));
    onLoad({ filter: new RegExp(`[\\\\/]functions[\\\\/](?:${names.join("|")})\\.ts$`) }, async (file) => ({
      contents: `${await readFile(file.path, "utf8")}\nimport "./services.ts";\n`,
      loader: "ts",
    }));
  },
};

/**
 * The files of the documentation pages, so that they work without the internet: each as it is and gzipped, so that no
 * request compresses it, and `hashes.json` with what its address ends with. Compressed without zlib, whose bytes differ
 * between processors and versions of Node.
 * @returns the originals
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

/** Redoc draws its maker's logo from the internet, which these pages never ask: an empty picture instead. */
const REDOC_LOGO = "https://cdn.redoc.ly/redoc/logo-mini.svg";
const EMPTY_PICTURE = "data:image/gif;base64,R0lGODlhAQABAAAAACw=";
const withoutLogo = (file: Buffer): Buffer =>
  file.includes(REDOC_LOGO) ? Buffer.from(file.toString().replaceAll(REDOC_LOGO, EMPTY_PICTURE)) : file;

/**
 * The font PDF exports embed, so that any name in any script can be read.
 * @returns the original
 */
async function copyFont(target: string): Promise<string> {
  const font = createRequire(import.meta.url).resolve("@fontsource/unifontex/files/unifontex-latin-400-normal.woff");
  await mkdir(target, { recursive: true });
  await copy(font, path.join(target, path.basename(font)));
  return font;
}

/** With the rights of a new file, not those of the original. */
async function copy(from: string, to: string): Promise<void> {
  await writeFile(to, await readFile(from));
}

/**
 * Builds the app into a folder that a functions host can run, with development licence keys built in: dist/, host.json
 * and package.json. What is deployed is the project's own dist/ or the release of `npm run package`, which never hold such
 * a key.
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
