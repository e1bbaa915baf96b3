import { existsSync, globSync, readFileSync } from "node:fs";
import path from "node:path";

/** Tests beside test/<room>/ that are about a room. */
const FURTHER_TESTS: Record<string, string[]> = {
  access: ["test/http/access.test.ts"],
  compliance: ["test/governance/compliance.test.ts", "test/state"],
  config: ["test/http/configuration.test.ts", "test/azure"],
  discovery: ["test/governance/compliance.test.ts"],
  inventory: ["test/state", "test/discovery/scan.test.ts", "test/http/requests.test.ts"],
  licensing: ["test/http/access.test.ts"],
  settings: ["test/governance/settings.test.ts"],
  subscriptions: ["test/discovery/plan.test.ts"],
};
/** Files of functions/ that are named otherwise than the tests of their area. */
const AREAS: Record<string, string> = { auth: "access", license: "licensing" };
/** Rooms whose tests lie under other names; `shared` are the files directly in shared/, which every room uses. */
const TESTS_OF: Record<string, string[]> = {
  pdf: ["test/audit", "test/compliance"],
  runs: ["test/applications", "test/b2c"],
  secrets: ["test/sync"],
  shared: ["test/storage", "test/http", "test/inventory"],
};

/** `shared/<room>/…` or `shared/<file>.ts` -> the room, `functions/…` -> `functions`. */
export function roomOf(file: string): string {
  const [area, room] = file.split("/");
  if (area !== "shared") return area!;
  return room!.endsWith(".ts") ? "shared" : room!;
}

/** The test files of a file's room, and all that import the file itself, those first. */
export function testsOf(root: string, file: string): string[] {
  const room = roomOf(file);
  const wanted =
    room === "functions"
      ? testsOfFunctions(root, file)
      : (TESTS_OF[room] ?? [`test/${room}`, ...(FURTHER_TESTS[room] ?? [])]);
  const ofRoom = wanted.flatMap((one) =>
    one.endsWith(".ts") ? [one] : globSync(`${one}/**/*.test.ts`, { cwd: root }),
  );
  const all = globSync("test/**/*.test.ts", { cwd: root });
  const importing = new Set(all.filter((test) => readFileSync(path.join(root, test), "utf8").includes(`/${file}"`)));
  const rest = ofRoom.filter((test) => !importing.has(test)).sort();
  return [...new Set([...[...importing].sort(), ...rest])].map((test) => test.split(path.sep).join("/"));
}

/** `functions/alerts.ts` is about what `test/alerts` asks over HTTP; what is of no area is about all that is asked. */
function testsOfFunctions(root: string, file: string): string[] {
  const name = path.basename(file, ".ts");
  const area = `test/${AREAS[name] ?? name}`;
  const ofAll = ["test/http/declarations.test.ts", "test/http/access.test.ts", "test/docs/openapi.test.ts"];
  return existsSync(path.join(root, area))
    ? [area, ...ofAll]
    : ["test/http", "test/docs/openapi.test.ts", "test/governance"];
}
