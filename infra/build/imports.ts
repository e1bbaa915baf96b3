/**
 * Holds the code to who may know whom (see CONTRIBUTING.md): reads every import, those of types too, and names what
 * breaks a rule. Two rules: a room imports only rooms below it, and nothing imports in a circle, neither files nor rooms.
 * See HELP.
 */
import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import { parseSync, Visitor } from "oxc-parser";
import { commandLine } from "./command-line.ts";

const HELP = `node infra/build/imports.ts [FOLDER]

Names each import that breaks a rule of who may import whom, and each circle of imports. Ends with 1 when there is one.

  FOLDER   the project's folder (this one)`;

/** Rooms of shared/ from the bottom up: a room may import those above it in this list, never those below. */
export const ROOMS = [
  ["time.ts", "ulid.ts", "runtime.ts", "telemetry.ts", "connections.ts", "transport.ts", "pdf"],
  ["config"],
  ["storage"],
  ["http"],
  ["azure", "outgoing"],
  ["audit"],
  ["messages", "secrets", "runs"],
  ["settings"],
  ["access", "licensing", "inventory"],
  ["subscriptions", "compliance", "discovery", "sso", "devops"],
  ["applications", "b2c"],
  ["rotation", "sync"],
  ["dependencies"],
  ["alerts", "reconciliation"],
  ["metrics"],
];
const SDKS = /^@azure\/(?!functions|core-auth|core-rest-pipeline|core-client)/;
const AWS = "shared/sync/providers/aws/";

/** Folders in which files still import each other in a circle. Only ever to be made shorter. */
const OPEN_CIRCLES: string[] = [];

interface Import {
  file: string;
  /** As it is written. */
  specifier: string;
  /** A path from the root, or a package's name. */
  target: string;
}

const level = (room: string): number => ROOMS.findIndex((rooms) => rooms.includes(room));

/** Every import of the project's own TypeScript, paths with `/` from `root`. */
function readImports(root: string): Import[] {
  return globSync("{functions,shared,infra,test}/**/*.ts", { cwd: root }).flatMap((found) => {
    const file = found.split(path.sep).join("/");
    return specifiersOf(file, readFileSync(path.join(root, found), "utf8")).map((specifier) => ({
      file,
      specifier,
      target: specifier.startsWith(".") ? path.posix.join(path.posix.dirname(file), specifier) : specifier,
    }));
  });
}

/** What a file imports: values, types, re-exports, `import()` of a value and of a type. */
function specifiersOf(file: string, text: string): string[] {
  const { program } = parseSync(file, text);
  const found: string[] = [];
  const add = (node: { source: unknown }) => {
    const source = node.source as { type?: string; value?: unknown } | null;
    if (source?.type === "Literal" && typeof source.value === "string") found.push(source.value);
  };
  new Visitor({
    ImportDeclaration: add,
    ExportNamedDeclaration: add,
    ExportAllDeclaration: add,
    ImportExpression: add,
    TSImportType: add,
  }).visit(program);
  return found;
}

/** Why this import may not be, undefined when it may. */
function ruleBroken({ file, target }: Import): string | undefined {
  const [area, room] = file.split("/");
  const [targetArea, targetRoom] = target.split("/");
  if (file.startsWith("infra/local/") && (targetArea === "shared" || targetArea === "functions"))
    return "infra/local starts the built app and knows nothing of its source";
  // The commands are run from the project's folder, and are in no bundle.
  const isDeployed = area === "shared" || (area === "functions" && room !== "commands");
  if (isDeployed && (targetArea === "infra" || targetArea === "test"))
    return "what is deployed knows nothing of infra/ and test/";
  if (area !== "shared") return undefined;
  if (targetArea === "functions" || target === "@azure/functions") return "shared/ knows nothing of the platform";
  if (SDKS.test(target) && room !== "azure" && room !== "storage")
    return "only shared/azure and shared/storage touch an SDK";
  if (target.startsWith("@aws-sdk/") && !file.startsWith(AWS)) return `only ${AWS} touches an SDK of AWS`;
  if (/^@azure\/(data-tables|storage-queue)/.test(target) && room !== "storage")
    return "only shared/storage touches tables and queues";
  if (targetArea !== "shared" || room === targetRoom) return undefined;
  if (level(room!) < 0) return `the room ${room} has no place in the order of rooms (ROOMS in infra/build/imports.ts)`;
  if (level(targetRoom!) > level(room!)) return `${room} stands below ${targetRoom}`;
  return undefined;
}

