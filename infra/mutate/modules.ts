/** Assigns source files to modules and to the tests that can notice a mutant in them. */
import { existsSync, globSync, readFileSync } from "node:fs";
import path from "node:path";

/** Tests of a module in addition to those in test/<module>/. */
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
/** Test folder of each file in functions/ that does not have the file's name, by file name. */
const AREAS: Record<string, string> = {
  "api-tokens": "access",
  auth: "access",
  automation: "rotation",
  confirmations: "approvals",
  "dependency-rotation": "dependencies",
  licence: "licensing",
  license: "licensing",
  proposals: "mcp",
  "rotation-matches": "rotation",
  rotations: "rotation",
  "second-factor": "access",
  system: "messages",
  user: "access",
  users: "access",
  "verify-audit": "audit",
};
/**
 * Tests of modules that have no test folder of their name, or need further ones. `platform` has the files directly in
 * shared/platform/.
 */
const TESTS_OF: Record<string, string[]> = {
  approvals: ["test/access/confirmations.test.ts"],
  proposals: ["test/mcp"],
  config: ["test/config", "test/docs/tables.test.ts", "test/http/configuration.test.ts", "test/azure"],
  pdf: ["test/pdf", "test/audit", "test/compliance"],
  platform: ["test/storage", "test/http", "test/inventory"],
  runs: ["test/runs", "test/applications", "test/b2c"],
  secrets: ["test/secrets.test.ts", "test/sync"],
};

/**
 * Returns the module of a file: `shared/<module>/…`, `shared/platform/<module>/…`, `platform` for the files directly in
 * shared/platform/, and `functions`.
 */
export function moduleOf(file: string): string {
  const [area, first, second] = file.split("/");
  if (area !== "shared") return area!;
  if (first !== "platform") return first!;
  return second!.endsWith(".ts") ? "platform" : second!;
}

/**
 * Reads all tests once. The returned function lists the tests of a source file by relevance. First are those that import the
 * file, then those in the file's folder and its subfolders, then those of the file's module in test/.
 *
 * @throws Error if a configured test does not exist.
 */
export function readTests(root: string): (file: string) => string[] {
  const all = globSync("{test,shared,functions,infra}/**/*.test.ts", { cwd: root, exclude: ["**/node_modules"] })
    .map((test) => test.split(path.sep).join("/"))
    .sort();
  const texts = new Map(all.map((test) => [test, readFileSync(path.join(root, test), "utf8")]));
  return (file) => {
    const importing = all.filter((test) => texts.get(test)!.includes(`/${file}"`) || importsBeside(test, file, texts));
    const folder = path.posix.dirname(file);
    const testsInFolder = all.filter((test) => test.startsWith(`${folder}/`));
    const configured = testsOf(root, file).flatMap((wanted) => {
      const matchingTests = all.filter((test) => test === wanted || test.startsWith(`${wanted}/`));
      if (matchingTests.length === 0)
        throw new Error(`The test ${wanted} of ${file} does not exist. Correct infra/mutate/modules.ts.`);
      return matchingTests;
    });
    return [...new Set([...importing, ...testsInFolder, ...configured])];
  };
}

/** Returns whether a test outside of test/ imports the file by a relative path. */
function importsBeside(test: string, file: string, texts: Map<string, string>): boolean {
  if (test.startsWith("test/")) return false;
  const relative = path.posix.relative(path.posix.dirname(test), file);
  return texts.get(test)!.includes(`"${relative.startsWith(".") ? relative : `./${relative}`}"`);
}

function testsOf(root: string, file: string): string[] {
  const module = moduleOf(file);
  if (module === "functions") return testsOfFunctions(root, file);
  if (TESTS_OF[module]) return TESTS_OF[module];
  return [`test/${module}`, ...(FURTHER_TESTS[module] ?? [])];
}

/** The tests of `functions/alerts.ts` are in `test/alerts`. Files without such a folder have all HTTP tests. */
function testsOfFunctions(root: string, file: string): string[] {
  if (file.startsWith("functions/web/")) return ["test/page"];
  const name = path.basename(file, ".ts");
  const area = `test/${AREAS[name] ?? name}`;
  const ofAll = ["test/http/declarations.test.ts", "test/http/access.test.ts", "test/docs/openapi.test.ts"];
  return existsSync(path.join(root, area))
    ? [area, ...ofAll]
    : ["test/http", "test/docs/openapi.test.ts", "test/governance"];
}
