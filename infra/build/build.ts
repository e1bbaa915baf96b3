/**
 * Bundles the app into dist/. The result is the file that `main` of package.json names, its lazily loaded chunks, and the files
 * of the page (the web UI in functions/web) and of the API documentation pages. `npm run build`, releases (package.ts), the
 * local service and the tests use it.
 */
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { mkdir, readFile, rm, writeFile } from "node:fs/promises";
import { createRequire } from "node:module";
import path from "node:path";
import { build, type Metafile, type Plugin } from "esbuild";
import { gzipSync } from "fflate";
import { commandLine, exitWithUsageError } from "./command-line.ts";
import { buildPage } from "./page.ts";
import { sourceVersion } from "./source-version.ts";

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
    // All chunks are in one folder, so that every chunk finds the copied files (docs/, fonts/, page/) next to itself.
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
      // The inner JSON is the text that the app parses. The outer one makes it a string literal in the code.
      __DEVELOPMENT_LICENSE_KEYS__: JSON.stringify(JSON.stringify(options.developmentLicenseKeys ?? [])),
      __FUNCTIONS__: JSON.stringify(JSON.stringify(await functionIndex())),
      __SOURCE_VERSION__: JSON.stringify(JSON.stringify(sourceVersion(root))),
    },
    plugins: [importServicesPlugin],
    logLevel: "warning",
  });
  const copiedSources = [
    ...(await copyDocumentation(path.join(outdir, "docs"))),
    await copyFont(path.join(outdir, "fonts")),
  ].map((file) => path.relative(root, file).split(path.sep).join("/"));
  const pageSources = await buildPage(path.join(outdir, "page"), { ignoreCache: options.release ?? false });
  return { outdir, metafile, copied: [...copiedSources, ...pageSources] };
}

/** The commands of a deployment that a release contains as one file each, by the name of that file. */
const DEPLOYMENT_COMMANDS = {
  "make-secrets": "infra/azure/scripts/make-secrets.ts",
  "first-password": "infra/azure/scripts/first-password.ts",
};

/**
 * Bundles each command of a deployment into one file that Node runs without any package.
 * @param outdir folder of the files `<name>.mjs`
 */
export async function buildDeploymentCommands(outdir: string): Promise<Metafile> {
  const { metafile } = await build({
    metafile: true,
    absWorkingDir: root,
    entryPoints: DEPLOYMENT_COMMANDS,
    outdir,
    outExtension: { ".js": ".mjs" },
    bundle: true,
    format: "esm",
    platform: "node",
    mainFields: ["module", "main"],
    target: "node22",
    minifyWhitespace: true,
    minifySyntax: true,
    legalComments: "none",
    external: ["supports-color"],
    banner: REQUIRE_BANNER,
    logLevel: "warning",
  });
  return metafile;
}

/** Areas (files of functions/ that declare functions) that do not use functions/services.ts. */
const AREAS_WITHOUT_SERVICES = ["system", "page", "docs", "catch-all"];

/**
 * An esbuild plugin that makes every other area import functions/services.ts, which its functions load anyway. Otherwise
 * esbuild creates a chunk for each set of areas that share a file, which doubles the number of files to read before the first
 * response.
 */
const importServicesPlugin: Plugin = {
  name: "with-services",
  setup({ onLoad }) {
    // Matches the lazy imports of the areas, for example `import("./alerts.ts")`.
    const areaImports = readFileSync(path.join(root, "functions/functions.ts"), "utf8").matchAll(
      /import\("\.\/([a-z0-9-]+)\.ts"\)/g,
    );
    const names = [...areaImports].map(([, name]) => name!).filter((name) => !AREAS_WITHOUT_SERVICES.includes(name));
    onLoad({ filter: new RegExp(`[\\\\/]functions[\\\\/](?:${names.join("|")})\\.ts$`) }, async (file) => ({
      contents: `${await readFile(file.path, "utf8")}\nimport "./services.ts";\n`,
      loader: "ts",
    }));
  },
};

/**
 * Writes the files of the API documentation pages (Swagger UI and Redoc), so that the pages load nothing from the internet.
 * Writes each file uncompressed and gzipped, so that requests need no compression, and `hashes.json` with the hash that is part
 * of each file's URL. Compresses with fflate, because the output of zlib differs between processors and Node versions.
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

/** Redoc loads its vendor's logo from this address. `withoutLogo` replaces it with an empty image. */
const REDOC_LOGO_URL = "https://cdn.redoc.ly/redoc/logo-mini.svg";
const EMPTY_IMAGE_URL = "data:image/gif;base64,R0lGODlhAQABAAAAACw=";
const withoutLogo = (file: Buffer): Buffer =>
  file.includes(REDOC_LOGO_URL) ? Buffer.from(file.toString().replaceAll(REDOC_LOGO_URL, EMPTY_IMAGE_URL)) : file;

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

/** Copies the content into a new file, so that the copy has default permissions instead of those of the original. */
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
    const colon = pair.indexOf(":");
    if (colon < 1) exitWithUsageError("A development license key must have the format KID:X");
    return { kid: pair.slice(0, colon), x: pair.slice(colon + 1) };
  });
  const { outdir } = await buildApp({ developmentLicenseKeys: keys });
  console.log(`Built ${path.relative(process.cwd(), outdir)}/`);
}
