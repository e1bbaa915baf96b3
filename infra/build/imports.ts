/**
 * Checks the import rules of CONTRIBUTING.md; part of `npm run check`. Reads every import of the project's .ts files, type
 * imports included. A module (a folder of shared/) imports only modules of its own and of lower layers. Only some modules may
 * import certain packages and folders. There are no import cycles between files or between modules.
 */
import { globSync, readFileSync } from "node:fs";
import path from "node:path";
import { parseSync, Visitor } from "oxc-parser";
import { commandLine } from "./command-line.ts";

const HELP = `node infra/build/imports.ts [FOLDER]

Lists each import that breaks a layer rule, and each import cycle. Exits with 1 if it finds one.

  FOLDER   the project's folder (default: this project)`;

/** Layers of shared/, lowest first. A module may import modules of its own layer and of the layers before it in this list. */
export const LAYERS = [
  [
    "platform/counted.ts",
    "platform/csv.ts",
    "platform/load-once.ts",
    "platform/pdf",
    "platform/product.ts",
    "platform/runtime.ts",
    "platform/sent-changes.ts",
    "platform/sum.ts",
    "platform/telemetry.ts",
    "platform/time.ts",
    "platform/ulid.ts",
    "platform/validation-message.ts",
  ],
  ["platform/transport.ts"],
  ["platform/config"],
  ["platform/storage"],
  ["platform/http"],
  ["platform/azure", "platform/outgoing"],
  ["audit"],
  ["messages", "secrets", "unreadable-rows", "platform/runs"],
  ["settings"],
  ["access", "licensing", "inventory"],
  [
    "subscriptions",
    "certificates",
    "compliance",
    "cryptography",
    "discovery",
    "sso",
    "devops",
    "approvals",
    "proposals",
  ],
  ["applications", "b2c", "siem"],
  ["rotation", "sync", "certificate-renewal"],
  ["dependencies", "key-rotation"],
  ["alerts", "reconciliation", "secretless"],
  ["doctor", "metrics", "signed-rows", "store"],
];
/** Matches Azure packages that call Azure services, for example `@azure/data-tables`, but not the packages that those share. */
const AZURE_SDK = /^@azure\/(?!functions|core-auth|core-rest-pipeline|core-client)/;
const AWS_FOLDER = "shared/sync/providers/aws/";

/** Matches the files of one issuer of rotations: its folder is the only part that knows its kind of credential. */
const ISSUER_FOLDER = /^shared\/rotation\/issuers\/([^/]+)\//;
const ISSUER_REGISTRY = "shared/rotation/issuers/issuers.ts";

/** Packages that only development and tests use. They start the built app and must not import its source. */
const DEVELOPMENT_PACKAGES = ["infra/local", "infra/simulated-cloud", "infra/functions-host"];

interface Import {
  file: string;
  /** Import specifier as written. */
  specifier: string;
  /** Path from the root, or a package name. */
  target: string;
}

const layerOf = (module: string): number => LAYERS.findIndex((modules) => modules.includes(module));

/** Returns the module of a file in shared/: `platform/<name>` or `<name>`. A name is a folder or a file. */
function sharedModule(file: string): string {
  const [, first, second] = file.split("/");
  return first === "platform" ? `${first}/${second}` : first!;
}

/** Returns every import of the project's TypeScript files. Paths start at `root` and use `/`. */
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

/** Returns the import specifiers of a file: of values, types and re-exports, and of `import()`. */
function specifiersOf(file: string, text: string): string[] {
  const { program } = parseSync(file, text);
  const specifiers: string[] = [];
  const add = (node: { source: unknown }) => {
    const source = node.source as { type?: string; value?: unknown } | null;
    if (source?.type === "Literal" && typeof source.value === "string") specifiers.push(source.value);
  };
  new Visitor({
    ImportDeclaration: add,
    ExportNamedDeclaration: add,
    ExportAllDeclaration: add,
    ImportExpression: add,
    TSImportType: add,
  }).visit(program);
  return specifiers;
}

