/**
 * Finds a browser for the tests of the web page: an installed one, or on Linux x64 the one in a package that `npm ci` installs.
 */
import { execFile } from "node:child_process";
import { accessSync, constants, existsSync, mkdirSync, mkdtempSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import path from "node:path";
import { promisify } from "node:util";

export type Environment = Record<string, string | undefined>;

export interface Browser {
  readonly executablePath: string;
  /** The environment that the browser needs. */
  readonly environment: Environment;
}

/** Programs on the `PATH` of Linux. `chromium-browser` is missing: on Ubuntu it only prints how to install Chromium. */
const PROGRAMS = ["google-chrome", "google-chrome-stable", "microsoft-edge", "microsoft-edge-stable", "chromium"];

/** Names and folders under which the installers of Chrome, Edge and Chromium put them on macOS and Windows. */
const MAC_APPLICATIONS = ["Google Chrome", "Microsoft Edge", "Chromium"];
const WINDOWS_FOLDERS = ["ProgramFiles", "ProgramFiles(x86)", "LOCALAPPDATA"];
const WINDOWS_PROGRAMS = [
  String.raw`Google\Chrome\Application\chrome.exe`,
  String.raw`Microsoft\Edge\Application\msedge.exe`,
  String.raw`Chromium\Application\chrome.exe`,
];

interface Machine {
  readonly platform: NodeJS.Platform;
  readonly arch: string;
}

/**
 * Returns the path of an installed browser, or "packaged" if the machine has none but can run the packaged one. Returns
 * undefined if it can run neither, or if the environment variable `CHROMIUM_PATH` is set and names no program.
 */
export function findBrowser(
  environment: Environment = process.env,
  { platform, arch }: Machine = process,
): { installed: string } | "packaged" | undefined {
  const chosenPath = environment.CHROMIUM_PATH;
  const candidates = chosenPath ? [chosenPath] : installationPaths(environment, platform);
  const installed = candidates.find(isProgram);
  if (installed) return { installed };
  return !chosenPath && platform === "linux" && arch === "x64" ? "packaged" : undefined;
}

/**
 * Returns the browser to start, and unpacks the packaged one on first use.
 *
 * @throws {Error} If the machine has no browser.
 */
export async function resolveBrowser(): Promise<Browser> {
  const browser = findBrowser();
  if (!browser) throw new Error("Chrome, Edge or Chromium was not found; install one or set CHROMIUM_PATH.");
  if (browser !== "packaged") return { executablePath: browser.installed, environment: process.env };
  const folder = await unpackBrowser();
  // The package contains the shared libraries that its browser needs, from Amazon Linux 2023.
  const libraries = [path.join(folder, "al2023/lib"), process.env.LD_LIBRARY_PATH].filter(Boolean).join(":");
  return {
    executablePath: path.join(folder, "chromium"),
    // Only the browser gets these libraries: Python, curl and other programs that tests start use the system's.
    environment: { ...process.env, LD_LIBRARY_PATH: libraries, FONTCONFIG_PATH: path.join(folder, "fonts") },
  };
}

const PACKAGE = "@sparticuz/chromium";

/**
 * A script that unpacks the browser to `$TMPDIR`. The package would run any program that it finds at `$TMPDIR/chromium`, so
 * that the folder must be new and belong to this user.
 */
const UNPACK_SCRIPT = `
  import path from "node:path";
  import chromium, { inflate } from ${JSON.stringify(PACKAGE)};
  await chromium.executablePath();
  await inflate(path.join(process.env.PACKAGE_FOLDER, "bin/al2023.tar.br"));
`;

/** Unpacks the packaged browser once for all runs, and returns its folder in `node_modules/.cache`. */
async function unpackBrowser(): Promise<string> {
  const root = path.resolve(import.meta.dirname, "../..");
  const packageFolder = path.resolve(path.dirname(createRequire(import.meta.url).resolve(PACKAGE)), "..");
  const { version } = createRequire(import.meta.url)(path.join(packageFolder, "package.json")) as { version: string };
  const cache = path.join(root, "node_modules/.cache");
  const folder = path.join(cache, `chromium-${version}`);
  // A browser that still runs after `npm ci` deleted the folder writes its font cache there again, so the folder can be incomplete.
  const isUnpacked = () => existsSync(path.join(folder, "chromium"));
  if (isUnpacked()) return folder;
  mkdirSync(cache, { recursive: true });
  const incomplete = mkdtempSync(`${folder}-`);
  try {
    await promisify(execFile)(process.execPath, ["--input-type=module", "-e", UNPACK_SCRIPT], {
      cwd: root,
      env: { ...process.env, NODE_OPTIONS: "", TMPDIR: incomplete, PACKAGE_FOLDER: packageFolder },
    });
    // Replaces the package's own file, which names folders in /tmp.
    writeFileSync(path.join(incomplete, "fonts/fonts.conf"), fontConfiguration(path.join(folder, "fonts")));
    if (!isUnpacked()) rmSync(folder, { recursive: true, force: true });
    renameSync(incomplete, folder);
  } catch (error) {
    // Another process may have unpacked the browser in the meantime.
    rmSync(incomplete, { recursive: true, force: true });
    if (!isUnpacked()) throw error;
  }
  return folder;
}

/** The packaged font contains only Latin, Greek and Cyrillic letters. Other letters use the system's fonts. */
const fontConfiguration = (folder: string): string => `<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir>${folder}</dir>
  <dir>/usr/share/fonts</dir>
  <dir>/usr/local/share/fonts</dir>
  <cachedir>${folder}/cache</cachedir>
</fontconfig>
`;

function installationPaths(environment: Environment, platform: NodeJS.Platform): string[] {
  if (platform === "win32") {
    const folders = WINDOWS_FOLDERS.map((name) => environment[name]).filter((folder) => folder !== undefined);
    return WINDOWS_PROGRAMS.flatMap((program) => folders.map((folder) => path.win32.join(folder, program)));
  }
  if (platform === "darwin") {
    const folders = ["/Applications", path.join(environment.HOME ?? "/", "Applications")];
    return MAC_APPLICATIONS.flatMap((name) =>
      folders.map((folder) => path.join(folder, `${name}.app/Contents/MacOS/${name}`)),
    );
  }
  return PROGRAMS.flatMap((program) => pathsOf(program, environment));
}

/** Returns the path of a program if the `PATH` contains it. */
export const onPath = (program: string, environment: Environment): string | undefined =>
  pathsOf(program, environment).find(isProgram);

function pathsOf(program: string, environment: Environment): string[] {
  const folders = (environment.PATH ?? "").split(path.delimiter).filter(Boolean);
  return folders.map((folder) => path.join(folder, program));
}

function isProgram(file: string): boolean {
  try {
    accessSync(file, constants.X_OK);
    return true;
  } catch {
    return false;
  }
}