/** Groups of nodes that reach each other (Tarjan's strongly connected components), those of one node left out. */
function circles(edges: Map<string, Set<string>>): string[][] {
  const order = new Map<string, number>();
  const lowest = new Map<string, number>();
  const open: string[] = [];
  const found: string[][] = [];
  const visit = (node: string): void => {
    order.set(node, order.size);
    lowest.set(node, order.get(node)!);
    open.push(node);
    for (const next of edges.get(node) ?? []) {
      if (!order.has(next)) visit(next);
      if (open.includes(next)) lowest.set(node, Math.min(lowest.get(node)!, lowest.get(next)!));
    }
    if (lowest.get(node) !== order.get(node)) return;
    const group = open.splice(open.indexOf(node));
    if (group.length > 1) found.push(group.sort());
  };
  for (const node of edges.keys()) if (!order.has(node)) visit(node);
  return found;
}

/** A room is a folder or a file directly in shared/; functions/ is one. */
const roomOf = (file: string): string =>
  file
    .split("/")
    .slice(0, file.startsWith("shared/") ? 2 : 1)
    .join("/");

function edgesOf(imports: Import[], nodeOf: (file: string) => string): Map<string, Set<string>> {
  const edges = new Map<string, Set<string>>();
  for (const { file, specifier, target } of imports) {
    if (!specifier.startsWith(".")) continue;
    const [from, to] = [nodeOf(file), nodeOf(target)];
    if (from !== to) edges.set(from, (edges.get(from) ?? new Set()).add(to));
  }
  return edges;
}

/** One line for each rule that is broken under `root`. */
export function brokenRules(root: string, openCircles: readonly string[]): string[] {
  const imports = readImports(root);
  const problems: string[] = [];
  for (const one of imports) {
    const broken = ruleBroken(one);
    if (broken) problems.push(`${one.file} imports ${one.specifier}: ${broken}`);
  }
  const files = edgesOf(imports, (file) => file);
  const groups = circles(files);
  const lieIn = (group: string[], folder: string) => group.every((file) => file.startsWith(folder));
  for (const folder of openCircles) {
    if (!groups.some((group) => lieIn(group, folder)))
      problems.push(`${folder} has no circle any more: take it out of OPEN_CIRCLES in infra/build/imports.ts`);
  }
  for (const group of groups) {
    if (openCircles.some((folder) => lieIn(group, folder))) continue;
    problems.push(`These ${group.length} files import each other in a circle (types count):`);
    const within = new Set(group);
    for (const file of group) {
      problems.push(`  ${file} -> ${[...files.get(file)!].filter((next) => within.has(next)).join(", ")}`);
    }
  }
  const deployed = imports.filter(({ file }) => file.startsWith("shared/") || file.startsWith("functions/"));
  for (const group of circles(edgesOf(deployed, roomOf)))
    problems.push(`These rooms import each other in a circle (types count): ${group.join(", ")}`);
  return problems;
}

if (import.meta.main) {
  const { positionals } = commandLine(HELP, { allowPositionals: true, options: {} });
  const problems = brokenRules(path.resolve(positionals[0] ?? path.join(import.meta.dirname, "../..")), OPEN_CIRCLES);
  if (problems.length > 0) {
    console.error(problems.join("\n"));
    process.exit(1);
  }
}