/** Returns the rule that an import breaks, undefined if it breaks none. */
function brokenRule({ file, target }: Import): string | undefined {
  const [area, folder] = file.split("/");
  const [targetArea] = target.split("/");
  const inPackage = DEVELOPMENT_PACKAGES.some((one) => file.startsWith(`${one}/`) && !file.startsWith(`${one}/test/`));
  if (inPackage && (targetArea === "shared" || targetArea === "functions"))
    return `${DEVELOPMENT_PACKAGES.join(", ")} start the built app and must not import its source`;
  // Commands run from the project's folder and are not bundled.
  const isDeployed = area === "shared" || (area === "functions" && folder !== "commands");
  if (isDeployed && (targetArea === "infra" || targetArea === "test"))
    return "deployed code must not import infra/ or test/";
  if (area !== "shared") return undefined;
  const module = sharedModule(file);
  if (targetArea === "functions" || target === "@azure/functions")
    return "shared/ must not import functions/ or @azure/functions";
  if (AZURE_SDK.test(target) && module !== "platform/azure" && module !== "platform/storage")
    return "only shared/platform/azure and shared/platform/storage may import an SDK";
  if (target.startsWith("@aws-sdk/") && !file.startsWith(AWS_FOLDER))
    return `only ${AWS_FOLDER} may import an SDK of AWS`;
  if (/^@azure\/(data-tables|storage-queue)/.test(target) && module !== "platform/storage")
    return "only shared/platform/storage may access tables and queues";
  if (targetArea !== "shared") return undefined;
  const issuer = ISSUER_FOLDER.exec(target)?.[1];
  if (issuer !== undefined && ISSUER_FOLDER.exec(file)?.[1] !== issuer && file !== ISSUER_REGISTRY)
    return `only ${ISSUER_REGISTRY} may import an issuer; use its interface`;
  const targetModule = sharedModule(target);
  if (module === targetModule) return undefined;
  if (layerOf(module) < 0) return `the module ${module} is missing in LAYERS of infra/build/imports.ts`;
  if (layerOf(targetModule) > layerOf(module)) return `${module} is in a lower layer than ${targetModule}`;
  return undefined;
}

/**
 * Returns the import cycles, each as its sorted nodes: the strongly connected components of more than one node.
 * https://en.wikipedia.org/wiki/Tarjan%27s_strongly_connected_components_algorithm
 */
function findCycles(edges: Map<string, Set<string>>): string[][] {
  const order = new Map<string, number>();
  const lowest = new Map<string, number>();
  /** Visited nodes whose component is not complete yet. The last nodes form the next component. */
  const unfinished: string[] = [];
  const cycles: string[][] = [];
  const visit = (node: string): void => {
    order.set(node, order.size);
    lowest.set(node, order.get(node)!);
    unfinished.push(node);
    for (const next of edges.get(node) ?? []) {
      if (!order.has(next)) visit(next);
      if (unfinished.includes(next)) lowest.set(node, Math.min(lowest.get(node)!, lowest.get(next)!));
    }
    if (lowest.get(node) !== order.get(node)) return;
    const group = unfinished.splice(unfinished.indexOf(node));
    if (group.length > 1) cycles.push(group.sort());
  };
  for (const node of edges.keys()) if (!order.has(node)) visit(node);
  return cycles;
}

/** Returns the module of a deployed file. functions/ is one module. */
const moduleOf = (file: string): string =>
  file.startsWith("shared/") ? `shared/${sharedModule(file)}` : file.split("/")[0]!;

/** Returns the graph of the relative imports: the nodes that each node imports. A node is a file or a module, by `nodeOf`. */
function edgesOf(imports: Import[], nodeOf: (file: string) => string): Map<string, Set<string>> {
  const edges = new Map<string, Set<string>>();
  for (const { file, specifier, target } of imports) {
    if (!specifier.startsWith(".")) continue;
    const [from, to] = [nodeOf(file), nodeOf(target)];
    if (from !== to) edges.set(from, (edges.get(from) ?? new Set()).add(to));
  }
  return edges;
}

/**
 * Returns a message for each import that breaks a rule, and a message for each import cycle of files or modules under `root`.
 */
export function brokenRules(root: string): string[] {
  const imports = readImports(root);
  const problems: string[] = [];
  for (const one of imports) {
    const broken = brokenRule(one);
    if (broken) problems.push(`${one.file} imports ${one.specifier}: ${broken}`);
  }
  const files = edgesOf(imports, (file) => file);
  for (const cycle of findCycles(files)) {
    problems.push(`These ${cycle.length} files form an import cycle (type imports count):`);
    const within = new Set(cycle);
    for (const file of cycle) {
      problems.push(`  ${file} -> ${[...files.get(file)!].filter((next) => within.has(next)).join(", ")}`);
    }
  }
  const deployed = imports.filter(({ file }) => file.startsWith("shared/") || file.startsWith("functions/"));
  for (const cycle of findCycles(edgesOf(deployed, moduleOf)))
    problems.push(`These modules form an import cycle (type imports count): ${cycle.join(", ")}`);
  return problems;
}

if (import.meta.main) {
  const { positionals } = commandLine(HELP, { allowPositionals: true, options: {} });
  const problems = brokenRules(path.resolve(positionals[0] ?? path.join(import.meta.dirname, "../..")));
  if (problems.length > 0) {
    console.error(problems.join("\n"));
    process.exit(1);
  }
}
