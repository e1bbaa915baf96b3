/** Holds the code to who may know whom (see the README's architecture): reads every import and names what breaks a rule. */
import { globSync, readFileSync } from "node:fs";
import path from "node:path";

const root = path.resolve(import.meta.dirname, "../..");

/** Rooms of shared/ from the bottom up: a room may know those above it in this list, never those below. */
const ROOMS = [
  ["runtime.ts"],
  ["config"],
  ["storage"],
  ["http"],
  ["azure"],
  ["audit"],
  ["settings"],
  ["access", "licensing", "inventory"],
  ["subscriptions", "compliance", "discovery"],
  ["alerts"],
];
const level = (room: string): number => ROOMS.findIndex((rooms) => rooms.includes(room));
const SDKS = /^@azure\/(?!functions|core-auth|core-rest-pipeline|core-client)|^@aws-sdk\//;

const problems: string[] = [];
for (const file of globSync(["functions/**/*.ts", "shared/**/*.ts", "infra/local/**/*.ts"], { cwd: root })) {
  const text = readFileSync(path.join(root, file), "utf8");
  for (const [, specifier] of text.matchAll(/(?:from|import\()\s*"([^"]+)"/g)) {
    const target = specifier!.startsWith(".") ? path.join(path.dirname(file), specifier!) : specifier!;
    const broken = ruleBroken(file, target);
    if (broken) problems.push(`${file} imports ${specifier}: ${broken}`);
  }
}

function ruleBroken(file: string, target: string): string | undefined {
  const [area, room] = file.split(path.sep);
  const [targetArea, targetRoom] = target.split(path.sep);
  if (file.startsWith("infra/local") && (targetArea === "shared" || targetArea === "functions")) {
    return "infra/local starts the built app and knows nothing of its source";
  }
  if (area !== "shared") return undefined;
  if (targetArea === "functions" || target === "@azure/functions") return "shared/ knows nothing of the platform";
  if (SDKS.test(target) && room !== "azure" && room !== "aws" && room !== "storage")
    return "only shared/azure and shared/storage touch an SDK";
  if (/^@azure\/(data-tables|storage-queue)/.test(target) && room !== "storage")
    return "only shared/storage touches tables and queues";
  if (targetArea !== "shared" || room === targetRoom) return undefined;
  if (level(room!) < 0) return `the room ${room} has no place in the order of rooms`;
  if (level(targetRoom!) > level(room!)) return `${room} stands below ${targetRoom}`;
  return undefined;
}

if (problems.length > 0) {
  console.error(problems.join("\n"));
  process.exit(1);
}
