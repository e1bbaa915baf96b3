import { execFileSync } from "node:child_process";
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import path from "node:path";
import { unzipSync } from "fflate";
import { CACHE } from "./cache.ts";
import type { Program } from "./programs.ts";

const COPY = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1:copy";

/** Options for a Java process, so that it writes no file into the system's temporary folder. */
export const javaOptions = (): string => `-Djava.io.tmpdir=${tmpdir()} -XX:-UsePerfData`;

/**
 * Returns the folder of an unpacked zip of Maven Central. Maven downloads the zip the first time.
 *
 * @throws {Error} if Maven can't download the file, or if its hash is not the one in the table of programs
 */
export function unpackedFromMaven({ package: name, version, sha256 }: Program): string {
  const [group, artifact, type] = name.split(":");
  const folder = path.join(CACHE, `${artifact}-${version}`);
  const complete = path.join(folder, "complete");
  if (existsSync(complete)) return folder;
  console.log(`  downloading ${artifact} ${version} …`);
  rmSync(folder, { recursive: true, force: true });
  mkdirSync(folder, { recursive: true });
  const coordinates = [group, artifact, version, type].join(":");
  execFileSync(
    "mvn",
    ["--batch-mode", "--quiet", "--strict-checksums", COPY, `-Dartifact=${coordinates}`, `-DoutputDirectory=${folder}`],
    { stdio: ["ignore", "ignore", "inherit"], env: { ...process.env, MAVEN_OPTS: javaOptions() } },
  );
  const zip = path.join(folder, `${artifact}-${version}.${type}`);
  const content = readFileSync(zip);
  const hash = createHash("sha256").update(content).digest("hex");
  if (hash !== sha256) throw new Error(`${coordinates} has the SHA-256 ${hash}, not ${sha256}.`);
  for (const [file, bytes] of Object.entries(unzipSync(content))) {
    const to = path.join(folder, file);
    if (!to.startsWith(folder + path.sep)) throw new Error(`${coordinates} contains the path ${file}.`);
    mkdirSync(file.endsWith("/") ? to : path.dirname(to), { recursive: true });
    if (!file.endsWith("/")) writeFileSync(to, bytes);
  }
  rmSync(zip);
  mkdirSync(complete);
  return folder;
}
