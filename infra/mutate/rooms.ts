import { existsSync, globSync, readFileSync } from "node:fs";
import path from "node:path";

/** Tests beside test/<room>/ that are about a room. */
const FURTHER_TESTS: Record<string, string[]> = {
  access: ["test/http/access.test.ts", "test/sso/users.test.ts", "test/sso/oidc.test.ts"],
  compliance: ["test/governance/compliance.test.ts", "test/state"],
  discovery: ["test/governance/compliance.test.ts"],
  http: ["test/docs/descriptions.test.ts", "test/docs/openapi.test.ts"],
  inventory: [
    "test/state",
    "test/discovery/scan.test.ts",
    "test/http/requests.test.ts",
    "test/subscriptions/scope.test.ts",
    "test/applications/inventory.test.ts",
  ],
  licensing: ["test/http/access.test.ts"],
  settings: ["test/governance/settings.test.ts", "test/docs/tables.test.ts"],
  subscriptions: ["test/discovery/plan.test.ts"],
};
/** Files of functions/ that are named otherwise than the tests of their area. */
const AREAS: Record<string, string> = {
  "api-tokens": "access",
  auth: "access",
  "automation-services": "rotation",
  "dependency-rotation": "dependencies",
  licence: "licensing",
  license: "licensing",
  "rotation-matches": "rotation",
  rotations: "rotation",
  system: "messages",
  user: "access",
  users: "access",
  "verify-audit": "audit",
};
/** Rooms whose tests lie under other names; `shared` are the files directly in shared/, which every room uses. */
const TESTS_OF: Record<string, string[]> = {
  config: ["test/config", "test/docs/tables.test.ts", "test/http/configuration.test.ts", "test/azure"],
  pdf: ["test/pdf", "test/audit", "test/compliance"],
  runs: ["test/runs", "test/applications", "test/b2c"],
  secrets: ["test/secrets.test.ts", "test/sync"],
  shared: ["test/storage", "test/http", "test/inventory"],
};

/** `shared/<room>/…` or `shared/<file>.ts` -> the room, `functions/…` -> `functions`. */
export function roomOf(file: string): string {
  const [area, first, second] = file.split("/");
  if (area !== "shared") return area!;
  const room = first === "platform" ? second : first;
  return room!.endsWith(".ts") ? "shared" : room!;
}

/**
 * Reads the tests once, and answers those of a file's room and all that import the file itself, those first. @throws Error when a
 * room is to have tests that are not there.
 */
export function readTests(root: string): (file: string) => string[] {
  const all = globSync(["test/**/*.test.ts", "infra/*/test/**/*.test.ts"], { cwd: root })
    .map((test) => test.split(path.sep).join("/"))
    .sort();
  const texts = new Map(all.map((test) => [test, readFileSync(path.join(root, test), "utf8")]));
  return (file) => {
    const room = roomOf(file);
    const wanted =
      room === "functions"
        ? testsOfFunctions(root, file)
        : (TESTS_OF[room] ?? [`test/${room}`, ...(FURTHER_TESTS[room] ?? [])]);
    const importing = all.filter((test) => texts.get(test)!.includes(`/${file}"`));
    const ofRoom = wanted.flatMap((one) => {
      const found = all.filter((test) => test === one || test.startsWith(`${one}/`));
      if (found.length === 0) throw new Error(`There is no test ${one}, which ${file} is to be tried with.`);
      return found;
    });
    return [...new Set([...importing, ...ofRoom])];
  };
}

/** `functions/alerts.ts` is about what `test/alerts` asks over HTTP; what is of no area is about all that is asked. */
function testsOfFunctions(root: string, file: string): string[] {
  if (file.startsWith("functions/web/")) return ["test/page"];
  const name = path.basename(file, ".ts");
  const area = `test/${AREAS[name] ?? name}`;
  const ofAll = ["test/http/declarations.test.ts", "test/http/access.test.ts", "test/docs/openapi.test.ts"];
  return existsSync(path.join(root, area))
    ? [area, ...ofAll]
    : ["test/http", "test/docs/openapi.test.ts", "test/governance"];
}
