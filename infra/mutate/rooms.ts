import { globSync, readFileSync } from "node:fs";
import path from "node:path";

/** Tests beside test/<room>/ that are about a room. */
const FURTHER_TESTS: Record<string, string[]> = {
  access: ["test/http/access.test.ts"],
  compliance: ["test/governance/compliance.test.ts"],
  config: ["test/http/configuration.test.ts", "test/azure"],
  discovery: ["test/governance/compliance.test.ts"],
  functions: ["test/http", "test/docs/openapi.test.ts", "test/governance"],
  inventory: ["test/discovery/scan.test.ts", "test/http/requests.test.ts"],
  licensing: ["test/http/access.test.ts"],
  settings: ["test/governance/settings.test.ts"],
  subscriptions: ["test/discovery/plan.test.ts"],
};
/** For files directly in shared/, which every room uses. */
const TESTS_OF_FILES = ["test/storage", "test/http", "test/inventory"];

/** `shared/<room>/…` or `shared/<file>.ts` -> the room, `functions/…` -> `functions`. */
export function roomOf(file: string): string {
  const [area, room] = file.split("/");
  if (area !== "shared") return area!;
  return room!.endsWith(".ts") ? "shared" : room!;
}

/** The test files of a file's room, those that import the file itself first. */
export function testsOf(root: string, file: string): string[] {
  const room = roomOf(file);
  // functions/alerts.ts is about what test/alerts asks over HTTP.
  const area = room === "functions" ? path.basename(file, ".ts") : room;
  const wanted = room === "shared" ? TESTS_OF_FILES : [`test/${area}`, ...(FURTHER_TESTS[room] ?? [])];
  const found = wanted.flatMap((one) => (one.endsWith(".ts") ? globSync(one, { cwd: root }) : testsUnder(root, one)));
  const tests = [...new Set(found.map((one) => one.split(path.sep).join("/")))].sort();
  const isDirect = new Map(tests.map((test) => [test, readFileSync(path.join(root, test), "utf8").includes(file)]));
  return tests.sort((a, b) => Number(isDirect.get(b)) - Number(isDirect.get(a)));
}

const testsUnder = (root: string, folder: string): string[] => globSync(`${folder}/**/*.test.ts`, { cwd: root });
